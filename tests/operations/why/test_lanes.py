"""`why` of jobs in lanes: held, paused, in turns; and of a queue that runs as many jobs as it may."""

from collections.abc import AsyncIterator

import pytest_asyncio
from why_world import Stage, facts, shut, verdicts

from accoda import App, ManualClock
from accoda.model import Lanes
from accoda.operations import queues
from accoda.operations.why import Explanation
from accoda.runtime.heartbeat import ProcessorState


@pytest_asyncio.fixture
async def stage() -> AsyncIterator[Stage]:
    clock = ManualClock(1_893_488_400_000)
    async with App("memory://", clock=clock) as app:
        yield Stage(app, clock, "mails")


async def rules(stage: Stage, **rules: object) -> None:
    await stage.app.storage.set_lanes(stage.queue, Lanes(**rules))  # type: ignore[arg-type]
    await stage.worker(processors=(ProcessorState(),))


def lane_text(answer: Explanation) -> str:
    (found,) = [gate.text for gate in answer.gates if gate.name == "lane"]
    return found


async def test_a_held_job_names_those_that_have_its_places(stage: Stage) -> None:
    await rules(stage, limit=2)
    first, second, job = [await stage.enqueue(lane="customer-7") for _ in range(3)]
    await stage.take(worker="alpha")
    stage.clock.advance(4)
    answer = await stage.why(job)
    assert answer.line == f"lane customer-7 has its 2 of 2: jobs {first} (running 4 s on alpha), {second} (ready)"
    assert (answer.state, answer.position, answer.start, shut(answer)) == ("held", None, None, ["lane"])
    assert answer.sooner == ("give its lane one place more: accoda lanes mails --lane customer-7 --limit 3",)
    told = {"lane": "customer-7", "limit": 2, "ready": 1, "held": 1, "taken": 1}
    assert facts(answer, "lane") == told and "line" not in verdicts(answer)


async def share(stage: Stage, **limits: object) -> None:
    """Queues that share their limits as `github`, each with the limit that is given."""
    await stage.worker(processors=(ProcessorState(),))
    for queue, limit in limits.items():
        await stage.app.lanes.change(queue, limit=limit, shared="github")  # type: ignore[arg-type]


async def test_a_held_job_names_those_in_other_queues_that_have_its_places(stage: Stage) -> None:
    await share(stage, mails=2, builds=3)
    first = (await stage.app.enqueue("builds", lane="customer-7")).id
    second, job = [await stage.enqueue(lane="customer-7") for _ in range(2)]
    await stage.app.storage.take("builds", 1, worker="alpha")
    stage.clock.advance(4)
    answer = await stage.why(job)
    named = f"jobs {first} (running 4 s on alpha, queue builds), {second} (ready)"
    assert answer.line == f"lane customer-7 has its 2 of 2 in queues builds and mails: {named}"
    assert answer.sooner == ("give its lane one place more: accoda lanes mails --lane customer-7 --limit 3",)
    told = {"lane": "customer-7", "limit": 2, "ready": 1, "held": 1, "taken": 1, "sharedWith": "builds"}
    assert facts(answer, "lane") == told


async def test_a_paused_queue_that_keeps_places_is_named(stage: Stage) -> None:
    await share(stage, mails=1, builds=1)
    first = (await stage.app.enqueue("builds", lane="a")).id
    job = await stage.enqueue(lane="a")
    await queues.pause(stage.app, "builds")
    answer = await stage.why(job)
    full = f"lane a has its 1 of 1 in queues builds and mails: job {first} (ready, queue builds)"
    assert answer.line == f"{full}; queue builds is paused, and its ready jobs keep these places"
    assert answer.sooner == (
        "resume the queue that keeps places: accoda queues builds resume",
        "give its lane one place more: accoda lanes mails --lane a --limit 2 && accoda lanes builds --lane a --limit 2",
    )


async def test_a_lane_that_is_paused_in_another_queue(stage: Stage) -> None:
    await share(stage, mails=1, builds=0)
    answer = await stage.why(await stage.enqueue(lane="a"))
    assert answer.line == "lane a is paused: its limit is 0 in queue builds, which shares its limits"
    assert answer.sooner == ("give its lane a place: accoda lanes builds --lane a --limit 1",)


