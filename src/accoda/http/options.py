"""What may be said of a service when it is made."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class ServiceOptions(Struct, frozen=True, kw_only=True):
    """`policy` is what `accoda.http.security` guards the service by; without one every caller may do everything.

    `system_jobs`: run system jobs, so that schedules tick, webhooks are called and bulk changes run without a worker.
    `max_body` is the largest request in bytes, `max_batch` the most jobs in one, `max_wait` the longest poll in s.
    `patience` is how many seconds a request waits for a store that is away: it is answered with 503 then. The clerk
    has more time.
    `dashboard`: show pages for people at `/`.
    `ready_within` is how many seconds the store has to answer before the service calls itself not ready.
    """

    policy: Any = None
    system_jobs: bool = True
    max_body: int = 16 << 20
    max_batch: int = 10_000
    max_wait: float = 60.0
    patience: float = 2.0
    ready_within: float = 2.0
    dashboard: bool = True
