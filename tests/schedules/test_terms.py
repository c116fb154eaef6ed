"""What an app knows of a queue is stored with the schedule, so that the tick is the same wherever it is done."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from schedule_world import MINUTE, START, Meddled, World, every, extras_of, nothing, payload_of

from accoda import App, NewJob, Priority
from accoda.errors import Conflict, InvalidInput
from accoda.model import JobInfo
from accoda.payload import Codec, use_codec
from accoda.priority import aging
from accoda.schedules import QUEUE, Scheduler, apply, create, delete, get, pause, put, resume, store_declared, trigger
from accoda.schedules.record import read_record, write_record
from accoda.schedules.store import look


class Bill(msgspec.Struct):
    card: str
    pages: int
    copies: int = 1


class Sealed(msgspec.Struct):
    """A payload whose bytes nobody writes but its codec."""

    text: str


class SealedCodec(Codec[Sealed]):
    def __init__(self) -> None:
        super().__init__(Sealed)
        use_codec(Sealed, self)

    def encode(self, payload: object) -> bytes:
        if not isinstance(payload, Sealed):
            raise InvalidInput("payload", "must be Sealed")
        return msgspec.msgpack.encode(payload.text[::-1])


SealedCodec()


def billing(world: World, **options: Any) -> App:
    """Another app on the same store, with a handler that says a lot of its queue."""
    app = App("memory://", clock=world.clock)
    app.storage = world.store
    given: Any = {"policy": "aging", "cost": "pages", "keep_for": 3600, "secret": ("card",), **options}

    @app.handler("reports", **given)
    async def bill(one: Bill) -> None: ...

    return app


PAYLOAD = {"card": "4111", "pages": 7}


async def ticked(world: World) -> JobInfo:
    """The job of the next tick, which the world's own app does: it has no handler at all."""
    assert world.app.handlers == {}
    await world.tick(60)
    return (await world.jobs())[-1]


def is_right(world: World, job: JobInfo, cost: int = 7) -> None:
    assert job.rank == aging(Priority.HIGH, world.clock.now())
    assert (job.cost, job.keep_for, extras_of(job).secret) == (cost, 3600.0, ("card",))
    assert Codec(Bill).decode(job.data) == Bill("4111", 7)


async def by_declaration(world: World, app: App) -> None:
    app.every(60, name="report", payload=Bill("4111", 7), priority=Priority.HIGH)(app.handlers["reports"])
    await store_declared(app, world.store)


async def by_create(world: World, app: App) -> None:
    await create(world.store, every(60, payload=PAYLOAD, priority="HIGH"), app=app)


async def by_put(world: World, app: App) -> None:
    await create(world.store, every(60, payload="old"))
    await put(world.store, every(60, payload=PAYLOAD, priority="HIGH"), app=app)


async def by_file(world: World, app: App) -> None:
    await apply(world.store, [every(60, payload=PAYLOAD, priority="HIGH", source="file")], app=app)


async def by_a_worker_that_starts_later(world: World, app: App) -> None:
    await create(world.store, every(60, payload=PAYLOAD, priority="HIGH"))
    await store_declared(app, world.store)


@pytest.mark.parametrize("way", [by_declaration, by_create, by_put, by_file, by_a_worker_that_starts_later])
async def test_a_tick_is_right_where_nobody_knows_the_handler(world: World, way: Callable[..., Any]) -> None:
    await way(world, billing(world))
    is_right(world, await ticked(world))
    is_right(world, await ticked(world))  # the record that follows a tick has it too
    done = await trigger(world.store, world.app.new_job, "report")
    is_right(world, next(job for job in await world.jobs() if job.id == done.id))


async def test_what_the_schedule_says_wins_over_its_handler(world: World) -> None:
    await create(world.store, every(60, payload=PAYLOAD, cost=2, keep_for=5), app=billing(world))
    job = await ticked(world)
    assert (job.cost, job.keep_for) == (2, 5.0)


