"""The page of dead letters."""

import asyncio

import pytest
from dash import HOSTILE, Dash

from accoda.fingerprint import fingerprint
from accoda.runtime.system_jobs import SystemJobs


def run_system_jobs(dash: Dash) -> None:
    """Run what a worker or service runs until no dead letter is left."""

    async def work() -> None:
        system_jobs = SystemJobs(dash.app.storage, dash.app.system_jobs())
        system_jobs.start()
        async with asyncio.timeout(10):
            while any(each.dead for each in (await dash.app.storage.stats()).queues.values()):
                await asyncio.sleep(0.01)
        await system_jobs.close()

    asyncio.run(work())


def test_nothing_dead_says_what_would_come_here(dash: Dash) -> None:
    assert "No dead letters" in dash.text("/dead")


def test_dead_letters_are_grouped_by_their_cause(dash: Dash) -> None:
    dash.bury("a", "no user 1", "no user 2", "disk full")
    [last] = dash.bury("b", "no user 3")
    page = dash.text("/dead")
    assert page.index("no user 3") < page.index("disk full") and f"/jobs/{last}" in page
    assert f"/jobs?state=dead&amp;error={fingerprint('no user 1')}" in page
    assert "latest" not in page


def test_of_too_many_the_latest_are_read_and_the_page_says_so(dash: Dash, monkeypatch: pytest.MonkeyPatch) -> None:
    from accoda.dashboard.pages import dead

    monkeypatch.setattr(dead, "EXAMINED", 10)
    dash.bury("a", *("old",) * 40)
    dash.bury("a", *("new",) * 40)
    page = dash.text("/dead")
    assert "of the latest 10 dead letters; there are 80" in page and "new" in page and ">old<" not in page


def test_a_dry_run_counts_and_shows_some(dash: Dash) -> None:
    dash.bury("a", "no user 1", "no user 2", "disk full")
    page = dash.text(f"/dead/replay?fingerprint={fingerprint('no user 9')}")
    assert "Replay 2 dead letters?" in page and "no user 1" in page and "disk full" not in page
    assert "Replay 3 dead letters?" in dash.text("/dead/replay")
    assert dash.get("/dead/replay?fingerprint=nope").status == 422
    assert dash.state(1) == "dead"


def test_a_group_is_replayed_with_a_rate_and_watched(dash: Dash) -> None:
    dash.bury("a", "no user 1", "no user 2")
    to, said = dash.done("/do/dead/replay", fingerprint=fingerprint("no user 1"), rate="50")
    assert to.startswith("/bulk/") and "at most 50 a second" in said
    assert "at most 50 a second" in dash.text(to)
    run_system_jobs(dash)
    assert [dash.state(id) for id in (1, 2)] == ["ready", "ready"]


def test_a_replay_is_stopped(dash: Dash) -> None:
    dash.bury("a", "x")
    to, _ = dash.done("/do/dead/replay")
    assert dash.done(f"/do{to}/stop")[0] == to
    assert dash.do(f"/do{to}/stop").status == 409
    assert 'class="state stopped"' in dash.text(to)


@pytest.mark.parametrize("rate", ["fast", "0", "-1", "1e9", "nan"])
def test_a_rate_that_is_none_is_refused_and_nothing_begins(dash: Dash, rate: str) -> None:
    dash.bury("a", "x")
    reply = dash.do("/do/dead/replay", rate=rate)
    assert reply.status == 422 and b"jobs a second" in reply.body
    assert dash.service.get("/api/v1/jobs/bulk").json()["items"] == []


def test_one_comes_back_alone(dash: Dash) -> None:
    first, second = dash.bury("a", "x", "x")
    assert dash.done(f"/do/dead/{first}/replay", back="/dead") == ("/dead", f"Job {first} is ready again.")
    assert dash.state(second) == "dead"
    assert dash.do(f"/do/dead/{first}/replay", back="/dead").status == 409


def test_a_group_is_deleted_in_the_background(dash: Dash) -> None:
    dash.bury("a", "x", "y")
    to, _ = dash.done("/do/dead/delete", fingerprint=fingerprint("x"))
    assert to.startswith("/bulk/")
    dash.done("/do/dead/delete")
    run_system_jobs(dash)
    assert dash.state(1) is None and dash.state(2) is None


def test_hostile_reasons_are_shown_as_texts(dash: Dash) -> None:
    dash.bury("a", HOSTILE)
    assert "&lt;script&gt;" in dash.text("/dead") and "&lt;script&gt;" in dash.text("/dead/replay")


def test_actions_need_the_scope_admin(dashes: dict[str, Dash]) -> None:
    [id] = dashes["admin"].bury("a", "x")
    assert "/do/" not in dashes["read"].text("/dead") and "/do/" not in dashes["read"].text("/dead/replay")
    for path in ("/do/dead/replay", "/do/dead/delete", f"/do/dead/{id}/replay"):
        assert dashes["read"].do(path).status == 403
    assert dashes["admin"].state(id) == "dead"
