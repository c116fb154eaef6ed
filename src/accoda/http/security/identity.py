"""The caller of a request, and what it may do. Pure.

| scope   | what it allows                                                                                  |
| ------- | ----------------------------------------------------------------------------------------------- |
| read    | every look: jobs, results, flows, queues, dead letters, schedules, workers, budgets, metrics …  |
| enqueue | create jobs and flows, and nothing else: not even to look at them                               |
| work    | take, settle, extend, and tell progress; `take` shows payloads whole, secret fields too         |
| admin   | all of these, and what changes things: cancel, retry, delete, pause, purge, replay, schedules   |

`admin` implies the others; none of the others implies another. A producer that is broken into can then fill queues, but
sees no payload; a dashboard that is broken into changes nothing.

A token may be limited to queues: then its scopes hold for these alone. `Operation.queues` says how each operation looks
at that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from msgspec import Struct

from accoda.errors import InvalidInput
from accoda.http.security.refusals import missing_scope, no_token, other_queue

Scope = Literal["read", "enqueue", "work", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


class Identity(Struct, frozen=True):
    """The sender of a request. `scopes` has all that is implied; `id` is the token's, None where there is none.

    `queues` are those that it is limited to; None: all of them.
    """

    name: str
    scopes: frozenset[str] = frozenset()
    id: str | None = None
    queues: frozenset[str] | None = None

    def may(self, scope: str) -> bool:
        return scope in self.scopes

    def has(self, queue: str | None) -> bool:
        """Whether it may have to do with a queue; None stands for all of them."""
        return self.queues is None or queue in self.queues


ANONYMOUS = Identity("anonymous")
"""Showed no token where one is needed."""
LOCAL = Identity("local", frozenset(SCOPES))
"""Every caller, where no token is needed."""


def implied(scopes: Iterable[str]) -> frozenset[str]:
    """The scopes with those that they imply.

    >>> sorted(implied(["admin"]))
    ['admin', 'enqueue', 'read', 'work']
    """
    found = frozenset(scopes)
    return frozenset(SCOPES) if "admin" in found else found


def check_scopes(scopes: Iterable[str]) -> tuple[Scope, ...]:
    """The scopes of a new token, each once, in the order of the table."""
    given = list(scopes)
    for scope in given:
        if scope not in SCOPES:
            raise InvalidInput("scope", f"must be one of {', '.join(SCOPES)}, not {scope!r:.60}")
    if not given:
        raise InvalidInput("scope", f"a token needs at least one of {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in given)


def check_queue(identity: Identity, queue: str | None) -> None:
    """Refuse a caller that is limited to other queues. None: it is about all of them."""
    if identity.queues is not None and queue not in identity.queues:
        raise other_queue(identity.queues, queue)


def check_scope(identity: Identity, scope: str | None) -> None:
    """Refuse a caller without this scope: 401 without a token, 403 with one for other things."""
    if scope is None or scope in identity.scopes:
        return
    raise no_token() if identity.id is None and not identity.scopes else missing_scope(scope)
