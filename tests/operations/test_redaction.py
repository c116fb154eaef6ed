"""What is secret is shown nowhere: not in the payload, the result, the reason or the progress."""

from typing import Any

import msgspec
from msgspec import Struct

from accoda import App, Bury, ManualClock
from accoda.model import NewJob
from accoda.operations import jobs
from accoda.operations.failure_groups import groups
from accoda.operations.new_jobs import NewJobRequest
from accoda.operations.views import JobView

CARD = "4111111111111111"


class Order(Struct, array_like=True):
    item: str
    card: str


def text_of(view: Any) -> str:
    return msgspec.json.encode(view).decode()


async def test_fields_that_the_producer_calls_secret_are_hidden(app: App) -> None:
    request = NewJobRequest(
        queue="pay",
        payload={"card": CARD, "who": {"phone": "0171555", "name": "Anna"}, "lines": [{"iban": "DE99999"}]},
        secret_fields=("card", "who.phone", "lines.iban"),
    )
    [job] = await jobs.create(app, [request])
    view = await jobs.get(app, job.id)
    assert view.payload == {"card": "•••", "who": {"phone": "•••", "name": "Anna"}, "lines": [{"iban": "•••"}]}


async def test_fields_that_the_handler_calls_secret_are_hidden_without_the_handler_too(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)

    @app.handler("pay", secret=("card",))
    async def pay(order: dict[str, str]) -> None: ...

    [job] = await jobs.create(app, [NewJobRequest(queue="pay", payload={"card": CARD})])
    assert (await jobs.get(app, job.id)).payload == {"card": "•••"}
    stored = await app.find(job.id)
    assert stored is not None and JobView.of(App("memory://"), stored).payload == {"card": "•••"}


async def test_the_result_hides_them_too(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)

    @app.handler("pay", secret=("card",), keep_for=60)
    async def pay(order: dict[str, str]) -> dict[str, str]:
        return order

    job = await pay.enqueue({"card": CARD, "item": "book"})
    await app.run_until_idle()
    assert (await jobs.get(app, job.id)).result == {"card": "•••", "item": "book"}


async def test_an_error_and_a_progress_that_quote_a_secret_do_not_show_it(app: App) -> None:
    [made] = await jobs.create(
        app, [NewJobRequest(queue="pay", payload={"card": CARD, "pin": "1"}, secret_fields=("card", "pin"))]
    )
    await jobs.set_progress(app, made.id, 0.5, f"charging {CARD}")
    [job] = await app.storage.take("pay", 1)
    await app.storage.settle([Bury(job.lease, f"card {CARD} refused after 1 try")])
    view = await jobs.get(app, made.id)
    assert view.reason == "card ••• refused after 1 try"
    assert CARD not in text_of(view) and CARD not in text_of(await groups(app))


async def test_a_record_stored_as_an_array_is_shown_by_name_with_its_secrets_hidden(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)

    @app.handler("pay", secret=("card",))
    async def pay(order: Order) -> None: ...

    job = await pay.enqueue(Order("book", CARD))
    assert (await jobs.get(app, job.id)).payload == {"item": "book", "card": "•••"}


async def test_what_cannot_be_read_by_name_is_not_shown_where_something_is_secret(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)

    @app.handler("pay", secret=("card",))
    async def pay(order: Order) -> None: ...

    wrong = [NewJob("pay", msgspec.msgpack.encode([7, CARD])), NewJob("pay", b"\xc1" + CARD.encode())]
    for job in await app.storage.enqueue(wrong):
        assert CARD not in text_of(await jobs.get(app, job.id))


async def test_our_own_queues_show_nothing_of_the_payloads_that_they_carry(app: App) -> None:
    data = msgspec.msgpack.encode({"payload": {"card": CARD}})
    [made] = await app.storage.enqueue([NewJob("accoda.schedules", data, key="daily")])
    view = await jobs.get(app, made.id)
    assert view.payload == "•••" and CARD not in text_of(view) and view.key == "daily"


async def test_keys_that_collide_do_not_uncover_a_secret(app: App) -> None:
    data = msgspec.msgpack.encode({1: "a", "1": CARD})
    [made] = await jobs.create(app, [NewJobRequest(queue="q", payload=None, secret_fields=("1",))])
    stored = await app.find(made.id)
    assert stored is not None
    from accoda.envelope import JobMetadata, wrap

    stored = msgspec.structs.replace(stored, data=wrap(data, JobMetadata(secret=("1",))))
    assert CARD not in text_of(JobView.of(app, stored))


async def test_a_record_inside_a_record_hides_its_secrets_though_it_is_stored_without_names(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)

    class Parcel(Struct):
        order: Order
        city: str

    @app.handler("pay", secret=("order.card",), max_attempts=1)
    async def pay(parcel: Parcel) -> None:
        raise ValueError(f"{parcel.order.item}: {parcel.order.card} in {parcel.city}")

    job = await pay.enqueue(Parcel(Order("book", CARD), "Roma"))
    assert (await jobs.get(app, job.id)).payload == {"order": {"item": "book", "card": "•••"}, "city": "Roma"}
    await app.run_until_idle()
    stored = await app.find(job.id)
    assert stored is not None and stored.reason == "failed: ValueError: book: ••• in Roma"


async def test_a_result_that_quotes_a_secret_does_not_show_it(clock: ManualClock) -> None:
    app = App("memory://", clock=clock)

    @app.handler("pay", secret=("card", "pin"), keep_for=60)
    async def pay(order: dict[str, Any]) -> dict[str, Any]:
        return {"said": f"paid with {order['card']}", "pins": [order["pin"], 7], order["card"]: True, "item": "book"}

    job = await pay.enqueue({"card": CARD, "pin": 90210})
    await app.run_until_idle()
    shown = (await jobs.get(app, job.id)).result
    assert shown == {"said": "paid with •••", "pins": ["•••", 7], "•••": True, "item": "book"}
    assert (await app.result(job.id))["said"] == f"paid with {CARD}"
