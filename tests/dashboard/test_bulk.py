"""One action on many jobs: asked, begun, watched, stopped."""

import asyncio

import pytest
from dash import Dash

from accoda.model import ById
from accoda.runtime.system_jobs import SystemJobs


def test_what_is_ticked_is_asked_about_and_done(dash: Dash) -> None:
    first, second, third = dash.bury("a", "x", "y", "z")
    page = dash.text(f"/bulk?which=picked&action=retry&id-{first}=on&id-{second}=on&state=dead")
    assert "Retry 2 jobs?" in page and 'action="/do/picked"' in page
    form = {f"id__{first}": "on", f"id__{second}": "on", "action": "retry", "back": "/jobs?state=dead"}
    assert dash.done("/do/picked", **form) == ("/jobs?state=dead", "2 jobs retried")
    assert [dash.state(id) for id in (first, second, third)] == ["ready", "ready", "dead"]


@pytest.mark.parametrize(("action", "after"), [("cancel", None), ("delete", None), ("priority", "ready")])
def test_every_action_is_done_to_what_is_ticked(dash: Dash, action: str, after: str | None) -> None:
    id = dash.enqueue("a")
    _, said = dash.done("/do/picked", action=action, level="HIGH", **{f"id__{id}": "on"})
    assert said.startswith("1 job ") and dash.state(id) == after
    if after:
        job = dash.store(lambda store: store.look(ById(id))).job
        assert job is not None and job.rank == 1.0


def test_those_that_are_refused_are_told_and_the_others_are_done(dash: Dash) -> None:
    [dead] = dash.bury("a", "x")
    ready = dash.enqueue("b")
    _, said = dash.done("/do/picked", action="retry", **{f"id__{dead}": "on", f"id__{ready}": "on", "id__999": "on"})
    assert said.startswith("1 job retried; 2 left alone") and "is ready" in said


def test_all_that_match_are_counted_and_asked_about(dash: Dash) -> None:
    dash.bury("a", "x", "y")
    dash.enqueue("a")
    page = dash.text("/bulk?which=matching&action=delete&state=dead&queue=a")
    assert "Delete 2 jobs?" in page and "cannot be undone" in page
    assert dash.state(1) == "dead"
    assert "No job matches" in dash.text("/bulk?which=matching&action=delete&queue=none")


def test_with_nothing_selected_the_list_is_shown_again_as_it_was(dash: Dash) -> None:
    reply = dash.get("/bulk?which=picked&action=retry&queue=a&back=%2Fjobs%3Fqueue%3Da%26cursor%3Dx")
    assert (reply.status, reply.headers["location"]) == (303, "/jobs?queue=a&cursor=x")
    assert "No%20job%20is%20selected" in reply.headers["set-cookie"]
    reply = dash.get("/bulk?which=picked&action=retry&state=dead&back=https%3A%2F%2Fevil.example")
    assert (reply.status, reply.headers["location"]) == (303, "/jobs?state=dead")
    assert dash.get("/bulk?which=matching&action=explode").status == 422


def test_all_that_match_are_done_in_the_background_and_watched(dash: Dash) -> None:
    ids = dash.bury("a", *("x",) * 30)
    to, said = dash.done("/do/bulk", action="retry", state="dead", queue="a")
    assert to.startswith("/bulk/") and "in the background" in said
    assert "Stop" in dash.text(to)

    async def work() -> None:
        system_jobs = SystemJobs(dash.app.storage, dash.app.system_jobs())
        system_jobs.start()
        async with asyncio.timeout(10):
            while (await dash.app.storage.stats()).queues["a"].dead:
                await asyncio.sleep(0.01)
        await system_jobs.close()

    asyncio.run(work())
    assert dash.state(ids[0]) == "ready"
    assert "retry" in dash.text("/bulk")


def test_one_that_goes_on_is_stopped(dash: Dash) -> None:
    dash.bury("a", "x")
    to, _ = dash.done("/do/bulk", action="delete", state="dead")
    assert dash.done(f"/do{to}/stop")[0] == to
    assert 'class="state stopped"' in dash.text(to)
    assert dash.do(f"/do{to}/stop").status == 409
    assert dash.get("/bulk/none").status == 404


def test_only_admins_begin_one(dashes: dict[str, Dash]) -> None:
    [dead] = dashes["admin"].bury("a", "x")
    for path in ("/do/bulk", "/do/picked"):
        assert dashes["read"].do(path, action="retry", **{f"id__{dead}": "on"}).status == 403
    assert dashes["admin"].state(dead) == "dead"
    assert '<button class="primary">Retry' not in dashes["read"].text("/bulk?which=matching&action=retry&state=dead")
