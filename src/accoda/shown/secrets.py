"""What is shown of a job's payload and result, and what is not: fields that its producer or handler calls secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from accoda.envelope import HIDDEN, has_names, hidden, secret_texts, unwrap
from accoda.model import JobInfo
from accoda.names import is_system
from accoda.payload import UnreadablePayload
from accoda.shown.plain import decoded, has_hidden_names, plain, unreadable

if TYPE_CHECKING:
    from accoda.app import App
    from accoda.runtime.handler import Handler


class Shown(Struct, frozen=True):
    """A payload and a result without their secrets, and the secrets themselves, to keep them out of other texts."""

    payload: Any
    result: Any
    secrets: tuple[str, ...] = ()


def seen_of(app: App, info: JobInfo) -> Shown:
    """What people see of a stored job's payload and result."""
    extras, data = unwrap(info.data)
    if is_system(info.queue):
        # In it are other jobs' payloads (a schedule's, a webhook's), of which only their own queue knows the secrets.
        return Shown(HIDDEN if data else None, HIDDEN if info.result else None)
    return show(app.handlers.get(info.queue), extras.secret, data, info.result)


def show(handler: Handler[Any, Any, Any] | None, secret: Sequence[str], payload: bytes, result: bytes | None) -> Shown:
    """What people see of the bytes."""
    own = () if handler is None else getattr(handler.options, "secret", ())
    names = tuple(dict.fromkeys((*secret, *own)))
    codec = None if handler is None else handler.codec
    try:
        value = decoded(payload, codec) if payload else None
    except UnreadablePayload as error:
        by_name = codec is not None and has_hidden_names(codec)
        return Shown(_shown_raw(payload, names, error, by_name), _shown_result(result, names))
    # Without names of fields in it nobody can tell what is secret: an array of a contract whose handler is not known.
    shown = _safe(value, names) if not names or has_names(value) else HIDDEN
    return Shown(shown, _shown_result(result, names), secret_texts(value, names))


def _shown_raw(payload: bytes, names: Sequence[str], error: Exception, by_name: bool) -> Any:
    """Bytes in which nobody can tell what is secret are not shown where anything is."""
    if names:
        return {"$unreadable": "it has secret fields and cannot be read, so it is not shown"}
    if by_name:  # the handler's record does not fit, so its values are shown without names
        try:
            return plain(decoded(payload))
        except UnreadablePayload:
            pass
    return unreadable(payload, error)


def _shown_result(result: bytes | None, names: Sequence[str]) -> Any:
    if result is None:
        return None
    try:
        return _safe(decoded(result), names)
    except UnreadablePayload as error:
        return {"$unreadable": str(error)} if names else unreadable(result, error)


def _safe(value: Any, names: Sequence[str]) -> Any:
    if not names:
        return plain(value)
    # Before, because keys that collide as text become a list of pairs, through which no path goes; and after, because
    # a path names keys as text, and some are text only then.
    return hidden(plain(hidden(value, names)), names)
