"""Which jobs match: by key, error, field and name; by bounded work; and never by a secret."""

from typing import Any

import msgspec
import pytest

from accoda import App, Bury
from accoda.fingerprint import fingerprint
from accoda.model import ENDED, NewJob
from accoda.operations import jobs
from accoda.operations.job_filter import JobFilter
from accoda.operations.new_jobs import NewJobRequest
from accoda.operations.search import ALIVE
from accoda.storage.protocol import Store


async def create(app: App, payload: Any = None, **more: Any) -> int:
    [made] = await jobs.create(app, [NewJobRequest(queue=more.pop("queue", "a"), payload=payload, **more)])
    return made.id


async def matching(app: App, **where: Any) -> list[int]:
    return [job.id for job in (await jobs.page(app, JobFilter(**where))).items]


async def test_a_field_is_compared_as_people_write_it(app: App) -> None:
    id = await create(
        app,
        {
            "customer": {"id": 42, "name": "Anna = Maria", "vip": True, "born": None},
            "lines": [{"sku": "A-1", "price": 2.5}, {"sku": "B-2", "tags": ["red", "blue"]}],
        },
    )
    await create(app, {"customer": {"id": 421}})
    await create(app, "customer.id=42")
    for field in (
        "customer.id=42",
        " customer.id = 42 ",
        "customer.name=Anna = Maria",
        "customer.vip=true",
        "customer.born=null",
        "lines.sku=B-2",
        "lines.price=2.5",
        "lines.tags=blue",
    ):
        assert await matching(app, field=field) == [id], field
    for field in ("customer.id=4", "customer=42", "nobody=42", "customer.id.x=42", "lines.sku=C", "customer.id="):
        assert await matching(app, field=field) == [], field


async def test_fields_of_records_without_names_are_known_from_the_handler(app: App) -> None:
    class Email(msgspec.Struct, array_like=True):
        to: str
        user: int

    @app.handler("emails")
    async def send(email: Email) -> None: ...

    made = await send.enqueue(Email("anna@example.com", 7))
    await send.enqueue(Email("ben@example.com", 8))
    assert await matching(app, field="to=anna@example.com") == [made.id] == await matching(app, field="user=7")


async def test_secrets_never_match(app: App) -> None:
    @app.handler("cards", secret=("pin",))
    async def charge(payload: dict[str, Any]) -> None: ...

    secret = {"card": "4111 1111", "pin": "98765", "to": "anna"}
    first = await create(app, secret, secret_fields=("card",))
    second = (await charge.enqueue(secret)).id
    assert await matching(app, field="to=anna") == [first, second]
    assert await matching(app, field="card=4111 1111") == [second]  # there only the pin is secret
    assert await matching(app, field="pin=98765") == [first]
    assert await matching(app, field="card=•••") == [] == await matching(app, field="pin=•••")
    store = app.storage
    [job] = await store.take("cards", 1)
    await store.settle([Bury(job.lease, "card 4111 1111 and pin 98765 refused")])  # by a worker that hides nothing
    assert await matching(app, error="98765") == [] and await matching(app, error="pin ••• refused") == [second]
    assert await matching(app, error="REFUSED") == [second]


async def test_an_error_is_a_fingerprint_or_a_part_of_its_text(app: App) -> None:
    store = app.storage
    await store.enqueue([NewJob("a") for _ in range(3)])
    taken = await store.take("a", 3)
    reasons = ["KeyError: 'x 1'", "KeyError: 'x 2'", "TimeoutError: no answer"]
    await store.settle([Bury(job.lease, reason) for job, reason in zip(taken, reasons, strict=True)])
    ids = [job.id for job in taken]
    assert sorted(await matching(app, error=fingerprint(reasons[0]))) == ids[:2]
    assert sorted(await matching(app, error="keyerror")) == ids[:2] and await matching(app, error="x 2") == ids[1:2]
    assert await matching(app, error="deadbeef0123") == []


async def test_a_name_is_found_by_a_part_of_it(app: App) -> None:
    id = await create(app, name="Welcome, Anna")
    await create(app, name="Goodbye")
    await create(app)
    assert await matching(app, name="welcome") == [id] and await matching(app, name="anna", state="dead") == []


async def test_all_of_a_filter_must_match(app: App) -> None:
    id = await create(app, {"n": 1}, priority="HIGH", key="k")
    await create(app, {"n": 1}, priority="LOW")
    await create(app, {"n": 1}, priority="HIGH", queue="b")
    assert await matching(app, queue="a", priority="HIGH", field="n=1", key="k", state="ready") == [id]
    assert await matching(app, queue="a", priority="LOW", key="k") == []


class Counting:
    """Counts calls of a store."""

    def __init__(self, store: Store) -> None:
        self.browsed = self.looked = 0
        self._browse, self._look = store.browse, store.look
        store.browse, store.look = self.browse, self.look  # type: ignore[method-assign]

    async def browse(self, *args: Any, **more: Any) -> Any:
        self.browsed += 1
        return await self._browse(*args, **more)

    async def look(self, *args: Any, **more: Any) -> Any:
        self.looked += 1
        return await self._look(*args, **more)


@pytest.mark.parametrize("state", [None, "ready"])
async def test_the_holder_of_a_key_is_found_at_once_among_many(app: App, state: Any) -> None:
    store = await app.connections.get()
    await store.enqueue([NewJob("a", rank=float(number % 3)) for number in range(20_000)])
    id = await create(app, key="order-1001")
    await store.enqueue([NewJob("a", key="other"), NewJob("b", key="order-1001", delay=60)])
    calls = Counting(store)
    assert await matching(app, queue="a", key="order-1001", state=state) == [id]
    assert calls.browsed <= len(ENDED) and calls.looked <= len(ALIVE)


async def test_ended_jobs_are_found_by_their_key_too(app: App) -> None:
    store = app.storage
    for _ in range(2):
        await store.enqueue([NewJob("a", key="k")])
        await store.settle([Bury(job.lease, "no") for job in await store.take("a", 1)])
    await store.enqueue([NewJob("a", key="k")])
    assert len(await matching(app, key="k")) == 3 and len(await matching(app, queue="a", key="k", state="dead")) == 2


async def test_pages_of_a_key_lead_through_all_of_them(app: App) -> None:
    await app.storage.enqueue([NewJob(f"q{number}", key="k") for number in range(5)])
    found, cursor = [], None
    while True:
        page = await jobs.page(app, JobFilter(key="k"), limit=2, cursor=cursor)
        found += [job.queue for job in page.items]
        if (cursor := page.next) is None:
            break
    assert found == [f"q{number}" for number in range(5)]
