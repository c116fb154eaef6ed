"""What an app knows of a queue is stored with the schedule, so that the tick is the same wherever it is done."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from schedule_env import MINUTE, START, Env, WithSteps, every, extras_of, nothing, payload_of

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
    """A payload that only its codec can write."""

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


def billing(env: Env, **options: Any) -> App:
    """Another app on the same store, with a handler that says a lot of its queue."""
    app = App("memory://", clock=env.clock)
    app.storage = env.store
    given: Any = {"policy": "aging", "cost": "pages", "keep_for": 3600, "secret": ("card",), **options}

    @app.handler("reports", **given)
    async def bill(one: Bill) -> None: ...

    return app


PAYLOAD = {"card": "4111", "pages": 7}


async def ticked(env: Env) -> JobInfo:
    """The job of the next tick, which the env's own app does: it has no handler at all."""
    assert env.app.handlers == {}
    await env.tick(60)
    return (await env.jobs())[-1]


def is_right(env: Env, job: JobInfo, cost: int = 7) -> None:
    assert job.rank == aging(Priority.HIGH, env.clock.now())
    assert (job.cost, job.keep_for, extras_of(job).secret) == (cost, 3600.0, ("card",))
    assert Codec(Bill).decode(job.data) == Bill("4111", 7)


async def by_declaration(env: Env, app: App) -> None:
    app.every(60, name="report", payload=Bill("4111", 7), priority=Priority.HIGH)(app.handlers["reports"].by_type[None])
    await store_declared(app, env.store)


async def by_create(env: Env, app: App) -> None:
    await create(env.store, every(60, payload=PAYLOAD, priority="HIGH"), app=app)


async def by_put(env: Env, app: App) -> None:
    await create(env.store, every(60, payload="old"))
    await put(env.store, every(60, payload=PAYLOAD, priority="HIGH"), app=app)


async def by_file(env: Env, app: App) -> None:
    await apply(env.store, [every(60, payload=PAYLOAD, priority="HIGH", source="file")], app=app)


async def by_a_worker_that_starts_later(env: Env, app: App) -> None:
    await create(env.store, every(60, payload=PAYLOAD, priority="HIGH"))
    await store_declared(app, env.store)


@pytest.mark.parametrize("way", [by_declaration, by_create, by_put, by_file, by_a_worker_that_starts_later])
async def test_a_tick_is_right_in_a_process_without_the_handler(env: Env, way: Callable[..., Any]) -> None:
    await way(env, billing(env))
    is_right(env, await ticked(env))
    is_right(env, await ticked(env))  # the record that follows a tick has it too
    done = await trigger(env.store, env.app.new_job, "report")
    is_right(env, next(job for job in await env.jobs() if job.id == done.id))


async def test_the_schedule_wins_over_its_handler(env: Env) -> None:
    await create(env.store, every(60, payload=PAYLOAD, cost=2, keep_for=5), app=billing(env))
    job = await ticked(env)
    assert (job.cost, job.keep_for) == (2, 5.0)


async def test_without_a_stored_spec_the_ticking_app_decides(env: Env) -> None:
    await create(env.store, every(60, payload=PAYLOAD))
    job = await ticked(env)
    assert (job.rank, job.cost, job.keep_for, extras_of(job).secret) == (2.0, 0, 0.0, ())
    env.clock.advance(60)
    await Scheduler(billing(env).new_job).run_once(env.store)
    (_, job) = await env.jobs()
    assert job.rank == aging(Priority.NORMAL, env.clock.now()) and extras_of(job).secret == ("card",)


async def test_a_record_without_a_spec_ticks(env: Env) -> None:
    schedule = {"name": "report", "queue": "reports", "every": 60.0, "payload": PAYLOAD, "source": "code"}
    stored = {"schedule": schedule, "anchor": START, "tick": START + MINUTE, "declared": "0123456789abcdef"}
    data = msgspec.msgpack.encode(stored)
    await env.store.enqueue([NewJob(QUEUE, data, key="report", start_at=START + MINUTE)])
    assert read_record(data).spec is None
    job = await ticked(env)
    assert (payload_of(job), job.rank, extras_of(job).tick) == (PAYLOAD, 2.0, START + MINUTE)
    view = await get(env.store, "report")
    assert view.next_at == START + 2 * MINUTE and view.schedule is not None and view.schedule.payload == PAYLOAD
    await by_declaration(env, billing(env))  # and the next start of its own app completes it
    is_right(env, await ticked(env))


async def test_fields_of_a_later_version_are_ignored(env: Env) -> None:
    await create(env.store, every(60, payload=PAYLOAD), app=billing(env))
    record = (await look(env.store, "report")).record
    assert record is not None
    stored = msgspec.msgpack.decode(write_record(record))
    stored["spec"]["later"] = stored["later"] = 1
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
async def test_a_changed_handler_is_a_changed_declaration(
    env: Env, option: dict[str, Any], seen: Callable[[JobInfo], bool]
) -> None:
    await by_declaration(env, billing(env))
    before = await get(env.store, "report")
    await by_declaration(env, billing(env))
    assert await get(env.store, "report") == before
    await by_declaration(env, billing(env, **option))
    assert (await get(env.store, "report")).next_at == before.next_at
    job = await ticked(env)
    assert seen(job)


