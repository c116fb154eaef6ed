"""The dashboard's frame, its overview and its queue pages, asked with plain HTTP."""

import doctest
import importlib
import re

import pytest
from dash import HOSTILE, Dash
from proof.proxy import Proxy
from proof.servers.pytest import need
from proof.servers.redis import RedisServer
from proof.service import ServiceRunner

from accoda import App
from accoda.dashboard import mount
from accoda.dashboard.health import RecentRuns, judge
from accoda.dashboard.routes import actions, pages
from accoda.http.options import ServiceOptions
from accoda.operations.views import QueueView

PURE = ("answers", "charts", "forms", "health", "live", "routes", "words")


@pytest.mark.parametrize("name", [*(f"accoda.dashboard.{each}" for each in PURE), "accoda.http.security.pages"])
def test_the_examples_in_docstrings_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_an_empty_store_says_how_to_enqueue_the_first_job(dash: Dash) -> None:
    page = dash.text("/")
    assert "Nothing is queued yet" in page and "accoda enqueue emails" in page


def test_the_overview_tells_each_queue_and_what_is_wrong_with_it(dash: Dash) -> None:
    dash.enqueue("emails", {"to": "anna"})
    dash.bury("reports", "no paper")
    page = dash.text("/")
    row = page[page.index('id="queue-emails"') :].partition("</tr>")[0]
    assert 'href="/queues/emails"' in row and "stuck" in row and "no worker serves it" in row
    assert 'href="/dead?queue=reports"' in page
    assert "No worker is running" in page and "accoda worker" in page


def test_many_queues_are_found_by_name(dash: Dash) -> None:
    for number in range(14):
        dash.enqueue(f"line-{number}")
    assert 'name="q"' in dash.text("/")
    found = dash.text("/?q=LINE-1")
    assert re.findall(r'id="queue-([^"]+)"', found) == ["line-1", "line-10", "line-11", "line-12", "line-13"]
    assert "No queue has" in dash.text("/?q=nothing")


def test_a_queue_page_shows_its_line_and_its_failures(dash: Dash) -> None:
    first = dash.enqueue("emails", name="the first")
    dead = dash.bury("letters", HOSTILE)[0]
    page = dash.text("/queues/emails")
    assert f'href="/jobs/{first}"' in page and "the first" in page and "Waiting by level" in page
    assert "No history yet" in page and "No worker serves it" in page
    letters = dash.text("/queues/letters")
    assert f'href="/jobs/{dead}"' in letters and "&lt;script&gt;" in letters


def test_a_queue_is_paused_with_a_note_and_resumed(dash: Dash) -> None:
    dash.enqueue("emails")
    to, said = dash.done("/do/queues/emails/pause", back="/queues/emails", note=HOSTILE, **{"for": "1h"})
    assert to == "/queues/emails" and said.startswith("emails is paused for 1 h")
    page = dash.text("/queues/emails")
    assert "Paused by local" in page and "&lt;script&gt;" in page and "Resume" in page
    assert dash.done("/do/queues/emails/resume")[0] == "/"
    assert "Paused by" not in dash.text("/queues/emails")
    dash.done("/do/queues/emails/pause-now")
    assert "paused" in dash.text("/")


def test_a_purge_needs_the_name_of_the_queue(dash: Dash) -> None:
    dash.enqueue("emails")
    refused = dash.do("/do/queues/emails/purge", state="ready", sure="reports")
    assert refused.status == 422 and b"type the name of the queue, emails" in refused.body
    assert dash.do("/do/queues/emails/purge", state="taken", sure="emails").status == 422
    said = dash.done("/do/queues/emails/purge", state="ready", sure="emails")[1]
    assert said == "1 ready job of emails is deleted."
    assert dash.do("/do/queues/emails/purge", state="ready").status == 422


def test_an_action_that_htmx_asks_for_is_answered_with_a_line(dash: Dash) -> None:
    dash.enqueue("emails")
    service, url = dash.service, dash.service.url
    headers = {"Origin": url, "Content_Type": "application/x-www-form-urlencoded", "HX_Request": "true"}
    here = service.post("/do/queues/emails/pause-now", b"back=/", **headers, HX_Current_URL=f"{url}/")
    assert here.status == 200 and here.body.startswith(b'<p class="said">emails is paused')
    away = service.post("/do/queues/emails/resume", b"back=/", **headers, HX_Current_URL=f"{url}/queues/emails")
    assert away.headers["hx-redirect"] == "/" and "accoda-said=" in away.headers["set-cookie"]
    wrong = service.post("/do/queues/emails/purge", b"state=none", **headers)
    assert wrong.status == 422 and wrong.body.startswith(b'<p class="said wrong">')


def test_what_was_said_is_shown_once(dash: Dash) -> None:
    reply = dash.service.get("/", Cookie="accoda-said=%3Cb%3Edone")
    assert b"&lt;b&gt;done" in reply.body and "Max-Age=0" in reply.headers["set-cookie"]


@pytest.mark.parametrize(
    ("path", "status"),
    [("/queues/nowhere", 404), ("/queues/a/b", 404), ("/queues/emails?span=2y", 422), ("/do/nothing", 405)],
)
def test_what_is_wrong_is_a_page_in_the_same_design(dash: Dash, path: str, status: int) -> None:
    dash.enqueue("emails")
    reply = dash.get(path)
    assert reply.status == status and reply.headers["content-type"] == "text/html; charset=utf-8"
    assert b'<nav aria-label="Pages">' in reply.body and f'<p class="status">{status}</p>'.encode() in reply.body


