"""What this process says of a queue and of the types of its jobs. The only place that looks into `host.handlers`."""

from __future__ import annotations

from typing import Any

from accoda.enqueue import QueueSpec
from accoda.envelope import unwrap
from accoda.handler_options import Options
from accoda.model import JobInfo
from accoda.operations.host import Host
from accoda.runtime.handler import Handler


def handler_of(host: Host, queue: str, type: str | None = None) -> Handler[Any, Any, Any] | None:
    """The handler of the jobs of this type in a queue; None: this process has none."""
    handlers = host.handlers.get(queue)
    return None if handlers is None else handlers.find(type)


def handler_of_job(host: Host, job: JobInfo) -> Handler[Any, Any, Any] | None:
    """The handler of a stored job."""
    return handler_of(host, job.queue, unwrap(job.data)[0].type)


def has_hooks(host: Host, queue: str) -> bool:
    """Whether its jobs mean something only to Accoda itself: it belongs to a demand."""
    handlers = host.handlers.get(queue)
    return handlers is not None and any(each.hooks is not None for each in handlers.by_type.values())


def options_of(host: Host, queue: str) -> Options | None:
    """What holds for the whole queue, of whatever type its jobs are; None: this process has no handler of it."""
    handlers = host.handlers.get(queue)
    return None if handlers is None else handlers.options


def spec_of(host: Host, queue: str, type: str | None) -> QueueSpec:
    """How jobs of this type are made."""
    return host.queue_spec(queue, type)
