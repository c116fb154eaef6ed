"""Everything that goes wrong as a problem document (RFC 9457), made here and nowhere else."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType, json
from msgspec.structs import replace

from accoda import errors
from accoda.errors import InvalidInput, StorageError, StorageUnavailable, TooLarge
from accoda.http.prefix import prefix, public_path

log = logging.getLogger("accoda.http")

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER = 5
"""Seconds after which to try again when the store is away."""


class Kind(Struct, frozen=True):
    """A kind of trouble. `type` of its documents leads to its description on the docs page."""

    status: int
    title: str
    description: str


KINDS: dict[str, Kind] = {
    "malformed": Kind(400, "The request cannot be read", "The body is not JSON, or the query is not text."),
    "unauthorized": Kind(401, "A token is needed", "Send `Authorization: Bearer …` with a token that is known."),
    "forbidden": Kind(403, "Not allowed", "The token lacks the scope that this operation needs; `scope` names it."),
    "not-found": Kind(404, "Not found", "Nothing is at this path, or what it names is not stored."),
    "method-not-allowed": Kind(405, "Method not allowed", "The header `Allow` names the methods of this path."),
    "not-acceptable": Kind(406, "Only in HTML", "This path is a page for people; `detail` names the API's path."),
    "too-slow": Kind(408, "The body took too long", "Send it at once, or in smaller parts."),
    "conflict": Kind(409, "Not possible in its current state", "`detail` says what to do first."),
    "in-flight": Kind(409, "The same request is under way", "Its Idempotency-Key is in use; repeat it in a moment."),
    "dead": Kind(409, "The job is dead", "The job failed for good, and no result will come. `reason` says why."),
    "cancelled": Kind(409, "The job was cancelled", "It will not run again, and no result will come."),
    "gone": Kind(410, "No longer stored", "The job ended, and its result was not kept or is no longer kept."),
    "too-large": Kind(413, "Request too large", "The body, or a part of it, is over a limit, which `detail` names."),
    "unsupported-media-type": Kind(415, "The body is not JSON", "Send `Content-Type: application/json`."),
    "wrong-host": Kind(421, "Wrong host", "The Host header names another service."),
    "invalid": Kind(422, "Invalid value", "`field` names it, and `detail` says what is allowed."),
    "key-reused": Kind(422, "The key was used for another request", "The same Idempotency-Key came with another body."),
    "too-many": Kind(429, "Too many requests", "Try again after the seconds in `Retry-After`."),
    "internal": Kind(500, "Something unexpected happened", "It is in the service's log under the id of `instance`."),
    "not-installed": Kind(501, "The service lacks a library", "`detail` says which extra to install where it runs."),
    "busy": Kind(503, "The service is busy", "Try again after the seconds in `Retry-After`."),
    "stopped": Kind(503, "The service is stopping", "The request may have taken effect. Repeat it with its key."),
    "storage": Kind(503, "The store does not answer", "Try again after `Retry-After` seconds; `detail` says more."),
}


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong, for programs (`type`, `status`, `field`) and for people (`title`, `detail`).

    `field` is the name of what was sent, as it was sent: `jobs[3].priority`. `reason` is why a job is dead, `scope`
    what a token lacks, `queues` those that a token is limited to, `instance` the id under which the log tells more.
    """

    type: str
    title: str
    status: int
    detail: str
    field: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    queues: list[str] | UnsetType = UNSET
    instance: str | UnsetType = UNSET


class ProblemError(Exception):
    """Raise it anywhere in the service: it becomes the answer. `more` are further members of the document."""

    def __init__(self, kind: str, detail: str, *, headers: Sequence[tuple[str, str]] = (), **more: Any) -> None:
        super().__init__(detail)
        known = KINDS[kind]
        self.problem = Problem(type=f"/docs#{kind}", title=known.title, status=known.status, detail=detail, **more)
        self.headers = tuple(headers)


def from_error(error: Exception) -> ProblemError:
    """The answer to an error. An unexpected error is logged with an id, and the answer tells no more than the id."""
    match error:
        case ProblemError():
            return error
        case TooLarge():
            return ProblemError("too-large", _clean(str(error)), field=error.field)
        case InvalidInput():
            return ProblemError("invalid", _clean(str(error)), field=error.field)
        case errors.JobNotFound():
            detail = f"job {error.id} is not stored: it ended and was not kept (keepFor), was deleted, or never was"
            return ProblemError("not-found", detail)
        case errors.JobFailed():
            return ProblemError("dead", _clean(str(error)), reason=_clean(error.reason))
        case errors.JobCancelled():
            return ProblemError("cancelled", str(error))
        case errors.MissingDriver():
            return ProblemError("not-installed", _clean(str(error)))
        case StorageError():
            return _storage_away(error)
        case errors.InFlight():
            return ProblemError("in-flight", _clean(str(error)), headers=(("retry-after", "1"),))
        case errors.KeyReused():
            return ProblemError("key-reused", _clean(str(error)), field="Idempotency-Key")
        case errors.NotFound():
            return ProblemError("not-found", _clean(str(error)))
        case errors.Conflict() | errors.VersionConflict():
            return ProblemError("conflict", _clean(str(error)))
    return _unexpected(error)


_AWAY = "the store does not answer, or refuses to write; nothing that was acknowledged is affected"
_DOUBT = (
    "the store was lost before it answered, so it is not known whether this was done; look before you repeat it, or "
    "repeat it with an Idempotency-Key where the operation knows one"
)


def _storage_away(error: StorageError) -> ProblemError:
    """Its own words may name hosts, files and versions: they are for the log."""
    mark = secrets.token_hex(6)
    log.warning("%s: the store is the trouble: %s: %s", mark, type(error).__name__, error)
    again = (("retry-after", str(RETRY_AFTER)),)
    detail = _DOUBT if isinstance(error, StorageUnavailable) and error.unsure else _AWAY
    return ProblemError("storage", detail, headers=again, instance=f"urn:accoda:log:{mark}")


def _unexpected(error: Exception) -> ProblemError:
    mark = secrets.token_hex(6)
    log.error("%s: a request failed: %s: %s", mark, type(error).__name__, error, exc_info=error)
    return ProblemError("internal", f"the service's log has more under {mark}", instance=f"urn:accoda:log:{mark}")


def _clean(text: str) -> str:
    """What JSON can carry: a lone surrogate cannot be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def render(error: ProblemError) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Status, headers and body, ready to be sent."""
    problem = error.problem
    body = _encode(problem if not prefix.get() else replace(problem, type=public_path(problem.type)))
    headers = [
        (b"content-type", PROBLEM_JSON.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *((name.encode("latin-1"), value.encode("latin-1")) for name, value in error.headers),
    ]
    return error.problem.status, headers, body


async def send_problem(send: Any, error: ProblemError) -> None:
    """Answer with a problem, at the level of ASGI: for what stands before the router too."""
    status, headers, body = render(error)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


_encode = json.Encoder().encode
