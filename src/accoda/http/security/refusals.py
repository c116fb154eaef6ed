"""What the service says to a request that it does not serve. Pure.

Every refusal is made here, so that the words, the kind and the headers of each stand side by side. None of them repeats
what a client sent in a secret place: no token, no Authorization header.
"""

from __future__ import annotations

from collections.abc import Collection
from math import ceil

from accoda.http.problems import ProblemError

CHALLENGE = 'Bearer realm="accoda"'


def bad_path(why: str) -> ProblemError:
    return ProblemError("malformed", f"path: {why}")


def bad_host(why: str) -> ProblemError:
    return ProblemError("malformed", f"Host: {why}")


def foreign_host(name: str) -> ProblemError:
    advice = f"if that is meant, start the service with --allow-host {name[:100]}"
    return ProblemError("wrong-host", f"the Host header says {name[:100]!r}; {advice}")


def foreign_origin(origin: str) -> ProblemError:
    advice = "to let its pages in, start the service with --allow-origin"
    return ProblemError("forbidden", f"the request comes from a page of another site, {origin[:100]!r}; {advice}")


def foreign_form() -> ProblemError:
    detail = "this form was not sent from a page of this service; open the page and try again"
    return ProblemError("forbidden", detail)


def read_only() -> ProblemError:
    return ProblemError("forbidden", "this service changes nothing: it was started with --read-only")


def unknown_method(method: str) -> ProblemError:
    known = (("allow", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),)
    return ProblemError("method-not-allowed", f"no operation has the method {method[:20]}", headers=known)


def not_json(found: str) -> ProblemError:
    sent = f"not {found[:80]!r}" if found else "and this one has none"
    return ProblemError(
        "unsupported-media-type",
        f"a body needs the header Content-Type: application/json, {sent}; with curl: --json, or -H",
    )


def encoded_body(coding: str) -> ProblemError:
    return ProblemError(
        "unsupported-media-type",
        f"send the body as it is, without Content-Encoding, not as {coding[:40]!r}",
        headers=(("accept-encoding", "identity"),),
    )


def bad_length() -> ProblemError:
    return ProblemError("malformed", "Content-Length: must be a number of bytes, once")


def too_large(limit: int) -> ProblemError:
    return ProblemError(
        "too-large",
        f"the body may have at most {limit:,} bytes; send fewer jobs in a call, or references to large data",
    )


def too_slow(seconds: float) -> ProblemError:
    return ProblemError("too-slow", f"the body must be complete within {seconds:g} s")


def busy() -> ProblemError:
    return ProblemError(
        "busy", "the service holds as many large bodies as it may; try again", headers=(("retry-after", "1"),)
    )


def no_token() -> ProblemError:
    return ProblemError(
        "unauthorized",
        "send the header Authorization: Bearer acc_…; `accoda tokens create` makes a token",
        headers=(("www-authenticate", CHALLENGE),),
    )


def bad_token() -> ProblemError:
    """One answer for all that can be wrong with a token: a guess learns nothing from it."""
    return ProblemError(
        "unauthorized",
        "the token is malformed, unknown, expired or revoked; `accoda tokens` lists those that are valid",
        headers=(("www-authenticate", CHALLENGE + ', error="invalid_token"'),),
    )


def missing_scope(scope: str) -> ProblemError:
    return ProblemError(
        "forbidden",
        f"this operation needs the scope {scope!r}, which the token does not have",
        headers=(("www-authenticate", f'{CHALLENGE}, error="insufficient_scope", scope="{scope}"'),),
        scope=scope,
    )


def other_queue(queues: Collection[str], queue: str | None) -> ProblemError:
    names = sorted(queues)
    about = "all queues; name one of its own" if queue is None else f"the queue {queue[:128]!r}"
    detail = f"the token is limited to the queues {', '.join(names)}, and this is about {about}"
    return ProblemError("forbidden", detail, queues=names)


def pages_show_all(queues: Collection[str]) -> ProblemError:
    names = sorted(queues)
    detail = (
        f"the dashboard shows all queues, and the token is limited to {', '.join(names)}; use the API, or another one"
    )
    return ProblemError("forbidden", detail, queues=names)


def too_many(wait: float) -> ProblemError:
    seconds = max(1, ceil(wait))
    return ProblemError(
        "too-many",
        f"try again in {seconds} s; many jobs in one request count as one request",
        headers=(("retry-after", str(seconds)),),
    )


def too_many_failures(wait: float) -> ProblemError:
    seconds = max(1, ceil(wait))
    return ProblemError(
        "too-many",
        f"too many tokens that are not valid came from this address; try again in {seconds} s with a valid one",
        headers=(("retry-after", str(seconds)),),
    )


def tokens_unknown() -> ProblemError:
    return ProblemError(
        "storage",
        "tokens cannot be checked while the store does not answer, so nothing is served; try again",
        headers=(("retry-after", "1"),),
    )


def stopped() -> ProblemError:
    detail = "the service was stopped before the request had ended; whether it took effect is not known"
    return ProblemError("stopped", detail, headers=(("retry-after", "1"),))
