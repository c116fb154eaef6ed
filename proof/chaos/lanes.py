"""The lanes of a run: who a job belongs to, and rules that change while it goes on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from accoda import AccodaError, Lanes, Store

QUEUES = ("lanes", "lanes.more")
"""Two queues that mostly share their limits. They are of one family, so that they can on a Redis Cluster."""
NAMES = tuple(f"customer-{number}" for number in range(20))
BUSY = NAMES[0]
"""The lane of every third job."""
EVERY = 3.0
"""Seconds between two changes of the rules."""
CALM = Lanes(limit=8, fair=True, total=40, shared="lanes")
"""The rules under which what is left is finished."""


def draw_lane(rng: random.Random) -> str:
    return BUSY if rng.random() < 0.33 else rng.choice(NAMES)


def draw_rules(rng: random.Random) -> Lanes:
    """Lanes always take turns. Now and then one lane may run nothing for a while, or any number."""
    choices: Sequence[dict[str, int | None]] = ({}, {}, {BUSY: 0}, {BUSY: None}, {BUSY: 1, NAMES[1]: 8})
    return Lanes(
        limit=rng.choice((1, 2, 4, 8)),
        limits=rng.choice(choices),
        fair=True,
        weights=rng.choice(({}, {BUSY: 0.5, NAMES[1]: 3})),
        total=rng.choice((None, None, 10, 40)),
        shared=rng.choice(("lanes", "lanes", "lanes", None)),
    )


async def change_rules(store: Callable[[], Store], rng: random.Random) -> None:
    """Give one of the queues other rules again and again.

    A store that is away has them later: which call came, the history says."""
    while True:
        await set_rules(store(), rng.choice(QUEUES), draw_rules(rng))
        await asyncio.sleep(EVERY * rng.uniform(0.5, 1.5))


async def set_rules(store: Store, queue: str, rules: Lanes) -> bool:
    """False: it is not known whether they are set."""
    try:
        await store.set_lanes(queue, rules)
    except AccodaError:
        return False
    return True
