"""The queues of the shop.

Written by `accoda generate` from queues.yaml; change that, and generate again.
"""

from .handlers import EmailsHandler, Handlers, InvoicesHandler, NewOrdersHandler, dispatcher
from .producers import EmailsQueue, InvoicesQueue, NewOrdersQueue, Queues
from .records import (
    EmailsJob,
    InvoicesJob,
    NewOrdersJob,
    deserialize_emails,
    deserialize_invoices,
    deserialize_new_orders,
    serialize_emails,
    serialize_invoices,
    serialize_new_orders,
)

__all__ = [
    "EmailsHandler",
    "EmailsJob",
    "EmailsQueue",
    "Handlers",
    "InvoicesHandler",
    "InvoicesJob",
    "InvoicesQueue",
    "NewOrdersHandler",
    "NewOrdersJob",
    "NewOrdersQueue",
    "Queues",
    "deserialize_emails",
    "deserialize_invoices",
    "deserialize_new_orders",
    "dispatcher",
    "serialize_emails",
    "serialize_invoices",
    "serialize_new_orders",
]
