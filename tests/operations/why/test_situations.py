"""`app.why` in every situation, on every storage, on the real server."""

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need
from proof.servers.redis import ClusterSet, RedisServer
from proof.servers.tarantool import TarantoolServer
from why_world import Stage, facts, shut, verdicts

from accoda import App, Bury, JobNotFound, ManualClock, Priority, Retry, Waiter
from accoda.budget.usage import Usage, line_of
from accoda.errors import InvalidInput
from accoda.model import StartNow
from accoda.operations import queues
from accoda.operations.moments import read, rfc3339
from accoda.operations.why import Explanation
from accoda.runtime.heartbeat import ProcessorState

SERVERS: dict[str, Any] = {
    "redis": RedisServer,
    "redis-cluster": ClusterSet,
    "postgres": lambda: PostgresServer(durable=False),
    "tarantool": TarantoolServer,
}
LOST = "its lease ended {} without an outcome (the worker may have died)"
_numbers = itertools.count(1)
_clock = ManualClock(1_893_488_400_000)  # 2030-01-01 09:00; all tests of a server share it, so it never goes back


@pytest.fixture(scope="module", params=["memory", "sqlite", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    name: str = request.param
    if name not in SERVERS:
        yield "memory://" if name == "memory" else f"sqlite:///{tmp_path_factory.mktemp('jobs')}/jobs.db"
        return
    server = need(lambda: SERVERS[name]().start())
    try:
        yield server.url
    finally:
        server.close()


@pytest_asyncio.fixture
async def stage(url: str) -> AsyncIterator[Stage]:
    async with App(url, clock=_clock) as app:
        stage = Stage(app, _clock, f"q{next(_numbers)}")
        try:
            yield stage
        finally:
            await stage.tidy()


async def test_next_in_line(stage: Stage) -> None:
    job = await stage.enqueue()
    await stage.worker(processors=(ProcessorState(),))
    answer = await stage.why(job)
    assert (answer.id, answer.queue, answer.state, answer.position) == (job, stage.queue, "ready", 1)
    assert answer.line == "it is next in line; starts within a second"
    assert verdicts(answer) == {"delayed": "open", "paused": "open", "workers": "open", "line": "open"}
    assert answer.sooner == ()


async def test_the_document_of_a_worker_may_say_that_it_has_no_processors(stage: Stage) -> None:
    await stage.worker(max_processors=0)
    await stage.enqueue()
    assert (await stage.why(await stage.enqueue())).line.strip()


async def test_jobs_are_ahead_and_some_of_them_came_later(stage: Stage) -> None:
    before = [await stage.enqueue() for _ in range(4)]
    job = await stage.enqueue()
    await stage.enqueue()
    for _ in range(2):
        await stage.enqueue(priority=Priority.HIGH)
    await stage.worker(processors=(stage.runs(seconds=1),), rates=stage.rates(2.0))
    answer = await stage.why(job)
    assert answer.line.startswith(f"{len(before) + 2} jobs are ahead, 2 of them enqueued later; starts in about ")
    assert (answer.position, shut(answer)) == (7, ["line"])
    assert facts(answer, "line") == {"ahead": 6, "newer": 2, "exact": 1, "ready": 8}
    assert answer.start is not None and 12 <= answer.start.likely <= 20  # six at 2 s, and what comes between
    assert f"raise its priority: accoda job {job} priority HIGH (it would be next, before 6 jobs)" in answer.sooner


async def test_delayed_until_a_moment(stage: Stage) -> None:
    job = await stage.enqueue(delay=600)
    await stage.worker(processors=(ProcessorState(),))
    answer = await stage.why(job)
    assert answer.line.startswith("it is scheduled for ") and "in 10 min" in answer.line
    assert facts(answer, "delayed")["until"] == rfc3339(stage.now + 600_000)
    assert answer.start is not None and 600 <= answer.start.likely <= 601 and answer.position is None
    assert "starts" not in answer.line  # the moment has been told
    assert answer.sooner == (f"start it now: accoda job {job} retry",)


async def test_waiting_for_a_retry_with_its_last_error(stage: Stage) -> None:
    job = await stage.enqueue(max_attempts=5)
    (taken,) = await stage.take(worker="w1")
    await stage.app.storage.settle([Retry(taken.lease, delay=90, reason="TimeoutError: no answer")])
    await stage.worker(processors=(ProcessorState(),))
    answer = await stage.why(job)
    assert answer.line.startswith("attempt 2 of 5 is scheduled for ")
    (told,) = [gate.text for gate in answer.gates if gate.name == "tries"]
    assert told == "attempt 2 of 5; last error: TimeoutError: no answer"
    assert facts(answer, "tries")["error"] == "TimeoutError: no answer"


async def test_paused_until_a_moment(stage: Stage) -> None:
    job = await stage.enqueue()
    await stage.worker(processors=(ProcessorState(),))
    await queues.pause(stage.app, stage.queue, 300)
    answer = await stage.why(job)
    assert answer.line.startswith(f"queue {stage.queue} is paused since ") and "in 5 min" in answer.line
    assert answer.start is not None and 300 <= answer.start.likely <= 301
    assert answer.sooner == (f"resume the queue: accoda queues {stage.queue} resume",)
    stage.clock.advance(300)
    assert shut(await stage.why(job)) == []


async def test_paused_without_end_with_a_note(stage: Stage) -> None:
    job = await stage.enqueue()
    await stage.worker(processors=(ProcessorState(),))
    await queues.pause(stage.app, stage.queue, who="anna@host-1", note="the mail server is being moved")
    answer = await stage.why(job)
    assert answer.line.startswith(f"queue {stage.queue} is paused by anna@host-1 since ")
    assert answer.line.endswith("until it is resumed: the mail server is being moved") and answer.start is None
    assert facts(answer, "paused")["who"] == "anna@host-1"
    note = await queues.note_of(stage.app, stage.queue)
    assert note is not None and (note.who, note.at) == ("anna@host-1", stage.now)
    await queues.resume(stage.app, stage.queue)
    assert await queues.note_of(stage.app, stage.queue) is None and shut(await stage.why(job)) == []
    await stage.app.storage.pause(stage.queue, None)  # by a program that leaves no note
    assert facts(await stage.why(job), "paused") == {"queue": stage.queue}


async def test_no_worker_at_all(stage: Stage) -> None:
    job = await stage.enqueue()
    answer = await stage.why(job)
    assert (answer.line, answer.start, answer.position) == ("no worker is running", None, 1)
    assert answer.sooner == (f"start a worker for the queue: accoda worker MODULE:APP --queues {stage.queue}",)


async def test_workers_but_none_for_this_queue(stage: Stage) -> None:
    job = await stage.enqueue()
    await stage.worker("emails", "reports")
    await stage.worker("emails", id="w2")
    answer = await stage.why(job)
    assert answer.line == f"no running worker handles {stage.queue}; the 2 running workers handle emails, reports"
    assert answer.sooner == (f"start a worker for the queue: accoda worker MODULE:APP --queues {stage.queue}",)


async def test_workers_of_the_queue_but_none_for_this_type(stage: Stage) -> None:
    job = await stage.enqueue(type="report.genrate")
    await stage.worker(types={stage.queue: ["mail", "report.generate"]})
    other = await stage.enqueue(type="mail", priority="HIGH")
    assert [each.id for each in await stage.take(worker="w1")] == [other]  # what runs is of another type
    answer = await stage.why(job)
    known = "its workers handle mail, report.generate"
    assert answer.line == f"no running worker handles type report.genrate of queue {stage.queue}; {known}"
    assert answer.start is None
    assert answer.sooner == (f"start a worker whose app has @app.handler('{stage.queue}', type='report.genrate')",)
    # A worker gives it back for a while, with the reason: that it is delayed is not the answer.
    [taken] = await stage.take()
    reason = "given back: no handler for its type"
    await stage.app.storage.settle([Retry(taken.lease, delay=30, reason=reason, counts=False)])
    waiting = await stage.why(job)
    assert waiting.line == answer.line
    assert "it was given back (no handler for its type)" in waiting.gates[0].text
    # One that knows the type has come: now the pause is what it waits for.
    await stage.worker(id="w2", types={stage.queue: ["report.genrate"]})
    assert (await stage.why(job)).line.startswith("it was given back (no handler for its type), and is ready again at")


async def test_a_worker_that_cannot_take_jobs(stage: Stage) -> None:
    job = await stage.enqueue()
    await stage.worker(ready=False, problem="stalled: no take for 40 s")
    answer = await stage.why(job)
    assert answer.line == f"the worker that handles {stage.queue} cannot take jobs: name-w1 (stalled: no take for 40 s)"
    await stage.worker(draining=True)
    assert "name-w1 (draining)" in (await stage.why(job)).line


async def test_all_slots_are_in_use(stage: Stage) -> None:
    job = await stage.enqueue()
    busy = (stage.runs("reports", 3, 180), stage.runs("emails", 7, 4))
    await stage.worker(stage.queue, "reports", "emails", processors=busy)
    answer = await stage.why(job)
    doings = "reports (3 jobs, up to 3 min), emails (7 jobs, up to 4 s)"
    assert answer.line == f"all 10 slots are in use: {doings}; starts within a second"
    assert shut(answer) == ["workers"]
    told = facts(answer, "workers")
    assert (told["slots"], told["busy"], told["own"], told["cap"]) == (10, 10, 0, 10)
    assert answer.sooner[0].startswith("more slots: accoda worker ")


async def test_all_processors_run_batches(stage: Stage) -> None:
    job = await stage.enqueue()
    busy = (stage.runs("reports", 3, 180), stage.runs("emails", 7, 4))
    batches = {stage.queue: 100, "reports": 10}
    await stage.worker(stage.queue, "reports", "emails", processors=busy, batches=batches)
    answer = await stage.why(job)
    assert answer.line.startswith("the only processor is in use: reports (3 jobs, up to 3 min); starts in about ")
    told = facts(answer, "workers")
    assert (told["processors"], told["busy"]) == (1, 1)
    assert answer.sooner[0].endswith("or a higher --processors")


async def test_capped_by_its_setting(stage: Stage) -> None:
    job = await stage.enqueue()
    await stage.worker(concurrency={stage.queue: 3}, processors=(stage.runs(jobs=3),), rates=stage.rates())
    answer = await stage.why(job)
    assert answer.line.startswith(f"{stage.queue} may have 3 slots by its setting concurrency, and all are in use")
    assert answer.sooner == (f"raise the setting concurrency of queue {stage.queue}, now 3",)
    of_batches = {"max_processors": 3, "caps": {stage.queue: 1}, "batches": {stage.queue: 10}}
    await stage.worker(**of_batches, processors=(stage.runs(), ProcessorState(), ProcessorState()))
    answer = await stage.why(job)
    assert answer.line.startswith(f"{stage.queue} may have 1 processor by its setting max_processors, and it is in use")
    assert answer.sooner == (f"raise the setting max_processors of queue {stage.queue}, now 1",)


async def test_given_no_processor_by_the_manager(stage: Stage) -> None:
    job = await stage.enqueue()
    busy = (stage.runs("emails", 5), stage.runs("emails", 5))
    await stage.worker(stage.queue, "emails", max_processors=2, processors=busy)
    await stage.assign({"w1": {"emails": 2}})
    answer = await stage.why(job)
    assert answer.line.startswith(f"the manager gives {stage.queue} no processor, and all 10 slots are in use: emails")
    assert facts(answer, "workers")["given"] == 0 and answer.start is not None


async def test_the_budget_is_short(stage: Stage) -> None:
    job = await _paid(stage, cost=5, left=2)
    answer = await stage.why(job)
    assert answer.line.startswith("it costs 5 and budget keepa is short by 3 tokens until ")
    told = facts(answer, "budget")
    assert (told["short"], told["left"], told["head"]) == (3, 2, job)
    assert stage.now + 5900 <= read("until", told["until"]) <= stage.now + 6100  # one token every two seconds
    assert answer.start is not None and 5 <= answer.start.likely <= 7
    assert any(line.startswith("wait for the budget until ") for line in answer.sooner)


async def test_the_budget_is_closed(stage: Stage) -> None:
    job = await _paid(stage, cost=5, left=20)
    await stage.app.books.close(["keepa"], stage.now + 60_000)
    answer = await stage.why(job)
    assert answer.line.startswith("budget keepa is closed until ") and "in 1 min" in answer.line
    assert answer.start is not None and 60 <= answer.start.likely <= 61
    assert "app.books.reopen(['keepa'])" in answer.sooner[0]


async def test_behind_an_expensive_head_that_waits_for_tokens(stage: Stage) -> None:
    head = await _paid(stage, cost=15, left=5)
    job = await stage.enqueue(cost=1)
    answer = await stage.why(job)
    assert answer.line.startswith(f"job {head} at the head costs 15 and budget keepa is short by 10 tokens until ")
    assert shut(answer) == ["budget", "line"] and facts(answer, "budget")["head"] == head


async def test_a_budget_that_can_never_pay(stage: Stage) -> None:
    job = await _paid(stage, cost=50, left=5)
    answer = await stage.why(job)
    assert answer.line == "it costs 50, which budget keepa never has: it will be buried" and answer.start is None
    assert answer.sooner == ("give budget keepa a capacity of at least 50, or the job a lower cost",)


async def test_running_by_a_worker_with_a_lease(stage: Stage) -> None:
    job = await stage.enqueue()
    await stage.take(lease=60, worker="w1")
    await stage.worker(processors=(stage.runs(seconds=0),))
    stage.clock.advance(7)
    answer = await stage.why(job)
    assert (answer.state, answer.start, answer.position, shut(answer)) == ("taken", None, None, [])
    assert answer.line.startswith("running on w1 for 7 s, since ") and "; its lease ends at " in answer.line
    told = facts(answer, "taken")
    assert (told["worker"], read("", told["leaseUntil"]) - read("", told["since"])) == ("w1", 60_000)


async def test_running_by_a_worker_that_is_silent(stage: Stage) -> None:
    job = await stage.enqueue()
    await stage.take(lease=60, worker="w9")
    await stage.worker(id="w1")
    answer = await stage.why(job)
    assert shut(answer) == ["taken"] and facts(answer, "taken")["silent"] == 1
    assert "that worker has no heartbeat" in answer.line
    assert "it comes back when its lease ends" in answer.sooner[0]


async def test_crashed_before_and_ready_again(stage: Stage) -> None:
    job = await stage.enqueue()
    await stage.take(lease=30, worker="w9")
    stage.clock.advance(31)
    await stage.worker(processors=(ProcessorState(),))
    answer = await stage.why(job)
    assert (answer.state, shut(answer)) == ("ready", [])
    (told,) = [gate for gate in answer.gates if gate.name == "tries"]
    assert told.text == f"attempt 1; {LOST.format('once')}"
    assert (told.verdict, told.facts["crashes"]) == ("note", 1)


async def test_a_job_whose_workers_died_twice_is_quarantined(stage: Stage) -> None:
    job = await stage.enqueue()
    for _ in range(2):
        await stage.take(lease=30, worker="w9")
        stage.clock.advance(31)
    await stage.worker(processors=(ProcessorState(),))
    (told,) = [gate.text for gate in (await stage.why(job)).gates if gate.name == "tries"]
    alone = f"attempt 1; {LOST.format('2 times')}; quarantined: it runs alone, "
    assert told == f"{alone}as soon as nothing else runs"
    (taken,) = await stage.take()
    await stage.app.storage.settle([Retry(taken.lease, delay=600, counts=False)])
    answer = await stage.why(job)
    assert answer.line.startswith("quarantined: it runs alone, next at ") and answer.line.endswith(" UTC, in 10 min")
    (told,) = [gate.text for gate in answer.gates if gate.name == "tries"]
    assert told.startswith(f"{alone}next at ") and told.endswith(" UTC, in 10 min")


async def test_an_error_is_told_once(stage: Stage) -> None:
    job = await stage.enqueue(key="anna", max_attempts=2)
    for outcome in (Retry, Bury):
        (taken,) = await stage.take()
        await stage.app.storage.settle([outcome(taken.lease, reason="LookupError: no user 4711")])
        if outcome is Retry:
            assert "".join(_texts(await stage.why(job))).count("no user 4711") == 1
    answer = await stage.why(job)
    assert "".join(_texts(answer)).count("no user 4711") == 1 and "no user 4711" in answer.line
    assert facts(answer, "dead")["reason"] == "LookupError: no user 4711"
    await stage.enqueue(key="anna", delay=60)  # now the key is the answer, and the gate tells the error
    answer = await stage.why(job)
    assert "".join(_texts(answer)).count("no user 4711") == 1 and "no user 4711" not in answer.line


async def test_a_record_in_a_book_is_no_job_to_wait_for(stage: Stage) -> None:
    await _paid(stage, cost=5, left=20)
    await stage.app.storage.enqueue([line_of(Usage(stage.now, stage.queue, 1))])
    (line,) = await stage.app.storage.browse(f"{stage.queue}.spent", "delayed")
    answer = await stage.why(line.id)
    assert answer.line == f"it is a record that Accoda keeps for {stage.queue}, and is never run"
    assert (len(answer.gates), answer.start, answer.sooner) == (1, None, ())


def _texts(answer: Explanation) -> list[str]:
    """All that a person reads."""
    return [answer.line, *(gate.text for gate in answer.gates), *answer.sooner]


async def test_dead_because_of_a_reason(stage: Stage) -> None:
    job = await stage.enqueue()
    (taken,) = await stage.take()
    await stage.app.storage.settle([Bury(taken.lease, "LookupError: no user 4711")])
    stage.clock.advance(120)
    answer = await stage.why(job)
    assert (answer.state, shut(answer), answer.start) == ("dead", ["dead"], None)
    assert answer.line.startswith("dead since ") and answer.line.endswith("2 min ago: LookupError: no user 4711")
    assert answer.sooner == (f"fix the cause, then run it again: accoda job {job} retry",)


async def test_dead_and_its_key_is_held_by_another(stage: Stage) -> None:
    job = await stage.enqueue(key="anna")
    (taken,) = await stage.take()
    await stage.app.storage.settle([Bury(taken.lease, "broken")])
    assert verdicts(await stage.why(job))["key"] == "open"
    other = await stage.enqueue(key="anna", delay=60)
    answer = await stage.why(job)
    assert answer.line.startswith(f"job {other} (delayed) holds its key 'anna': this one cannot be revived")
    assert shut(answer) == ["key", "dead"] and facts(answer, "key")["holder"] == other
    assert answer.sooner == (
        f"let job {other} end, or cancel it (accoda job {other} cancel); then accoda job {job} retry",
    )


async def test_done_and_kept(stage: Stage) -> None:
    job = await stage.enqueue(keep_for=3600)
    (taken,) = await stage.take()
    await stage.end(taken)
    stage.clock.advance(60)
    answer = await stage.why(job)
    assert (answer.state, shut(answer), answer.sooner) == ("done", [], ())
    assert answer.line.startswith("done at ") and "1 min ago; its result is kept until " in answer.line
    told = facts(answer, "done")
    assert read("", told["keptUntil"]) - read("", told["endedAt"]) == 3_600_000


async def test_cancelled_and_kept(stage: Stage) -> None:
    job = await stage.enqueue(keep_for=3600)
    assert await stage.app.cancel(job)
    stage.clock.advance(60)
    answer = await stage.why(job)
    assert (answer.state, shut(answer), answer.sooner) == ("cancelled", [], ())
    assert answer.line.startswith("cancelled at ") and "1 min ago, so it will not run; it is kept until" in answer.line


async def test_a_demand_with_waiters(stage: Stage) -> None:
    deals = stage.app.demand(stage.queue)

    @deals.fetch
    async def fetch(key: str) -> str:
        return key

    @deals.deliver
    async def deliver(waiter: Waiter[Any], result: str) -> None: ...

    first = await deals.request("Libri", Waiter("anna"))
    await deals.request("Libri", Waiter("bruno"))
    behind = await deals.request("Giochi", Waiter("carla"))
    await stage.worker(processors=(ProcessorState(),))
    answer = await stage.why(first.id)
    (told,) = [gate for gate in answer.gates if gate.name == "key"]
    assert (told.verdict, told.facts["waiters"]) == ("note", 2)
    assert told.text == "2 callers are waiting for this result (key 'Libri')"
    assert any("sooner due time" in line for line in (await stage.why(behind.id)).sooner)


async def test_a_job_that_is_not_there(stage: Stage) -> None:
    with pytest.raises(JobNotFound, match="job 999999999 is not stored"):
        await stage.why(999_999_999)
    with pytest.raises(InvalidInput, match="must be the number of a job"):
        await stage.why("17")  # type: ignore[arg-type]


async def test_delayed_and_paused_and_no_worker(stage: Stage) -> None:
    job = await stage.enqueue(delay=60)
    await stage.app.storage.pause(stage.queue, None)
    answer = await stage.why(job)
    assert shut(answer) == ["delayed", "paused", "workers"] and answer.line.startswith("it is scheduled for ")
    assert [line.split(":")[0] for line in answer.sooner] == [
        "start it now",
        "resume the queue",
        "start a worker for the queue",
    ]
    await stage.app.storage.change([StartNow(job)])
    answer = await stage.why(job)
    assert shut(answer) == ["paused", "workers"] and answer.line.startswith(f"queue {stage.queue} is paused")


async def test_jobs_that_others_take_over_http(stage: Stage) -> None:
    await stage.enqueue()
    job = await stage.enqueue()
    await stage.take(worker="php")
    answer = await stage.why(job)
    assert verdicts(answer)["workers"] == "note" and answer.line == "it is next in line"


async def _paid(stage: Stage, cost: int, left: float) -> int:
    """A job whose handler is paid by a budget that has so many tokens left, and gets one every two seconds."""
    stage.app.budget("keepa", capacity=20, refill=30, per=60)

    @stage.app.handler(stage.queue, budget="keepa")
    async def handle(payload: Any) -> None: ...

    await stage.worker(processors=(ProcessorState(),))
    await stage.tokens("keepa", left)
    return await stage.enqueue(cost=cost)
