"""Which faults a run has, and when each strikes. Pure: the same seed gives the same schedule."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence

GROUPS: Mapping[str, Sequence[str]] = {
    "kill": ("kill",),
    "points": ("kill after take", "kill in handler", "kill after handler", "kill before settle", "kill inside commit"),
    "stop": ("stop",),
    "gil": ("gil",),
    "poison": ("poison",),
    "producer": ("kill producer",),
    "clock": ("clock",),
    "server": ("server kill", "server restart", "fail-over", "replica kill"),
    "outage": ("outage",),
    "restore": ("restore",),
    "network": (
        "network cut", "network hold", "black hole", "replies vanish", "network delay", "network slow", "torn reply"
    ),
    "disk": ("disk full", "fsync fails", "fsync slow"),
}  # fmt: skip
"""Words for `--faults`, and the faults that each stands for."""

SERVER_KILLS = ("server kill", "fail-over")
RARE = frozenset({"black hole", "replies vanish", "restore"})
"""Each strikes once in a run, so that time is left for others: those that are longer than a client's patience with one
connection, and the return of the store to its beginning, after which the jobs have to be made anew."""


def chosen(words: Iterable[str] | None) -> frozenset[str]:
    """The faults that the words stand for: groups, or single faults by their names. None: all."""
    if words is None:
        return frozenset(name for names in GROUPS.values() for name in names)
    found: set[str] = set()
    known = {name for names in GROUPS.values() for name in names}
    for word in words:
        if word in GROUPS:
            found.update(GROUPS[word])
        elif word in known:
            found.add(word)
        else:
            raise ValueError(
                f"there is no fault {word!r}; there are {', '.join(GROUPS)}, and {', '.join(sorted(known))}"
            )
    return frozenset(found)


def moments(rng: random.Random, every: float) -> Iterator[float]:
    """Seconds from the start, uneven, `every` seconds apart in the mean, without end."""
    at = 0.0
    while True:
        at += every * rng.uniform(0.5, 1.5)
        yield at


def in_turn(rng: random.Random, names: Sequence[str]) -> Iterator[str]:
    """Every name once in each round, in an order that changes: nothing is left to luck in a short run."""
    rare = [name for name in names if name in RARE]
    often = [name for name in names if name not in RARE]
    while often or rare:
        order = [*often, *rare]
        rng.shuffle(order)
        yield from order
        rare = []


def kills_between(rng: random.Random, names: Sequence[str]) -> Iterator[str]:
    """Server faults: every second one a kill of the server, where there is such a thing; the others in turn."""
    kills = [name for name in names if name in SERVER_KILLS]
    others = in_turn(rng, [name for name in names if name not in SERVER_KILLS])
    while True:
        if kills:
            yield rng.choice(kills)
        other = next(others, None)
        if other is not None:
            yield other
        elif not kills:
            return


def lane(rng: random.Random, names: Iterator[str], every: float) -> Iterator[tuple[float, str]]:
    """What strikes when, on one lane: each strike waits for the one before it to be over."""
    return zip(moments(rng, every), names, strict=False)