async def test_a_payload_with_another_encoding_is_a_changed_declaration(env: Env) -> None:
    class More(msgspec.Struct):
        card: str = ""
        pages: int = 0
        picture: bytes = b""

    def app_of(type: Any) -> App:
        app = App("memory://", clock=env.clock)

        @app.every(60, name="report", queue="reports", payload={**PAYLOAD, "picture": "aGk="})
        async def bill(one: type) -> None: ...

        return app

    await store_declared(app_of(Bill), env.store)
    await store_declared(app_of(More), env.store)
    job = await ticked(env)
    assert Codec(More).decode(job.data) == More("4111", 7, b"hi")


async def test_a_starting_worker_updates_the_schedules_that_people_made(env: Env) -> None:
    await by_create(env, billing(env))
    before = await get(env.store, "report")
    await store_declared(billing(env), env.store)
    assert await get(env.store, "report") == before
    assert (await look(env.store, "report")).record.over is None  # type: ignore[union-attr]
    await store_declared(billing(env, cost=9), env.store)
    assert (await get(env.store, "report")).next_at == before.next_at
    is_right(env, await ticked(env), cost=9)


async def test_a_worker_does_not_touch_what_another_app_declares(env: Env) -> None:
    await by_declaration(env, billing(env))
    await put(env.store, every(60, payload=PAYLOAD, priority="HIGH"))  # by hand, from no code
    await store_declared(billing(env, cost=9), env.store)
    is_right(env, await ticked(env))


async def test_a_payload_that_the_new_handler_refuses_does_not_stop_a_worker(
    env: Env, caplog: pytest.LogCaptureFixture
) -> None:
    await create(env.store, every(60, payload="text"))
    await store_declared(billing(env), env.store)
    assert "the handler of its queue refuses it: InvalidInput: payload: does not fit Bill" in caplog.text
    assert payload_of(await ticked(env)) == "text"


async def test_a_refresh_does_not_recreate_a_deleted_schedule(env: Env) -> None:
    from accoda.schedules.declare import refresh

    await by_create(env, billing(env))
    store: Any = WithSteps(env, look=[nothing, lambda: delete(env.store, "report")])
    assert await refresh(billing(env, cost=9), store, "report") is False
    assert (await look(env.store, "report")).id is None


# -- changes by an app that does not know the queue


async def test_an_app_that_does_not_know_the_queue_leaves_the_spec(env: Env) -> None:
    await by_create(env, billing(env))
    await pause(env.store, "report")
    await resume(env.store, "report")
    await put(env.store, every(60, payload={"card": "4222", "pages": 1}))
    job = await ticked(env)
    assert (job.cost, job.keep_for, extras_of(job).secret) == (7, 3600.0, ("card",))
    assert payload_of(job) == {"card": "4222", "pages": 1}


async def test_another_queue_has_another_spec_but_the_secrets_stay_secret(env: Env) -> None:
    await by_create(env, billing(env))
    await put(env.store, every(60, payload=PAYLOAD, queue="letters"))
    view = await get(env.store, "report")
    assert view.schedule is not None and view.schedule.payload == {"card": "•••", "pages": 7}
    await env.tick(60)
    (job,) = await env.jobs("letters")
    assert (job.rank, job.cost, job.keep_for, extras_of(job).secret) == (2.0, 0, 0.0, ("card",))


async def test_a_payload_in_a_format_of_its_own_is_changed_only_by_an_app_that_knows_it(env: Env) -> None:
    app = App("memory://", clock=env.clock)

    @app.handler("reports")
    async def read(one: Sealed) -> None: ...

    await create(env.store, every(60, payload={"text": "abc"}), app=app)
    assert payload_of(await ticked(env)) == "cba"
    await put(env.store, every(30, payload={"text": "abc"}))
    assert payload_of(await ticked(env)) == "cba"
    with pytest.raises(Conflict, match="change it through an app that has a handler of 'reports'"):
        await put(env.store, every(30, payload={"text": "xyz"}))
    await put(env.store, every(30, payload={"text": "xyz"}), app=app)
    assert payload_of(await ticked(env)) == "zyx"


async def test_a_payload_that_the_handler_cannot_read_is_refused(env: Env) -> None:
    for call in (create, put):
        with pytest.raises(InvalidInput, match="payload: does not fit Bill: pages is missing"):
            await call(env.store, every(60, payload={"card": "4111"}), app=billing(env))
    assert (await look(env.store, "report")).id is None


async def test_a_policy_that_this_version_does_not_know_loses_no_tick(env: Env) -> None:
    await by_create(env, billing(env))
    record = (await look(env.store, "report")).record
    assert record is not None and record.spec is not None
    data = write_record(replace(record, spec=replace(record.spec, policy="later"), over=None))
    await env.store.enqueue([NewJob(QUEUE, data, key="report", start_at=START + MINUTE, on_duplicate="replace")])
    await env.tick(60)
    assert await env.jobs() == []
    assert "policy: must be one of strict, aging" in ((await get(env.store, "report")).problem or "")
