"""The page of jobs: filter, pages, and what is done to many."""

import doctest
import re

from dash import HOSTILE, Dash

from accoda import Done
from accoda.dashboard.pages import parameters
from accoda.model import NewJob


def ids(page: str) -> list[int]:
    return [int(id) for id in re.findall(r'<a href="/jobs/(\d+)">\d+</a>', page)]


def test_an_empty_store_says_how_to_put_a_job_in(dash: Dash) -> None:
    assert "accoda enqueue emails" in dash.text("/jobs")
    assert "No matching jobs" in dash.text("/jobs?state=dead")


def test_jobs_of_every_state_are_listed(dash: Dash) -> None:
    ready, delayed = dash.enqueue("a", {"n": 1}), dash.enqueue("a", delay=60)
    [dead] = dash.bury("b", "no user 7")
    kept = dash.enqueue("c", keep_for=60)
    dash.settle(Done(dash.take("c")[0].lease))
    running = dash.enqueue("d")
    dash.take("d")
    page = dash.text("/jobs")
    assert sorted(ids(page)) == sorted([ready, delayed, dead, kept, running])
    for state in ("ready", "delayed", "taken", "dead", "done"):
        assert f'class="state {state}">{"running" if state == "taken" else state}<' in page
        assert len(ids(dash.text(f"/jobs?state={state}"))) == 1
    assert '<option value="taken">running</option>' in page and "running for" in page
    assert "no user 7" in page and "{ &#34;n&#34;: 1 }" in page


def test_a_list_of_one_state_is_in_the_order_of_processing_with_what_tells_it(dash: Dash) -> None:
    low, high, plain = dash.enqueue("a", priority="low"), dash.enqueue("a", priority="HIGH"), dash.enqueue("a")
    page = dash.text("/jobs?queue=a&state=ready")
    assert ids(page) == [high, plain, low] and "Ready jobs, in the order in which they will run<" in page
    assert ">Rank<" not in page, "the priority says it all"
    assert "Ready jobs, in the order in which they will run, queue by queue<" in dash.text("/jobs?state=ready")
    dash.run(lambda app: app.storage.enqueue([NewJob("ranked", rank=1_704_067_200_000.0)]))
    assert ">1704067200000<" in dash.text("/jobs?state=ready&queue=ranked")
    later, sooner = dash.enqueue("b", delay=60), dash.enqueue("c", delay=30)
    page = dash.text("/jobs?state=delayed")
    assert ids(page) == [sooner, later] and "Delayed jobs, the next to start first<" in page
    dash.run(lambda app: app.storage.take("a", 1, worker="mailer-1"))
    page = dash.text("/jobs?state=taken")
    assert "mailer-1" in page and ">Lease ends<" in page and "Running jobs, by the end of their lease<" in page
    assert ">Worker<" not in dash.text("/jobs")


def test_the_address_keeps_the_filter(dash: Dash) -> None:
    wanted = dash.enqueue("orders", {"customer": {"id": 42}}, key="k1")
    dash.enqueue("orders", {"customer": {"id": 43}}, key="k2")
    page = dash.text("/jobs?queue=orders&field=customer.id%3D42")
    assert ids(page) == [wanted] and 'value="customer.id=42"' in page and 'value="orders"' in page
    assert ids(dash.text("/jobs?key=k1")) == [wanted]
    assert ids(dash.text("/jobs?priority=NORMAL&queue=orders"))[0] == wanted
    assert ids(dash.text("/jobs?priority=LOW")) == []
    [dead] = dash.bury("b", "no user 7")
    assert ids(dash.text("/jobs?error=no+user")) == [dead]


def test_types_have_a_column_where_a_job_has_one_and_a_filter(dash: Dash) -> None:
    dash.enqueue("plain")
    assert '<th scope="col">Type</th>' not in dash.text("/jobs")
    mail, report = dash.enqueue("work", type="mail"), dash.enqueue("work", type="report <b>")
    page = dash.text("/jobs?queue=work")
    assert '<th scope="col">Type</th>' in page and "report &lt;b&gt;" in page and "report <b>" not in page
    assert ids(dash.text("/jobs?type=mail")) == [mail] and 'value="mail"' in dash.text("/jobs?type=mail")
    assert ids(dash.text("/jobs?queue=work&type=report%20%3Cb%3E")) == [report]
    assert "of type" in dash.text(f"/jobs/{mail}")
    assert '<a href="/jobs?queue=work&amp;type=mail"' in dash.text("/queues/work")
    asked = dash.text("/bulk?type=mail&which=matching&action=delete&back=/jobs")
    assert '<input type="hidden" name="type" value="mail">' in asked, "a bulk change has the same filter"


def test_a_filter_that_cannot_be_used_is_told_and_stays_in_the_form(dash: Dash) -> None:
    dash.enqueue("a")
    for query, told in (("state=nope", "must be one of"), ("field=abc", "customer.id=42"), ("queue=%20-", "queue")):
        page = dash.text(f"/jobs?{query}")
        assert 'role="alert"' in page and told in page and ids(page) == []
    assert 'value="abc"' in dash.text("/jobs?field=abc")


def test_pages_lead_on_and_back_to_the_first(dash: Dash) -> None:
    made = dash.store(lambda store: store.enqueue([NewJob("a") for _ in range(120)]))
    seen: list[int] = []
    path = "/jobs?queue=a"
    for _ in range(3):
        page = dash.text(path)
        seen += ids(page)
        found = re.search(r'rel="next" href="([^"]+)"', page)
        path = found[1].replace("&amp;", "&") if found else ""
        assert "queue=a" in path or not found
    assert seen == [job.id for job in made] and path == "" and 'href="/jobs?queue=a">First page' in page


def test_hostile_texts_are_shown_as_texts(dash: Dash) -> None:
    dash.enqueue("a", {"x": HOSTILE, HOSTILE: 1}, name=HOSTILE[:60], key=HOSTILE)
    dash.bury("a", HOSTILE)
    assert "&lt;script&gt;" in dash.text("/jobs")
    for field in ("queue", "state", "key", "error", "field", "name", "priority", "cursor"):
        dash.text(f"/jobs?{field}=%3Cscript%3Ealert%281%29%3C%2Fscript%3E%22%20onerror=x")


def test_who_may_only_read_sees_no_boxes(dashes: dict[str, Dash]) -> None:
    dashes["admin"].enqueue("a")
    assert "data-pick" in dashes["admin"].text("/jobs") and "data-pick" not in dashes["read"].text("/jobs")


def test_the_examples_of_addresses_and_forms_hold() -> None:
    assert doctest.testmod(parameters).failed == 0
