"""What is shown of a job's payload and result, and what is not: fields that its producer or handler calls secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from accoda.envelope import HIDDEN, has_names, hidden, unwrap
from accoda.masking import NO_MASK, Mask, mask_of, named_values
from accoda.model import JobInfo
from accoda.names import is_system
from accoda.operations.handlers import handler_of
from accoda.operations.host import Host
from accoda.operations.plain import decoded, has_hidden_names, plain, unreadable
from accoda.payload import Codec, UnreadablePayload
from accoda.runtime.handler import Handler


class Redacted(Struct, frozen=True):
    """A payload and a result without their secrets, and the mask that keeps them out of other texts."""

    payload: Any
    result: Any
    mask: Mask = NO_MASK


def redacted(host: Host, info: JobInfo) -> Redacted:
    """What people see of a stored job's payload and result."""
    metadata, data = unwrap(info.data)
    if is_system(info.queue):
        # In it are other jobs' payloads (a schedule's, a webhook's), whose secrets only their own queue knows.
        return Redacted(HIDDEN if data else None, HIDDEN if info.result else None)
    return redact(handler_of(host, info.queue, metadata.type), metadata.secret, data, info.result)


def reason_of(host: Host, info: JobInfo) -> str:
    """Why a job was last retried or buried, without the secrets of its payload."""
    return redacted(host, info).mask.text(info.reason) if info.reason else ""


def redact(
    handler: Handler[Any, Any, Any] | None, secret: Sequence[str], payload: bytes, result: bytes | None
) -> Redacted:
    """What people see of stored bytes."""
    own = () if handler is None else getattr(handler.options, "secret", ())
    names = tuple(dict.fromkeys((*secret, *own)))
    codec = None if handler is None else handler.codec
    mask = _mask(payload, names, codec)
    try:
        value = decoded(payload, codec) if payload else None
        if payload and names:
            value = named_values(payload, names, codec)
    except UnreadablePayload as error:
        by_name = codec is not None and has_hidden_names(codec)
        return Redacted(_unread(payload, names, error, by_name), mask.value(_result(result, names)), mask)
    # An array of a contract whose handler is unknown has no field names: nothing tells which values are secret.
    shown = safe(value, names) if not names or has_names(value) else HIDDEN
    return Redacted(shown, mask.value(_result(result, names)), mask)


def safe(value: Any, names: Sequence[str]) -> Any:
    """A decoded value as JSON can carry it, with the named fields hidden."""
    if not names:
        return plain(value)
    # Hidden before, because keys that collide as text become a list of pairs, through which no path leads; and after,
    # because a path names keys as text, and some keys are text only then.
    return hidden(plain(hidden(value, names)), names)


def _mask(payload: bytes, names: Sequence[str], codec: Codec[Any] | None) -> Mask:
    try:
        return mask_of(payload, names, codec)
    except UnreadablePayload:  # no msgpack: it has no fields that could be quoted
        return NO_MASK


def _unread(payload: bytes, names: Sequence[str], error: Exception, by_name: bool) -> Any:
    """Bytes that cannot be read are not shown where any field is secret."""
    if names:
        return {"$unreadable": "it has secret fields and cannot be read, so it is not shown"}
    if by_name:  # the handler's record does not fit, so the values are shown without names
        try:
            return plain(decoded(payload))
        except UnreadablePayload:
            pass
    return unreadable(payload, error)


def _result(result: bytes | None, names: Sequence[str]) -> Any:
    if result is None:
        return None
    try:
        return safe(decoded(result), names)
    except UnreadablePayload as error:
        return {"$unreadable": str(error)} if names else unreadable(result, error)
