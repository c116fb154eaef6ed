"""The shop in a test: nothing leaves the process, and the clock is moved by hand."""

import pytest
from shop.app import Services, make_app
from shop.queues import EmailsJob, InvoicesJob, NewOrdersJob, Queues, deserialize_invoices
from shop.services import Greylisted, MailServer

from accoda import App, InvalidInput


@pytest.fixture
def services() -> Services:
    return Services()


@pytest.fixture
def app(services: Services) -> App:
    return make_app(services, "memory://", say=lambda where, what: None)


ORDER = NewOrdersJob(order_id=1, user_id=7, email="anna@home.example", items=["tea", "cup"], cents=[450, 790])


async def test_an_order_gives_an_invoice_and_two_emails(app: App, services: Services) -> None:
    async with app.testing() as trial:
        await Queues(app).new_orders.enqueue_record(ORDER)
        await app.run_until_idle()
        trial.assert_no_failures()
        [invoice] = trial.payloads("invoices")
        assert (invoice.order_id, invoice.total_cents, invoice.vat) == (1, 1240, 0.19)
    assert services.mail.sent == [("anna@home.example", "Order 1"), ("anna@home.example", "Invoice 2001")]
    assert services.warehouse.stock == {"tea": 4, "cup": 4}


async def test_an_order_waits_for_what_is_missing(app: App, services: Services) -> None:
    async with app.testing() as trial:
        await Queues(app).new_orders.enqueue(
            order_id=2, user_id=7, email="anna@home.example", items=["kettle"], cents=[3900]
        )
        await app.run_until_idle()
        assert services.mail.sent == []
        trial.advance(0.3)
        await app.run_until_idle()
        assert [run.ended for run in trial.runs("new_orders")] == ["failed", "done"]
    assert len(services.mail.sent) == 2


async def test_an_order_of_nothing_is_buried(app: App) -> None:
    async with app.testing() as trial:
        await Queues(app).new_orders.enqueue(order_id=3, user_id=7, email="anna@home.example", items=[], cents=[])
        await app.run_until_idle()
        trial.assert_dead("new_orders", "needs items")


async def test_invoices_are_numbered_in_one_step(app: App, services: Services) -> None:
    async with app.testing() as trial:
        records = [InvoicesJob(order_id=n, user_id=7, email="anna@home.example", total_cents=100) for n in range(30)]
        await Queues(app).invoices.enqueue_many(records)
        await app.run_until_idle(["invoices"])
        trial.assert_enqueued("emails", count=30)
    assert sorted(services.books.numbers.values()) == list(range(2001, 2031))


async def test_an_email_is_tried_again_and_one_without_an_address_is_buried(app: App, services: Services) -> None:
    async with app.testing() as trial:
        queues = Queues(app)
        await queues.emails.enqueue(to="ben@slow.example", subject="Hi", body=b"", user_id=8)
        await queues.emails.enqueue(to="nobody", subject="Hi", body=b"", user_id=9)
        await app.run_until_idle()
        trial.advance(1)
        await app.run_until_idle()
        assert [(run.payload.to, run.ended) for run in trial.runs("emails")] == [
            ("ben@slow.example", "failed"),
            ("nobody", "buried"),
            ("ben@slow.example", "done"),
        ]
    assert services.mail.sent == [("ben@slow.example", "Hi")]


class Refusing(MailServer):
    async def send(self, to: str, subject: str, body: bytes) -> None:
        raise Greylisted("slow.example")


async def test_an_email_that_is_refused_again_and_again_is_buried_at_the_eleventh_try() -> None:
    app = make_app(Services(mail=Refusing()), "memory://", say=lambda where, what: None)
    async with app.testing() as trial:
        await Queues(app).emails.enqueue(to="ben@slow.example", subject="Hi", body=b"", user_id=8)
        for _ in range(11):
            await app.run_until_idle()
            trial.advance(1000)
        trial.assert_dead("emails", "greylisted by slow.example at try 11")


def test_an_invoice_that_was_stored_before_there_was_vat_is_read() -> None:
    invoice = deserialize_invoices(b"\x94\x01\x07\xa1a\x64")
    assert invoice == InvoicesJob(order_id=1, user_id=7, email="a", total_cents=100, vat=0.19, paid=False)


async def test_what_does_not_fit_is_refused_before_it_is_stored(app: App) -> None:
    with pytest.raises(InvalidInput, match="field 'body'"):
        await app.enqueue("emails", EmailsJob(to="a@b", subject="", body="text", user_id=1))  # type: ignore[arg-type]