async def test_a_ready_job_tells_where_its_limit_holds(stage: Stage) -> None:
    await share(stage, mails=3, builds=None, tests=2)
    await stage.app.enqueue("builds", lane="a")
    text = lane_text(await stage.why(await stage.enqueue(lane="a")))
    assert text == "lane a may have 2 in line or running at once in queues builds, mails and tests, and has 2"


async def test_of_many_places_a_few_are_named(stage: Stage) -> None:
    await rules(stage, limit=8)
    job = [await stage.enqueue(lane="a") for _ in range(9)][-1]
    assert (await stage.why(job)).line.endswith("5 (ready) and 3 more")


async def test_a_paused_lane(stage: Stage) -> None:
    await rules(stage, limits={"anna's shop": 0})
    answer = await stage.why(await stage.enqueue(lane="anna's shop"))
    assert answer.line == "lane anna's shop is paused: its limit is 0"
    command = "accoda lanes mails --lane 'anna'\"'\"'s shop' --limit 1"
    assert answer.sooner == (f"give its lane a place: {command}",)


async def test_a_lane_that_was_limited_while_more_of_it_ran(stage: Stage) -> None:
    await rules(stage)
    for _ in range(3):
        await stage.enqueue(lane="a")
    await stage.take(3)
    job = await stage.enqueue(lane="a")
    await rules(stage, limit=1)
    assert (await stage.why(job)).line.startswith("lane a has its 3 of 1: jobs 1 (running 0 s), ")


async def test_a_pause_of_the_queue_comes_before_the_lane(stage: Stage) -> None:
    await rules(stage, limit=1)
    job = [await stage.enqueue(lane="a") for _ in range(2)][-1]
    await queues.pause(stage.app, stage.queue)
    answer = await stage.why(job)
    assert answer.line.startswith("queue mails is paused") and shut(answer) == ["paused", "lane"]


async def test_a_ready_job_tells_its_turn(stage: Stage) -> None:
    await rules(stage, fair=True, weights={"b": 3.0})
    for _ in range(10):
        await stage.enqueue(lane="a")
    job = await stage.enqueue(lane="b")
    answer = await stage.why(job)
    assert answer.position == 2 and verdicts(answer)["lane"] == "note"
    assert lane_text(answer) == "lane b takes turns with the other lanes of its priority level, with weight 3"
    assert all("priority HIGH (it would be next" in one for one in answer.sooner if "priority" in one)


async def test_a_ready_job_of_a_limited_lane_has_a_place(stage: Stage) -> None:
    await rules(stage, limit=2)
    answer = await stage.why(await stage.enqueue(lane="a"))
    assert answer.line == "it is next in line; starts within a second" and verdicts(answer)["lane"] == "open"
    assert lane_text(answer) == "lane a may have 2 in line or running at once, and has 1"


async def test_a_delayed_job_of_a_full_lane_has_no_estimate(stage: Stage) -> None:
    await rules(stage, limit=1)
    job = await stage.enqueue(lane="a", delay=60)
    assert (await stage.why(job)).start is not None
    await stage.enqueue(lane="a")
    answer = await stage.why(job)
    assert answer.line.startswith("it is scheduled for ") and answer.start is None
    assert "it would be held if it were ready now" in lane_text(answer)


async def test_a_queue_that_runs_as_many_as_it_may(stage: Stage) -> None:
    await rules(stage, total=2)
    first, second, job = [await stage.enqueue() for _ in range(3)]
    await stage.take(worker="alpha")
    stage.clock.advance(2)
    assert "total" not in verdicts(await stage.why(job)), "the rules are not read while a job can be taken"
    await stage.take(worker="beta")
    answer = await stage.why(job)
    running = f"jobs {first} (running 2 s on alpha), {second} (running 0 s on beta)"
    assert answer.line.startswith(f"2 of 2 jobs of the queue run at once: {running}; starts in about ")
    assert shut(answer) == ["total"] and answer.start is not None and 0.2 <= answer.start.likely <= 1
    assert answer.sooner == ("let the queue run more jobs at once: accoda lanes mails --total 3",)
    await rules(stage, total=0)
    answer = await stage.why(job)
    assert (answer.line, answer.start) == ("none of the jobs of mails may run: its total is 0", None)


async def test_without_rules_a_lane_changes_nothing(stage: Stage) -> None:
    await stage.worker(processors=(ProcessorState(),))
    answer = await stage.why(await stage.enqueue(lane="a"))
    assert verdicts(answer) == {"delayed": "open", "paused": "open", "workers": "open", "line": "open"}
