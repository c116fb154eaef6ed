"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from proof.checker.call_log import Call
from proof.checker.ledger import Ledger

SECOND = 1_000_000_000


class Options(Struct, frozen=True):
    """What the rules must know of the store and of the machine.

    `slack` seconds, plus `drift` of the time that passed, is how much the store's clock and the recorder's may differ:
    moments in a store are whole milliseconds, and clocks are slewed. `ordered` is False for a store that promises order
    only within a part of a queue (Redis Cluster with partitions). `lingering` is how many seconds a take that its
    caller gave up may go on in the store: while it does, it may hold jobs that it will not take in the end. `passing`
    is how many seconds takes may pass over a job: in PostgreSQL a job that another call locks for a moment, only to
    look at it, is not there for a taker. `takes_anew` is True for a store whose client, when the answer of a take was
    lost, sends it as a new one (PostgreSQL), or gives the caller what it has when a part of a take fails (Redis Cluster
    with partitions): any take may then have leased jobs that its answer does not name. `gives_fewer` is True for one
    whose client asks for half as many where a take is refused for want of memory or disk (Tarantool): a take that gave
    less than it was asked for then says nothing about the rest of the line.
    """

    slack: float = 0.003
    drift: float = 0.001
    ordered: bool = True
    lingering: float = 5.0
    passing: float = 0.0
    takes_anew: bool = False
    gives_fewer: bool = False

    def surely(self, seconds: float) -> int:
        """The nanoseconds that have passed at the least when the store says that so many seconds have passed."""
        return int((seconds * (1 - self.drift) - self.slack) * SECOND)


class Broken(Struct, frozen=True):
    """What a rule finds: which job breaks it (None: no single one), how, and the calls that show it."""

    job: int | None
    text: str
    calls: tuple[Call, ...] = ()


class Violation(Struct, frozen=True):
    """The same, with the name of the rule."""

    rule: str
    job: int | None
    text: str
    calls: tuple[Call, ...] = ()

    def __str__(self) -> str:
        about = "" if self.job is None else f" job {self.job}:"
        return f"{self.rule}:{about} {self.text}" + "".join(f"\n    {call}" for call in self.calls)


class Rule(Struct, frozen=True):
    """A name, the promise in one sentence, and the function that looks for what breaks it.

    `needs_final`: it can say nothing without the final state.
    """

    name: str
    promise: str
    find: Callable[[Ledger, Options], Iterable[Broken]]
    needs_final: bool = False
