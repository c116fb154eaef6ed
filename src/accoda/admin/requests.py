"""What is asked for on the wire: a new job."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from accoda.admin import moments
from accoda.envelope import NAME_LENGTH, URL_LENGTH, Event
from accoda.limits import COST, KEY
from accoda.shown.levels import Level

__all__ = ["Level", "Name", "NewJobRequest", "Seconds"]

Name = Annotated[str, Meta(max_length=128, description="1 to 128 letters, digits, '_', '.' or '-'")]
Seconds = Annotated[float, Meta(ge=0, le=1e10, description="seconds")]


class NewJobRequest(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True, gc=False):
    """A job to be stored. `queue` (or `type`, which is the same) is needed; all else may be left out.

    `scheduledAt` (RFC 3339, with an offset) or `delay` (seconds) say when it may start; `maxRetries` n lets it run
    n + 1 times; `webhookUrl` is called when it has ended as `webhookOn` says; `secretFields` names fields of the
    payload that are never shown.
    """

    queue: Name | None = None
    type: Name | None = None
    name: Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH)] | None = None
    payload: Any = None
    priority: Level | None = None
    scheduled_at: Annotated[str, Meta(max_length=64, extra_json_schema=moments.SHAPE)] | None = None
    delay: Seconds | None = None
    key: Annotated[str, Meta(min_length=1, max_length=KEY)] | None = None
    on_duplicate: Literal["keep", "replace"] | None = None
    cost: Annotated[int, Meta(ge=0, le=COST)] | None = None
    keep_for: Seconds | None = None
    max_retries: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    webhook_url: Annotated[str, Meta(min_length=1, max_length=URL_LENGTH)] | None = None
    webhook_on: Annotated[tuple[Event, ...], Meta(min_length=1, max_length=2)] | None = None
    secret_fields: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=200)], ...], Meta(max_length=50)] = ()
