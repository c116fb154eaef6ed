"""Webhooks: when a job is done or dead, its webhook is called. A call is itself a job, so that none is forgotten.

    records  call  body     from the facts of a job that ends to the stored call, without secrets: pure, no extra
    urls  address  guard    who may be called
    keys                    who signs
    connect  sender         one try, by aiohttp (the extra `accoda[webhooks]`)
    decide                  what becomes of it: pure
    shift  caller           many calls at once: the duty that a clerk runs
    log  ping               what was sent, and what came back; a message to try a receiver with

Every worker imports this package: a name is loaded when it is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accoda.webhooks.call import call_job
    from accoda.webhooks.caller import Caller, CallerOptions
    from accoda.webhooks.guard import Policy
    from accoda.webhooks.log import Delivery, deliveries, redeliver
    from accoda.webhooks.records import QUEUE, Event, Facts
    from accoda.webhooks.shift import Room
    from accoda.webhooks.urls import check_url

__all__ = [
    "QUEUE",
    "Caller",
    "CallerOptions",
    "Delivery",
    "Event",
    "Facts",
    "Policy",
    "Room",
    "call_job",
    "check_url",
    "deliveries",
    "redeliver",
]

_HOMES = {
    "call": ("call_job",),
    "caller": ("Caller", "CallerOptions"),
    "guard": ("Policy",),
    "log": ("Delivery", "deliveries", "redeliver"),
    "records": ("QUEUE", "Event", "Facts"),
    "shift": ("Room",),
    "urls": ("check_url",),
}
_HOME = {name: f"accoda.webhooks.{module}" for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(_HOME[name]), name)
    globals()[name] = found
    return found
