"""What happens to the jobs of each queue. The types come from the contract: a handler that does not fit is an error."""

from __future__ import annotations

from accoda import Batch

from .queues import EmailsJob, InvoicesJob, NewOrdersJob
from .services import Books, Greylisted, MailServer, NoSuchAddress, Say, Warehouse


class Orders:
    """Takes the items of an order from the shelves, and asks for its invoice and a first email."""

    def __init__(self, warehouse: Warehouse, say: Say) -> None:
        self._warehouse = warehouse
        self._say = say

    async def handle_new_orders(self, batch: Batch[NewOrdersJob]) -> None:
        for job in batch:
            order = job.payload
            if not order.items or len(order.items) != len(order.cents):
                batch.bury(job, "an order needs items, and a price for each")
                self._say("new_orders", f"{order.order_id}: buried, nothing was ordered")
                continue
            missing = self._warehouse.take(order.items)
            if missing is not None:
                self._warehouse.order_more(missing)
                batch.retry(job, delay=0.3, reason=f"no {missing} on the shelf")
                self._say("new_orders", f"{order.order_id}: no {missing}, tried again in 0.3 s")
                continue
            # Both are enqueued in the same step in which the order is done: together, or not at all.
            job.enqueue("invoices", invoice_of(order))
            job.enqueue("emails", letter(order.email, f"Order {order.order_id}", "Thank you!", order.user_id))
            batch.done(job)
            again = f" at try {job.attempts + 1}" if job.attempts else ""
            self._say("new_orders", f"{order.order_id}: accepted{again}, {', '.join(order.items)}")


class Invoices:
    """Writes all invoices of a batch at once: the books are locked for as short a time as possible."""

    def __init__(self, books: Books, say: Say) -> None:
        self._books = books
        self._say = say

    async def handle_invoices(self, batch: Batch[InvoicesJob]) -> None:
        numbers = self._books.number([job.payload.order_id for job in batch])
        self._say("invoices", f"a batch of {len(batch)}: numbers {numbers[0]} to {numbers[-1]}")
        for job, number in zip(batch, numbers, strict=True):
            invoice = job.payload
            tax = round(invoice.total_cents * invoice.vat / (1 + invoice.vat))
            text = f"Total {euros(invoice.total_cents)}, of which tax {euros(tax)}"
            job.enqueue("emails", letter(invoice.email, f"Invoice {number}", text, invoice.user_id))
            batch.done(job)


class Emails:
    """Sends emails; what a mail server refuses for now is tried again, what it refuses for good is buried."""

    def __init__(self, server: MailServer, say: Say) -> None:
        self._server = server
        self._say = say

    async def handle_emails(self, batch: Batch[EmailsJob]) -> None:
        for job in batch:
            email = job.payload
            try:
                await self._server.send(email.to, email.subject, email.body)
            except Greylisted as error:
                batch.retry(job, delay=0.2 * 2**job.attempts, reason=f"greylisted by {error}")
                self._say("emails", f"{email.subject} to {email.to}: greylisted, tried again soon")
            except NoSuchAddress:
                batch.bury(job, f"there is no address {email.to!r}")
                self._say("emails", f"{email.subject} to {email.to!r}: buried, no such address")
            else:
                batch.done(job)
                self._say("emails", f"{email.subject} to {email.to}: sent")


def invoice_of(order: NewOrdersJob) -> InvoicesJob:
    total = sum(order.cents)
    if order.coupon is not None:
        total = total * 9 // 10
    return InvoicesJob(order_id=order.order_id, user_id=order.user_id, email=order.email, total_cents=total)


def letter(to: str, subject: str, text: str, user_id: int) -> EmailsJob:
    return EmailsJob(to=to, subject=subject, body=text.encode(), user_id=user_id)


def euros(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02} EUR"
