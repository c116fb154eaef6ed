"""What handles the jobs of each queue.

Written by `accoda generate` from queues.yaml; change that, and generate again.
"""

from typing import Protocol

from accoda import App, Batch
from accoda.contract.wire import Struct

from .records import EmailsJob, InvoicesJob, NewOrdersJob


class EmailsHandler(Protocol):
    """Handles the jobs of the queue emails."""

    async def handle_emails(self, batch: Batch[EmailsJob]) -> None:
        """Say `batch.done`, `.retry` or `.bury` of each job; the rest come back when their lease ends."""
        ...


class NewOrdersHandler(Protocol):
    """Handles the jobs of the queue new_orders."""

    async def handle_new_orders(self, batch: Batch[NewOrdersJob]) -> None:
        """Say `batch.done`, `.retry` or `.bury` of each job; the rest come back when their lease ends."""
        ...


class InvoicesHandler(Protocol):
    """Handles the jobs of the queue invoices."""

    async def handle_invoices(self, batch: Batch[InvoicesJob]) -> None:
        """Say `batch.done`, `.retry` or `.bury` of each job; the rest come back when their lease ends."""
        ...


class Handlers(Struct, frozen=True):
    """One handler for each queue."""

    emails: EmailsHandler
    new_orders: NewOrdersHandler
    invoices: InvoicesHandler


def dispatcher(handlers: Handlers, app: App | None = None) -> App:
    """Give each queue its handler, in `app` or in a new one, for `accoda worker module:app`."""
    app = App() if app is None else app

    @app.handler("emails", number=1, max_attempts=5, settle="explicit")
    async def emails(batch: Batch[EmailsJob]) -> None:
        await handlers.emails.handle_emails(batch)

    @app.handler("new_orders", number=2, lease=30.0, policy="aging", settle="explicit")
    async def new_orders(batch: Batch[NewOrdersJob]) -> None:
        await handlers.new_orders.handle_new_orders(batch)

    @app.handler("invoices", number=3, batch=50, settle="explicit")
    async def invoices(batch: Batch[InvoicesJob]) -> None:
        await handlers.invoices.handle_invoices(batch)

    return app
