"""The page of a queue's lanes, and held jobs on the other pages."""

from urllib.parse import quote

import msgspec
import pytest
from dash import HOSTILE, Dash

from accoda.model import Head, Lanes
from accoda.operations import lanes
from accoda.runtime.served_lanes import PREFIX, STEP, Slot

NAME = "".join(char for char in HOSTILE if char.isprintable())


def fill(dash: Dash, *names: str, **rules: object) -> None:
    dash.run(lambda app: lanes.change(app, "mails", rules, 0))
    for name in names:
        dash.enqueue("mails", lane=name)


def test_a_queue_without_lanes_has_no_link_to_them_and_an_empty_page(dash: Dash) -> None:
    dash.enqueue("mails")
    assert "/queues/mails/lanes" not in dash.text("/queues/mails")
    assert "--lane customer-7" in dash.text("/queues/mails/lanes")
    assert dash.get("/queues/never/lanes").status == 404


def test_lanes_are_drawn_with_what_runs_waits_and_is_held(dash: Dash) -> None:
    fill(dash, *["acme"] * 5, "zoe", limit=2)
    dash.take("mails", 1)
    page = dash.text("/queues/mails/lanes")
    assert 'aria-label="acme: 1 running, 1 in line, 3 held"' in page
    bar = '<rect class="taken" x="0.0" y="0" width="20.0" height="12"/><rect class="ready" x="20.0" '
    assert bar in page and '<rect class="held" x="40.0" y="0" width="60.0"' in page
    assert 'href="/jobs?queue=mails&amp;lane=acme"' in page and ">83 %<" in page
    assert 'href="/queues/mails/lanes"' in dash.text("/queues/mails") and ">Held<" in dash.text("/")


def test_a_limit_is_set_pauses_and_is_reset(dash: Dash) -> None:
    fill(dash, *["acme"] * 3, limit=1)
    to, said = dash.done("/do/queues/mails/lanes", lane="acme", limit="2")
    assert (to, said) == ("/queues/mails/lanes", "Lane acme may have 2 in line or running at once.")
    assert dash.store(lambda store: store.stats()).queues["mails"].held == 1
    assert "is paused" in dash.done("/do/queues/mails/lanes", lane="acme", limit="0")[1]
    page = dash.text("/queues/mails/lanes?lane=acme")
    assert 'class="state paused"' in page and 'value="acme"' in page and 'max="10000" value="0"' in page
    dash.done("/do/queues/mails/lanes", lane="acme", limit="", reset="1")
    assert dash.store(lambda store: store.stats()).queues["mails"].held == 2


def test_limits_are_shared_and_no_longer(dash: Dash) -> None:
    fill(dash, "acme", limit=1)
    dash.run(lambda app: lanes.change(app, "news", {"shared": "github"}, 0))
    to, said = dash.done("/do/queues/mails/lanes/shared", shared="github")
    assert (to, said) == ("/queues/mails/lanes", "mails shares its limits as github, with news.")
    said = dash.done("/do/queues/mails/lanes", lane="acme", limit="7")[1]
    assert said == "Lane acme may have 7 in line or running at once. Where news gives it less, that holds."
    page = dash.text("/queues/mails/lanes")
    assert 'name="shared" value="github"' in page and ">Limits shared<" in page and "with news" in page
    assert "are its own" in dash.done("/do/queues/mails/lanes/shared", shared="github", end="1")[1]
    assert "Limits shared" not in dash.text("/queues/mails/lanes")
    assert dash.do("/do/queues/mails/lanes/shared", shared="no name").status == 422


def test_runs_of_the_last_hour_are_drawn_beside_what_waits(dash: Dash) -> None:
    fill(dash, "acme", limit=2)
    assert "Last hour" not in dash.text("/queues/mails/lanes")
    slot = dash.store(lambda store: store.look(Head("mails"))).at // STEP
    hour = msgspec.json.encode([Slot(slot, 40, {"acme": 10, NAME: 20})])
    dash.store(lambda store: store.write(f"{PREFIX}mails/w", hour))
    page = dash.text("/queues/mails/lanes")
    assert 'aria-label="acme: 1 in line, 10 ran in the last hour"' in page and 'title="10 of 40 runs"' in page
    assert '<rect class="hour" x="0" y="0" width="50.0" height="12"/>' in page and ">25 %<" in page
    assert page.index(">acme<") < page.rindex("&lt;script&gt;"), "it has no jobs now"


@pytest.mark.parametrize("form", [{"lane": ""}, {"lane": "a\n", "limit": "1"}, {"lane": "a", "limit": "many"},
                                  {"lane": "a", "limit": "10001"}, {"lane": "a", "limit": ""}])  # fmt: skip
def test_what_is_no_lane_or_limit_is_refused(dash: Dash, form: dict[str, str]) -> None:
    dash.enqueue("mails", lane="a")
    assert dash.do("/do/queues/mails/lanes", **form).status == 422
    assert dash.store(lambda store: store.lanes("mails")).rules is None


def test_who_may_only_read_sees_no_form(dashes: dict[str, Dash]) -> None:
    fill(dashes["admin"], "acme", limit=1)
    assert "/do/queues/mails/lanes" not in dashes["read"].text("/queues/mails/lanes")
    assert "/do/queues/mails/lanes" in dashes["admin"].text("/queues/mails/lanes")
    assert dashes["read"].do("/do/queues/mails/lanes", lane="acme", limit="0").status == 403
    assert dashes["read"].do("/do/queues/mails/lanes/shared", shared="github").status == 403


def test_names_of_lanes_are_never_markup(dash: Dash) -> None:
    fill(dash, NAME, NAME, limit=1, limits={f"{NAME}2": 3}, weights={NAME: 2.5})
    page = dash.text("/queues/mails/lanes?lane=" + quote(NAME))
    assert "&lt;script&gt;" in page and "Other lanes with rules of their own" in page and ">2.5<" in page
    held = dash.text("/jobs?state=held&lane=" + quote(NAME))
    assert 'class="state held"' in held and "Held jobs, by rank" in held


def test_a_held_job_says_why_and_can_be_moved_and_cancelled(dash: Dash) -> None:
    dash.run(lambda app: app.storage.set_lanes("mails", Lanes(limit=1)))
    dash.enqueue("mails", lane="acme")
    id = dash.enqueue("mails", lane="acme")
    page = dash.text(f"/jobs/{id}")
    assert "Lane acme has its 1 of 1" in page and "Held until its lane has a place" in page
    assert f"/do/jobs/{id}/cancel" in page and f"/do/jobs/{id}/priority" in page
    dash.done(f"/do/jobs/{id}/priority", level="CRITICAL")
    assert dash.state(id) == "ready"
