"""What is fuzzed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct


class Target(Struct, frozen=True):
    """A decoder. It gives something, or raises one of `errors`; anything else is a crash.

    `seeds` is good input to damage, `tokens` are pieces of text that mean something to it. `share` says how often its
    turn comes: a slow decoder has a smaller one.
    """

    name: str
    decode: Callable[[bytes], object]
    seeds: Sequence[bytes]
    errors: tuple[type[BaseException], ...] = ()
    tokens: Sequence[bytes] = ()
    share: float = 1.0