async def test_without_an_app_the_one_that_does_the_tick_says_how(world: World) -> None:
    await create(world.store, every(60, payload=PAYLOAD))
    job = await ticked(world)
    assert (job.rank, job.cost, job.keep_for, extras_of(job).secret) == (2.0, 0, 0.0, ())
    world.clock.advance(60)
    await Scheduler(billing(world).new_job).run_once(world.store)
    (_, job) = await world.jobs()
    assert job.rank == aging(Priority.NORMAL, world.clock.now()) and extras_of(job).secret == ("card",)


async def test_a_record_of_the_time_before_still_ticks(world: World) -> None:
    schedule = {"name": "report", "queue": "reports", "every": 60.0, "payload": PAYLOAD, "source": "code"}
    stored = {"schedule": schedule, "anchor": START, "tick": START + MINUTE, "declared": "0123456789abcdef"}
    data = msgspec.msgpack.encode(stored)
    await world.store.enqueue([NewJob(QUEUE, data, key="report", start_at=START + MINUTE)])
    assert read_record(data).terms is None
    job = await ticked(world)
    assert (payload_of(job), job.rank, extras_of(job).tick) == (PAYLOAD, 2.0, START + MINUTE)
    view = await get(world.store, "report")
    assert view.next_at == START + 2 * MINUTE and view.schedule is not None and view.schedule.payload == PAYLOAD
    await by_declaration(world, billing(world))  # and the next start of its own app completes it
    is_right(world, await ticked(world))


async def test_fields_of_a_later_version_are_passed_over(world: World) -> None:
    await create(world.store, every(60, payload=PAYLOAD), app=billing(world))
    record = (await look(world.store, "report")).record
    assert record is not None
    stored = msgspec.msgpack.decode(write_record(record))
    stored["terms"]["later"] = stored["later"] = 1
    assert read_record(msgspec.msgpack.encode(stored)) == record


# -- a redeploy


@pytest.mark.parametrize(
    ("option", "seen"),
    [
        ({"cost": 9}, lambda job: job.cost == 9),
        ({"keep_for": 60}, lambda job: job.keep_for == 60),
        ({"policy": "strict"}, lambda job: job.rank == 1.0),
        ({"secret": ("card", "pages")}, lambda job: extras_of(job).secret == ("card", "pages")),
        ({"secret": ()}, lambda job: extras_of(job).secret == ()),
    ],
)
async def test_a_handler_that_says_something_else_is_a_changed_declaration(
    world: World, option: dict[str, Any], seen: Callable[[JobInfo], bool]
) -> None:
    await by_declaration(world, billing(world))
    before = await get(world.store, "report")
    await by_declaration(world, billing(world))
    assert await get(world.store, "report") == before
    await by_declaration(world, billing(world, **option))
    assert (await get(world.store, "report")).next_at == before.next_at
    job = await ticked(world)
    assert seen(job)


async def test_a_payload_that_its_codec_writes_otherwise_is_a_changed_declaration(world: World) -> None:
    class More(msgspec.Struct):
        card: str = ""
        pages: int = 0
        picture: bytes = b""

    def app_of(type: Any) -> App:
        app = App("memory://", clock=world.clock)

        @app.every(60, name="report", queue="reports", payload={**PAYLOAD, "picture": "aGk="})
        async def bill(one: type) -> None: ...

        return app

    await store_declared(app_of(Bill), world.store)
    await store_declared(app_of(More), world.store)
    job = await ticked(world)
    assert Codec(More).decode(job.data) == More("4111", 7, b"hi")


async def test_a_worker_that_starts_brings_the_schedules_that_people_made_up_to_date(world: World) -> None:
    await by_create(world, billing(world))
    before = await get(world.store, "report")
    await store_declared(billing(world), world.store)
    assert await get(world.store, "report") == before
    assert (await look(world.store, "report")).record.over is None  # type: ignore[union-attr]
    await store_declared(billing(world, cost=9), world.store)
    assert (await get(world.store, "report")).next_at == before.next_at
    is_right(world, await ticked(world), cost=9)


