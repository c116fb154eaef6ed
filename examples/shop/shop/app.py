"""The app: for `python -m shop`, for `accoda worker shop.app:app`, and for the tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from accoda import App

from .handlers import Emails, Invoices, Orders
from .queues import Handlers, dispatcher
from .services import Books, MailServer, Say, Warehouse


@dataclass
class Services:
    """All that the handlers work with."""

    mail: MailServer = field(default_factory=MailServer)
    warehouse: Warehouse = field(default_factory=lambda: Warehouse({"tea": 5, "cup": 5}))
    books: Books = field(default_factory=Books)


def say(where: str, what: str) -> None:
    print(f"  {where:<11} {what}")


def make_app(services: Services, url: str | None = None, say: Say = say) -> App:
    """An app with a handler for every queue of the contract. `url` None: ACCODA_URL, or a file of its own."""
    handlers = Handlers(
        emails=Emails(services.mail, say),
        new_orders=Orders(services.warehouse, say),
        invoices=Invoices(services.books, say),
    )
    return dispatcher(handlers, App(url))


app = make_app(Services())