def test_a_store_that_is_away_is_a_page_too() -> None:
    server = need(lambda: RedisServer().start())
    try:
        with Proxy(server.port) as proxy:
            options = ServiceOptions(system_jobs=False, patience=0.2)
            with ServiceRunner(App(server.url_at(proxy.port)), options) as service:
                assert service.get("/").status == 200
                with proxy.during(cut=True):
                    reply = service.get("/")
                    assert reply.status == 503 and b"Try again" in reply.body and reply.headers["retry-after"] == "5"
                assert service.get("/").status == 200
    finally:
        server.close()


def test_a_page_is_not_for_posting(dash: Dash) -> None:
    assert dash.do("/").status == 405 and dash.do("/do/nothing").status == 404


def test_pages_cannot_be_framed_and_run_nothing_but_our_own_files(dash: Dash) -> None:
    dash.enqueue("emails")
    for path in ("/", "/queues/emails", "/login", "/nothing-here/", "/jobs/x/y"):
        reply = dash.get(path)
        if reply.headers["content-type"].startswith("text/html"):
            policy = reply.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
            assert reply.headers["x-frame-options"] == "DENY" and reply.headers["cache-control"] == "no-store"
            text = reply.body.decode()
            assert not re.search(r"\sstyle=|\son[a-z]+=|<style|javascript:", text), path
            scripts = re.findall(r"<script[^>]*>", text)
            assert all('src="/static/' in each or "application/json" in each for each in scripts)
            assert "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text


def test_files_are_kept_for_ever_under_the_name_that_changes_with_them(dash: Dash) -> None:
    addresses = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', dash.text("/")))
    assert len(addresses) == 7
    for address in addresses:
        reply = dash.get(address)
        assert reply.status == 200 and "immutable" in reply.headers["cache-control"]
        again = dash.service.get(address, If_None_Match=reply.headers["etag"])
        assert again.status == 304 and not again.body
    assert dash.get("/static/accoda.css").headers["cache-control"] == "no-cache"
    assert dash.get("/static/accoda.000000000000.css").status == 404
    assert dash.get("/static/../dashboard.py").status in (400, 404)


def test_every_page_and_action_has_its_place() -> None:
    assert all(route.path.startswith("/do/") for route in actions().routes)
    paths = [route.path for route in pages().routes] + [route.path for route in actions().routes]
    assert len(paths) == len(set(paths))


def test_a_service_may_be_without_it() -> None:
    with ServiceRunner(App("memory://"), ServiceOptions(system_jobs=False, dashboard=False)) as service:
        assert service.get("/").status == 404


def test_where_jinja_is_missing_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mount, "is_installed", lambda: False)
    with ServiceRunner(App("memory://")) as service:
        reply = service.get("/")
        assert reply.status == 501 and mount.ADVICE.encode() in reply.body
        assert service.get("/api/v1/queues").status == 200


def test_a_head_has_no_body(dash: Dash) -> None:
    reply = dash.service.request("HEAD", "/")
    assert reply.status == 200 and not reply.body and int(reply.headers["content-length"]) > 1000


@pytest.mark.parametrize(
    ("word", "queue", "pace"),
    [
        ("paused", QueueView(name="q", ready=9, paused=True), RecentRuns()),
        ("stuck", QueueView(name="q", ready=9), RecentRuns()),
        ("stuck", QueueView(name="q", ready=9, oldest_age=900), RecentRuns(over=900, workers=1)),
        ("failing", QueueView(name="q"), RecentRuns(done=5, failed=8, over=900, workers=1)),
        ("behind", QueueView(name="q", ready=1000), RecentRuns(done=900, over=900, busy=900, workers=1)),
        ("healthy", QueueView(name="q", ready=10), RecentRuns(done=900, failed=1, over=900, workers=1)),
        ("healthy", QueueView(name="q", taken=1), RecentRuns(workers=1)),
        ("idle", QueueView(name="q", dead=2), RecentRuns(workers=1)),
    ],
)
def test_health_is_the_worst_that_is_known(word: str, queue: QueueView, pace: RecentRuns) -> None:
    assert judge(queue, pace).word == word


def test_a_young_queue_is_judged_by_the_time_that_it_has_lived() -> None:
    young = RecentRuns.of([0.0] * 56 + [3.0] * 4, [0.0] * 60, 15.0, workers=1)
    assert (young.over, young.busy) == (900.0, 60.0)
    assert judge(QueueView(name="q", ready=600), young).word == "healthy"  # 200 s of work, not 50 minutes
    assert judge(QueueView(name="q", ready=1200), young).reason == "6 min 40 s of work at this pace"


def test_an_address_that_leads_nowhere_is_a_page_for_browsers_and_json_for_programs(dash: Dash) -> None:
    page = dash.service.request("GET", "/nowhere", headers={"Accept": "text/html,*/*"})
    assert (page.status, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert b"here is no such page" in page.body
    for path, accept in (("/nowhere", "application/json"), ("/api/v1/nowhere", "text/html")):
        told = dash.service.request("GET", path, headers={"Accept": accept})
        assert (told.status, told.headers["content-type"]) == (404, "application/problem+json")