async def test_a_worker_leaves_alone_what_another_apps_code_declares(world: World) -> None:
    await by_declaration(world, billing(world))
    await put(world.store, every(60, payload=PAYLOAD, priority="HIGH"))  # by hand, from no code
    await store_declared(billing(world, cost=9), world.store)
    is_right(world, await ticked(world))


async def test_a_payload_that_the_new_handler_refuses_stops_no_worker(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await create(world.store, every(60, payload="text"))
    await store_declared(billing(world), world.store)
    assert "the handler of its queue refuses it: InvalidInput: payload: does not fit Bill" in caplog.text
    assert payload_of(await ticked(world)) == "text"


async def test_a_refresh_does_not_bring_back_what_was_deleted_meanwhile(world: World) -> None:
    from accoda.schedules.declare import refresh

    await by_create(world, billing(world))
    store: Any = Meddled(world, peek=[nothing, lambda: delete(world.store, "report")])
    assert await refresh(billing(world, cost=9), store, "report") is False
    assert (await look(world.store, "report")).id is None


# -- changes by those who do not know the queue


async def test_who_does_not_know_the_queue_changes_the_rest_and_no_terms(world: World) -> None:
    await by_create(world, billing(world))
    await pause(world.store, "report")
    await resume(world.store, "report")
    await put(world.store, every(60, payload={"card": "4222", "pages": 1}))
    job = await ticked(world)
    assert (job.cost, job.keep_for, extras_of(job).secret) == (7, 3600.0, ("card",))
    assert payload_of(job) == {"card": "4222", "pages": 1}


async def test_another_queue_has_other_terms_but_the_secrets_stay_secret(world: World) -> None:
    await by_create(world, billing(world))
    await put(world.store, every(60, payload=PAYLOAD, queue="letters"))
    view = await get(world.store, "report")
    assert view.schedule is not None and view.schedule.payload == {"card": "•••", "pages": 7}
    await world.tick(60)
    (job,) = await world.jobs("letters")
    assert (job.rank, job.cost, job.keep_for, extras_of(job).secret) == (2.0, 0, 0.0, ("card",))


async def test_a_payload_in_a_form_of_its_own_is_kept_and_changed_only_by_who_knows_the_form(world: World) -> None:
    app = App("memory://", clock=world.clock)

    @app.handler("reports")
    async def read(one: Sealed) -> None: ...

    await create(world.store, every(60, payload={"text": "abc"}), app=app)
    assert payload_of(await ticked(world)) == "cba"
    await put(world.store, every(30, payload={"text": "abc"}))
    assert payload_of(await ticked(world)) == "cba"
    with pytest.raises(Conflict, match="change it through an app that has a handler of 'reports'"):
        await put(world.store, every(30, payload={"text": "xyz"}))
    await put(world.store, every(30, payload={"text": "xyz"}), app=app)
    assert payload_of(await ticked(world)) == "zyx"


async def test_a_payload_that_the_handler_could_not_read_is_refused(world: World) -> None:
    for call in (create, put):
        with pytest.raises(InvalidInput, match="payload: does not fit Bill: Object missing required field `pages`"):
            await call(world.store, every(60, payload={"card": "4111"}), app=billing(world))
    assert (await look(world.store, "report")).id is None


async def test_a_policy_that_this_version_does_not_know_loses_no_tick(world: World) -> None:
    await by_create(world, billing(world))
    record = (await look(world.store, "report")).record
    assert record is not None and record.terms is not None
    data = write_record(replace(record, terms=replace(record.terms, policy="later"), over=None))
    await world.store.enqueue([NewJob(QUEUE, data, key="report", start_at=START + MINUTE, on_duplicate="replace")])
    await world.tick(60)
    assert await world.jobs() == []
    assert "policy: must be one of strict, aging" in ((await get(world.store, "report")).problem or "")
