"""The handlers of one queue: which one a job has, and what they say of the queue together."""

from typing import Any

import pytest

from accoda import App, InvalidInput, Priority
from accoda.envelope import type_of
from accoda.handler_options import JobTarget
from accoda.operations.handlers import handler_of_job
from accoda.priority import aging


def two(app: App, **more: Any) -> tuple[Any, Any]:
    @app.handler("work", type="report", max_attempts=3, **more)
    async def report(month: str) -> None: ...

    @app.handler("work", type="refresh", secret=("card",))
    async def refresh(key: int) -> None: ...

    return report, refresh


def test_a_job_has_the_handler_of_its_type() -> None:
    app = App("memory://")
    report, refresh = two(app)
    work = app.handlers["work"]
    assert work.find("report") is report and work.find("refresh") is refresh
    assert work.find("unknown") is None and work.find(None) is None
    assert list(work.by_type) == ["report", "refresh"]
    other = app.add_handler("work", lambda: None, {})
    assert work.find("unknown") is other and work.find(None) is other and work.find("report") is report


def test_a_job_without_a_type_has_the_queues_only_handler() -> None:
    app = App("memory://")
    only = app.add_handler("work", lambda: None, {"type": "report"})
    assert app.handlers["work"].find(None) is only
    assert app.handlers["work"].find("other") is None


async def test_a_handler_enqueues_jobs_of_its_type_and_they_are_found_again() -> None:
    app = App("memory://")
    report, refresh = two(app)
    first, second = await report.enqueue("2030-01"), (await refresh.enqueue_many([7]))[0]
    for told, handler in ((first, report), (second, refresh)):
        info = await app.find(told.id)
        assert info is not None and type_of(info.data) == handler.type and handler_of_job(app, info) is handler
    with pytest.raises(
        InvalidInput, match=r"type: <handler report of queue work, type report> has no jobs of type 'x'"
    ):
        await report.enqueue("2030-01", type="x")
    with pytest.raises(InvalidInput, match="payload"):  # the type's own codec checks it
        await app.enqueue("work", "seven", type="refresh")
    assert (await app.enqueue("work", 1.5, type="new")).what == "created"  # another process may know it


def test_one_handler_says_the_options_of_the_queue_for_all() -> None:
    app = App("memory://")
    report, refresh = two(app, policy="aging", lease=5, concurrency=50)
    for handler in (report, refresh):
        assert handler.options.policy == "aging" and handler.options.lease == 5.0 and handler.spec.policy is aging
    work = app.handlers["work"].options
    assert (work.policy, work.concurrency, work.max_attempts, work.secret) == ("aging", 50, None, ())
    assert (report.options.max_attempts, refresh.options.max_attempts) == (3, None)  # each its own
    assert app.queue_spec("work", "elsewhere").policy is aging  # jobs of other processes' types stand in the same line
    assert app.new_job("work", 1, {"type": "elsewhere", "priority": Priority.LOW}).rank > 1e12


def test_handlers_that_contradict_each_other_are_refused_with_both_named() -> None:
    app = App("memory://")
    two(app, lease=5)
    with pytest.raises(InvalidInput, match=r"lease: is 9 of <handler .*type x> and 5 of <handler report .*say it once"):
        app.add_handler("work", lambda: None, {"type": "x", "lease": 9})
    with pytest.raises(InvalidInput, match="type: 'work' has a handler already: <handler report"):
        app.add_handler("work", lambda: None, {"type": "report"})
    app.add_handler("work", lambda: None, {"type": "x", "lease": 5})  # the same is no contradiction
    assert list(app.handlers["work"].by_type) == ["report", "refresh", "x"]


def test_the_queue_of_a_demand_has_one_handler() -> None:
    app = App("memory://")
    deals = app.demand("deals", fresh_for=60)

    @deals.fetch
    async def fetch(key: str) -> str:
        return key

    with pytest.raises(InvalidInput, match="queue: 'deals' belongs to a demand"):
        app.add_handler("deals", lambda: None, {"type": "x"})


def test_on_dead_is_a_handler_or_a_queue() -> None:
    app = App("memory://")
    report, _ = two(app)
    told = app.add_handler("a", lambda: None, {"on_dead": report})
    assert told.options.on_dead == JobTarget("work", "report")
    assert app.add_handler("b", lambda: None, {"on_dead": "alerts"}).options.on_dead == JobTarget("alerts")
    with pytest.raises(InvalidInput, match="on_dead: must be a handler or the name of a queue, not 7"):
        app.add_handler("c", lambda: None, {"on_dead": 7})
    with pytest.raises(InvalidInput, match="renew: must be True or False, not 0"):
        app.add_handler("c", lambda: None, {"renew": 0})  # type: ignore[typeddict-item]
    with pytest.raises(InvalidInput, match="number: must be an integer >= 1, not '7'"):
        app.add_handler("c", lambda: None, {"number": "7"})  # type: ignore[typeddict-item]
    with pytest.raises(InvalidInput, match="settle: is for handlers of batches, and <lambda> takes one job"):
        app.add_handler("c", lambda: None, {"settle": "explicit"})
    with pytest.raises(InvalidInput, match="settle: must be one of return, explicit, not 'never'"):
        app.add_handler("c", lambda: None, {"settle": "never"})  # type: ignore[typeddict-item]


def test_a_batch_that_is_not_annotated_is_no_payload() -> None:
    app = App("memory://")
    with pytest.raises(InvalidInput, match="handler: <lambda> takes a batch, and does not say of what: write batch: B"):
        app.add_handler("imports", lambda batch: None, {"batch": 10})

    @app.handler("wines")
    def bottle(batch: str) -> None: ...

    assert not bottle.takes_batch


async def test_a_schedule_makes_jobs_of_its_handlers_type() -> None:
    app = App("memory://")
    report, refresh = two(app)
    app.every(60, payload="2030-01")(report)
    app.every(60, payload=7)(refresh)
    assert {name: each.type for name, each in app.schedules.items()} == {
        "work.report": "report",
        "work.refresh": "refresh",
    }
    with app.testing() as trial:
        from accoda.schedules import Scheduler, maker_of, store_declared

        store = await app.connections.get()
        await store_declared(app, store)
        trial.advance(60)
        await Scheduler(maker_of(app)).run_once(store)
        jobs = await store.browse("work", "ready")
        assert sorted(str(type_of(job.data)) for job in jobs) == ["refresh", "report"]
