"""What handles the jobs of each queue.

Written by `accoda generate` from queues.yaml; change that, and generate again.
"""

from typing import Protocol

from accoda import App, Batch, Exponential, HandlerStats
from accoda.contract.handling import HandlerContext, JobStorage
from accoda.contract.handling import opened as _opened
from accoda.contract.wire import Struct

from .records import EmailsJob, InvoicesJob, NewOrdersJob


class EmailsHandler(Protocol):
    """Handles the jobs of the queue emails."""

    async def handle_emails(
        self, ctx: HandlerContext, storage: JobStorage[EmailsJob], jobs: list[EmailsJob]
    ) -> HandlerStats | None:
        """Say `storage.done`, `.retry` or `.bury` of each job; the rest come back when their lease ends.

        What is returned are the numbers of this call; None: they are counted.
        """
        ...


class NewOrdersHandler(Protocol):
    """Handles the jobs of the queue new_orders."""

    async def handle_new_orders(
        self, ctx: HandlerContext, storage: JobStorage[NewOrdersJob], jobs: list[NewOrdersJob]
    ) -> HandlerStats | None:
        """Say `storage.done`, `.retry` or `.bury` of each job; the rest come back when their lease ends.

        What is returned are the numbers of this call; None: they are counted.
        """
        ...


class InvoicesHandler(Protocol):
    """Handles the jobs of the queue invoices."""

    async def handle_invoices(
        self, ctx: HandlerContext, storage: JobStorage[InvoicesJob], jobs: list[InvoicesJob]
    ) -> HandlerStats | None:
        """Say `storage.done`, `.retry` or `.bury` of each job; the rest come back when their lease ends.

        What is returned are the numbers of this call; None: they are counted.
        """
        ...


class Handlers(Struct, frozen=True):
    """One handler for each queue."""

    emails: EmailsHandler
    new_orders: NewOrdersHandler
    invoices: InvoicesHandler


def dispatcher(handlers: Handlers, app: App | None = None) -> App:
    """Give each queue its handler, in `app` or in a new one, for `accoda worker module:app`."""
    app = App() if app is None else app

    @app.handler("emails", number=1, batch=10, timeout=10.0, retry=Exponential(longest=600.0), settle="explicit")
    async def emails(batch: Batch[EmailsJob]) -> HandlerStats | None:
        handle = handlers.emails.handle_emails
        return await handle(*_opened(batch))

    @app.handler("new_orders", number=2, lease=30.0, policy="aging", settle="explicit")
    async def new_orders(batch: Batch[NewOrdersJob]) -> HandlerStats | None:
        handle = handlers.new_orders.handle_new_orders
        return await handle(*_opened(batch))

    @app.handler("invoices", number=3, batch=50, settle="explicit")
    async def invoices(batch: Batch[InvoicesJob]) -> HandlerStats | None:
        handle = handlers.invoices.handle_invoices
        return await handle(*_opened(batch))

    return app
