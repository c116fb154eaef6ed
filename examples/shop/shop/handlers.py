"""What happens to the jobs of each queue. The types come from the contract: a handler that does not fit is an error."""

from __future__ import annotations

import time

from accoda import HandlerStats
from accoda.contract import HandlerContext, JobStorage

from .queues import EmailsJob, InvoicesJob, NewOrdersJob
from .services import Books, Greylisted, MailServer, NoSuchAddress, Say, Warehouse


class Orders:
    """Takes the items of an order from the shelves, and asks for its invoice and a first email."""

    def __init__(self, warehouse: Warehouse, say: Say) -> None:
        self._warehouse = warehouse
        self._say = say

    async def handle_new_orders(
        self, ctx: HandlerContext, storage: JobStorage[NewOrdersJob], jobs: list[NewOrdersJob]
    ) -> None:
        for order in jobs:
            if not order.items or len(order.items) != len(order.cents):
                storage.bury(order, "an order needs items, and a price for each")
                self._say("new_orders", f"{order.order_id}: buried, nothing was ordered")
                continue
            missing = self._warehouse.take(order.items)
            if missing is not None:
                self._warehouse.order_more(missing)
                storage.retry(order, delay=0.3, reason=f"no {missing} on the shelf")
                self._say("new_orders", f"{order.order_id}: no {missing}, tried again in 0.3 s")
                continue
            # Both are enqueued in the same step in which the order is done: together, or not at all.
            storage.put("invoices", invoice_of(order), after=order)
            hello = letter(order.email, f"Order {order.order_id}", "Thank you!", order.user_id)
            storage.put("emails", hello, after=order)
            storage.done(order)
            again = f" at try {order.attempts + 1}" if order.attempts else ""
            self._say("new_orders", f"{order.order_id}: accepted{again}, {', '.join(order.items)}")


class Invoices:
    """Writes all invoices of a batch at once: the books are locked for as short a time as possible."""

    def __init__(self, books: Books, say: Say) -> None:
        self._books = books
        self._say = say

    async def handle_invoices(
        self, ctx: HandlerContext, storage: JobStorage[InvoicesJob], jobs: list[InvoicesJob]
    ) -> None:
        numbers = self._books.number([invoice.order_id for invoice in jobs])
        self._say("invoices", f"a batch of {len(jobs)}: numbers {numbers[0]} to {numbers[-1]}")
        for invoice, number in zip(jobs, numbers, strict=True):
            tax = round(invoice.total_cents * invoice.vat / (1 + invoice.vat))
            text = f"Total {euros(invoice.total_cents)}, of which tax {euros(tax)}"
            storage.put("emails", letter(invoice.email, f"Invoice {number}", text, invoice.user_id), after=invoice)
        storage.done(*jobs)


class Emails:
    """Sends emails. What a mail server refuses for now is tried again after a pause that doubles, ten times at most;
    what it refuses for good is buried. It counts by itself; the other handlers leave that to Accoda."""

    def __init__(self, server: MailServer, say: Say) -> None:
        self._server = server
        self._say = say

    async def handle_emails(
        self, ctx: HandlerContext, storage: JobStorage[EmailsJob], jobs: list[EmailsJob]
    ) -> HandlerStats:
        began = time.monotonic()
        done: list[EmailsJob] = []
        retried = buried = 0
        last_error = ""
        for email in jobs:
            if ctx.stopping:  # leave quickly: what was not sent is free for another worker at once
                storage.retry(email, delay=0, reason="the worker stops")
                continue
            try:
                await self._server.send(email.to, email.subject, email.body)
            except Greylisted as error:
                last_error = f"greylisted by {error}"
                if email.attempts >= 10:
                    buried += 1
                    storage.bury(email, f"{last_error} at try {email.attempts + 1}")
                    continue
                retried += 1
                storage.retry(email, delay=0.2 * 2**email.attempts, reason=last_error)
                self._say("emails", f"{email.subject} to {email.to}: greylisted, tried again soon")
            except NoSuchAddress:
                buried += 1
                last_error = f"there is no address {email.to!r}"
                storage.bury(email, last_error)
                self._say("emails", f"{email.subject} to {email.to!r}: buried, no such address")
            else:
                done.append(email)
                self._say("emails", f"{email.subject} to {email.to}: sent")
        storage.done(*done)
        return HandlerStats(
            processed=len(done),
            errors=retried + buried,
            retried=retried,
            buried=buried,
            duration=time.monotonic() - began,
            last_error=last_error,
        )


def invoice_of(order: NewOrdersJob) -> InvoicesJob:
    total = sum(order.cents)
    if order.coupon is not None:
        total = total * 9 // 10
    return InvoicesJob(order_id=order.order_id, user_id=order.user_id, email=order.email, total_cents=total)


def letter(to: str, subject: str, text: str, user_id: int) -> EmailsJob:
    return EmailsJob(to=to, subject=subject, body=text.encode(), user_id=user_id)


def euros(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02} EUR"
