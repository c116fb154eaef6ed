"""New jobs: everything is checked first, and errors name the wire's field."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from accoda import App, InvalidInput, ManualClock, TooLarge
from accoda.envelope import Hook, JobMetadata, unwrap
from accoda.operations import jobs
from accoda.operations.new_jobs import NewJobRequest, prepare
from accoda.payload import decode


class Photo(Struct):
    body: bytes
    taken: datetime
    size: int = 1


def request(**fields: Any) -> NewJobRequest:
    return msgspec.convert({"queue": "emails", **fields}, NewJobRequest)


async def test_a_plain_request_is_a_plain_job(app: App) -> None:
    [job] = prepare(app, [request(payload={"to": "anna"})])
    assert (job.queue, decode(job.data), job.rank, job.cost, job.key) == ("emails", {"to": "anna"}, 2.0, 0, None)
    assert job == app.new_job("emails", {"to": "anna"}, {})


async def test_all_that_may_be_said_is_stored(app: App) -> None:
    [made] = await jobs.create(
        app,
        [
            request(
                name="Welcome",
                payload={"to": "anna"},
                priority="HIGH",
                scheduledAt="2030-01-01T01:00:00.5+01:00",
                key="anna",
                onDuplicate="replace",
                cost=3,
                keepFor=60,
                maxRetries=4,
                webhookUrl="https://example.com/hook",
                webhookOn=["dead", "dead"],
                secretFields=["to"],
            )
        ],
    )
    job = await app.find(made.id)
    assert job is not None
    extras, data = unwrap(job.data)
    assert (extras.name, extras.max_attempts, extras.secret) == ("Welcome", 5, ("to",))
    assert extras.hook == Hook("https://example.com/hook", ("dead",))
    assert (job.rank, job.start_time, job.key, job.cost, job.keep_for) == (1.0, 1893456000500, "anna", 3, 60.0)
    assert decode(data) == {"to": "anna"}


async def test_a_type_travels_in_the_envelope_and_a_job_without_one_has_none(app: App) -> None:
    plain, typed = prepare(app, [NewJobRequest(queue="work"), NewJobRequest(queue="work", type="report.generate")])
    assert unwrap(typed.data) == (JobMetadata(type="report.generate"), plain.data)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"queue": "a b"}, "queue"),
        ({"queue": "accoda.webhooks"}, "queue"),
        ({"type": "a\nb"}, "type"),
        ({"scheduledAt": "2030-01-01T00:00:00"}, "scheduledAt"),
        ({"scheduledAt": "soon"}, "scheduledAt"),
        ({"scheduledAt": "2030-01-01T00:00:00Z", "delay": 1}, "delay"),
        ({"onDuplicate": "keep"}, "onDuplicate"),
        ({"key": "a\0b"}, "key"),
        ({"webhookOn": ["done"]}, "webhookOn"),
        ({"name": "a\0b"}, "name"),
        ({"webhookUrl": "ftp://example.com"}, "webhookUrl"),
        ({"payload": "x" * 300_000}, "payload"),
    ],
)
async def test_the_error_names_the_field_as_on_the_wire(app: App, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as alone:
        await jobs.create(app, [request(**fields)])
    assert alone.value.field == field and str(alone.value).startswith(f"{field}: ")
    with pytest.raises(InvalidInput) as among:
        await jobs.create(app, [request(), request(), request(**fields)])
    assert among.value.field == f"jobs[2].{field}"
    assert (await app.storage.stats()).queues == {}, "nothing was stored"


async def test_too_large_a_payload_keeps_its_numbers(app: App) -> None:
    with pytest.raises(TooLarge) as error:
        prepare(app, [request(payload="x" * 300_000)], "outcomes[1].then")
    assert error.value.field == "outcomes[1].then[0].payload" and error.value.size > 300_000


async def test_a_batch_of_one_may_be_named_as_a_batch(app: App) -> None:
    with pytest.raises(InvalidInput) as error:
        await jobs.create(app, [request(queue="a b")], batch=True)
    assert error.value.field == "jobs[0].queue"


async def test_the_wire_refuses_unknown_fields_and_wrong_types() -> None:
    for body in (b'{"que": "x"}', b'{"priority": "URGENT"}', b'{"delay": -1}', b'{"maxRetries": 1.5}', b'{"name": ""}'):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(body, type=NewJobRequest)


async def test_a_known_handler_says_policy_cost_and_how_long_it_is_kept(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)

    @app.handler("emails", policy="aging", cost="pages", keep_for=9)
    async def send(email: dict[str, int]) -> None: ...

    [job] = prepare(app, [request(payload={"pages": 7}, priority="LOW")])
    assert job == app.new_job("emails", {"pages": 7}, {"priority": 3})  # type: ignore[typeddict-item]
    assert (job.cost, job.keep_for, job.rank) == (7, 9.0, clock.now() + 3e6)
    assert prepare(app, [request(payload={"pages": 7}, cost=1)])[0].cost == 1
    with pytest.raises(InvalidInput, match=r"^cost: the payload's field"):
        prepare(app, [request(payload={"pages": -7})])


async def test_a_payload_becomes_what_the_handler_reads(app: App) -> None:
    @app.handler("photos")
    async def store(photo: Photo) -> None: ...

    wire = {"body": "aGk=", "taken": "2030-01-01T00:00:00Z"}
    [job] = prepare(app, [request(queue="photos", payload=wire)])
    assert store.codec.decode(job.data) == Photo(b"hi", datetime(2030, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidInput, match=r"^payload: does not fit Photo: .*size"):
        prepare(app, [request(queue="photos", payload=wire | {"size": "big"})])


async def test_no_jobs_are_no_trouble(app: App) -> None:
    assert await jobs.create(app, []) == []


async def test_a_demand_is_no_queue_to_enqueue_to(app: App) -> None:
    app.demand("deals")
    with pytest.raises(InvalidInput, match="'deals' belongs to a demand"):
        prepare(app, [request(queue="deals")])
