"""Typed ways to enqueue to each queue.

Written by `accoda generate` from queues.yaml; change that, and generate again.
"""

from accoda import App, Enqueued, EnqueueOptions
from accoda.contract.producer import Producer
from accoda.contract.wire import Int64

from .records import EmailsJob, InvoicesJob, NewOrdersJob, codec_of_emails, codec_of_invoices, codec_of_new_orders


class EmailsQueue(Producer[EmailsJob]):
    """Enqueues to emails."""

    def __init__(self, app: App) -> None:
        super().__init__(app, "emails", codec_of_emails)

    async def enqueue(
        self,
        _options: EnqueueOptions | None = None,
        /,
        *,
        to: str,
        subject: str,
        body: bytes,
        user_id: Int64,
    ) -> Enqueued:
        """Enqueue one job; the first argument may say `priority`, `delay`, `key` and the like."""
        return await self.enqueue_record(
            EmailsJob(
                to=to,
                subject=subject,
                body=body,
                user_id=user_id,
            ),
            _options,
        )


class NewOrdersQueue(Producer[NewOrdersJob]):
    """Enqueues to new_orders."""

    def __init__(self, app: App) -> None:
        super().__init__(app, "new_orders", codec_of_new_orders, policy="aging")

    async def enqueue(
        self,
        _options: EnqueueOptions | None = None,
        /,
        *,
        order_id: Int64,
        user_id: Int64,
        email: str,
        items: list[str],
        cents: list[Int64],
        coupon: str | None = None,
    ) -> Enqueued:
        """Enqueue one job; the first argument may say `priority`, `delay`, `key` and the like."""
        return await self.enqueue_record(
            NewOrdersJob(
                order_id=order_id,
                user_id=user_id,
                email=email,
                items=items,
                cents=cents,
                coupon=coupon,
            ),
            _options,
        )


class InvoicesQueue(Producer[InvoicesJob]):
    """Enqueues to invoices."""

    def __init__(self, app: App) -> None:
        super().__init__(app, "invoices", codec_of_invoices)

    async def enqueue(
        self,
        _options: EnqueueOptions | None = None,
        /,
        *,
        order_id: Int64,
        user_id: Int64,
        email: str,
        total_cents: Int64,
        vat: float = 0.19,
        paid: bool = False,
    ) -> Enqueued:
        """Enqueue one job; the first argument may say `priority`, `delay`, `key` and the like."""
        return await self.enqueue_record(
            InvoicesJob(
                order_id=order_id,
                user_id=user_id,
                email=email,
                total_cents=total_cents,
                vat=vat,
                paid=paid,
            ),
            _options,
        )


class Queues:
    """All queues: `await queues.emails.enqueue(…)`."""

    def __init__(self, app: App) -> None:
        self.emails = EmailsQueue(app)
        self.new_orders = NewOrdersQueue(app)
        self.invoices = InvoicesQueue(app)
