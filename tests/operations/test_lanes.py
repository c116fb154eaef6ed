"""Lanes for people: rules and counts, changes, and the state `held` in lists, counts, changes and health."""

import pytest

from accoda import App, InvalidInput
from accoda.errors import Conflict, NotFound
from accoda.model import Lanes, NewJob
from accoda.operations import bulk, jobs, lanes, overview, queues
from accoda.operations.job_filter import JobFilter
from accoda.operations.lanes import LanesView, LaneView


async def fill(app: App, **rules: object) -> list[int]:
    """Four jobs of lane a and one of lane b, under these rules."""
    await lanes.change(app, "mails", rules)
    made = await app.storage.enqueue([NewJob("mails", lane=lane, rank=2.0) for lane in "aaaab"])
    return [each.id for each in made]


def counts(found: LanesView) -> dict[str, tuple[int, int, int]]:
    return {each.lane: (each.ready, each.held, each.taken) for each in found.lanes}


async def test_lanes_are_shown_with_their_rules_and_shares(app: App) -> None:
    await fill(app, limit=2, limits={"b": 0}, weights={"a": 3})
    await app.storage.take("mails", 1)
    found = await lanes.get(app, "mails")
    assert (counts(found), found.count) == ({"a": (1, 2, 1), "b": (0, 1, 0)}, 2)
    assert found.lanes[0] == LaneView(lane="a", ready=1, held=2, taken=1, share=0.8, limit=2, weight=3.0)
    assert [(each.limit, each.share) for each in found.lanes] == [(2, 0.8), (0, 0.2)]
    assert found.rules is not None and (found.rules.limit, found.rules.limits) == (2, {"b": 0})
    assert (found.ready, found.held, found.taken) == (1, 3, 1)


async def test_the_limit_of_a_lane_is_the_lowest_of_the_queues_that_share(app: App) -> None:
    await fill(app, limit=9, limits={"b": 2}, shared="github")
    await lanes.change(app, "news", {"limit": 3, "limits": {"b": None}, "shared": "github"})
    await lanes.change(app, "other", {"limit": 1, "shared": "gitlab"})
    found = await lanes.get(app, "mails")
    assert ([(each.lane, each.limit) for each in found.lanes], found.shared_with) == ([("a", 3), ("b", 2)], ["news"])
    assert found.rules is not None and found.rules.limit == 9
    assert counts(found)["a"] == (3, 1, 0)


async def test_a_part_of_the_lanes_is_listed_and_all_are_counted(app: App) -> None:
    await app.storage.enqueue([NewJob("mails", lane=f"lane {number}") for number in range(30)])
    found = await lanes.get(app, "mails", 4)
    assert ([each.lane for each in found.lanes], found.count) == (["lane 0", "lane 1", "lane 10", "lane 11"], 30)
    assert found.rules is None
    with pytest.raises(InvalidInput, match="limit"):
        await lanes.get(app, "mails", 1001)


async def test_a_queue_with_neither_jobs_nor_rules_is_not_found(app: App) -> None:
    with pytest.raises(NotFound):
        await lanes.get(app, "never")
    await app.storage.set_lanes("never", Lanes(limit=1))
    assert (await lanes.get(app, "never")).lanes == []


async def test_a_change_holds_at_once_and_is_forgotten_by_a_reset(app: App) -> None:
    await fill(app, limit=2, limits={"b": 0})
    raised = await lanes.change(app, "mails", {"limits": {"a": 3}, "total": 7})
    assert counts(raised) == {"a": (3, 1, 0), "b": (0, 1, 0)}
    assert counts(await lanes.reset(app, "mails", "a")) == {"a": (2, 2, 0), "b": (0, 1, 0)}
    gone = await lanes.reset(app, "mails")
    assert (gone.rules, counts(gone)) == (None, {"a": (4, 0, 0), "b": (1, 0, 0)})


async def test_rules_that_cannot_be_change_nothing(app: App) -> None:
    await fill(app, limit=2)
    for wrong in ({"limit": -1}, {"limits": {"a\n": 1}}, {"weights": {"a": 0}}, {"limit": 1, "lmit": 2}):
        with pytest.raises(InvalidInput):
            await lanes.change(app, "mails", wrong)
    assert counts(await lanes.get(app, "mails"))["a"] == (2, 2, 0)


async def test_held_jobs_are_found_by_state_and_by_lane(app: App) -> None:
    made = await fill(app, limit=1)
    page = await jobs.page(app, JobFilter(queue="mails", state="held"))
    assert [(each.id, each.lane, each.state) for each in page.items] == [(id, "a", "held") for id in made[1:4]]
    assert [each.id for each in (await jobs.page(app, JobFilter(lane="b"))).items] == [made[4]]
    assert (await bulk.count(app, JobFilter(state="held"))).n == 3
    for wrong in ("", "x" * 129, "a\n"):
        with pytest.raises(InvalidInput, match="lane"):
            await jobs.page(app, JobFilter(lane=wrong))


async def test_held_jobs_of_several_queues_are_listed_queue_by_queue(app: App) -> None:
    made: list[int] = []
    for queue in ("b", "a"):
        await app.storage.set_lanes(queue, Lanes(limit=0))
        made += [each.id for each in await app.storage.enqueue([NewJob(queue, lane="x", rank=9.0 - len(made))])]
    assert [each.id for each in (await jobs.page(app, JobFilter(state="held"))).items] == made[::-1]


async def test_a_held_job_is_cancelled_deleted_and_moved_but_not_started(app: App) -> None:
    made = await fill(app, limit=1)
    with pytest.raises(Conflict, match="is held: its lane is full"):
        await jobs.retry(app, made[1])
    assert (await jobs.set_priority(app, made[3], "CRITICAL")).state == "ready"  # the best of its lane
    assert (await jobs.get(app, made[0])).state == "held"
    await jobs.cancel(app, made[3])
    assert (await jobs.get(app, made[0])).state == "ready"
    await jobs.delete(app, made[1])
    done = await bulk.run(app, "cancel", JobFilter(queue="mails", lane="a"))
    assert (done.changed, (await queues.get(app, "mails")).total) == (2, 1)


async def test_held_jobs_are_in_every_count(app: App) -> None:
    await fill(app, limit=1)
    assert ((await queues.get(app, "mails")).held, (await queues.get(app, "mails")).total) == (3, 5)
    assert (await overview.overview(app)).totals.held == 3
    assert await queues.purge(app, "mails", "held") == 3


async def test_a_queue_whose_lanes_are_all_paused_is_idle_and_says_so(app: App) -> None:
    await fill(app, limit=0)
    health = (await queues.get(app, "mails")).health
    assert (health.word, health.reason) == ("idle", "5 jobs held by paused or full lanes")


async def test_a_job_shows_its_turn_where_it_differs_from_its_rank(app: App) -> None:
    made = await fill(app, fair=True)
    turns = [(await jobs.get(app, id)).turn for id in made]
    assert all(turn is not None and 2 < turn < 2 + 1e-9 for turn in turns)
    assert [each.id for each in (await jobs.page(app, JobFilter(state="ready"))).items] == [
        made[place] for place in (0, 4, 1, 2, 3)
    ]
    plain = await app.storage.enqueue([NewJob("plain", lane="a")])
    assert (await jobs.get(app, plain[0].id)).turn is None
