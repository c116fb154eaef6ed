"""Relays are killed by SIGKILL while they move an outbox to a store: each job gets there once, none is lost."""

from __future__ import annotations

import asyncio
import itertools
import random
from itertools import pairwise

from msgspec.structs import replace

from accoda.transactions.open import open_table
from accoda.transactions.outbox import read_outbox
from proof.chaos.transactions.cases import BY_POSTGRES, BY_SQLITE, Case, Place, read_orders
from proof.chaos.transactions.forks import Role
from proof.chaos.transactions.kills import Found, compare, read_jobs, until_alone
from proof.chaos.transactions.processes import Forks
from proof.chaos.transactions.roles import LEASE, MOMENT

CASES = (Case("psycopg", BY_POSTGRES), Case("sqlite3", BY_SQLITE))
RELAYS = 2
JOBS = 2000
STEP = 2 * MOMENT + 0.001
"""Seconds that a step takes with its pauses and the deletion of its rows, at most: a kill comes at any time in it."""


async def run(case: Case, place: Place, forks: Forks, kills: int, *, jobs: int = JOBS, seed: int = 0) -> Found:
    """Rows are written as long as there are relays to be killed, and until there are so many."""
    rng, found = random.Random(seed), Found(case=Case("the relay, killed", case.store))
    names = (f"relay-{number}" for number in itertools.count(1))
    role = Role(
        name="feed",
        does="feed",
        driver=case.driver,
        database=place.database,
        store=place.store,
        outbox=place.outbox,
        first=1,
        seed=seed,
        pause=0.4 * kills / jobs,  # so that most of them are written while relays die
    )

    await forks.kill_all()

    async def start_relay() -> None:
        await forks.start(replace(role, name=next(names), does="relay"))

    for _ in range(RELAYS):
        await start_relay()
    await forks.start(role)
    left, fed = 1, 0
    while found.kills < kills or fed < jobs:
        said = await forks.next()
        found.hear(said)
        if said.what == "committed":
            found.written, fed = found.written + 1, said.number
        if said.what != "settles" or not forks.runs(said.name):
            continue
        left -= 1
        if left > 0 or found.kills == kills:
            continue
        await asyncio.sleep(rng.uniform(0, STEP))
        await forks.kill(said.name)
        found.kills += 1
        left = rng.randint(1, 3)
        await start_relay()
    await forks.kill(role.name)
    await until_empty(place)
    await forks.kill_all()
    await until_alone(place)
    await asyncio.sleep(LEASE)  # of the last relay: then what is left can be relayed here
    orders, stored = read_orders(place), await read_jobs(place)
    compare(found, orders, stored)
    found.disordered = sum(earlier > later for (earlier, _), (later, _) in pairwise(stored))
    return found


async def until_empty(place: Place) -> None:
    """Until the relay that is left has moved everything."""
    assert place.outbox is not None
    async with asyncio.timeout(60), open_table(read_outbox(place.outbox)) as table:
        while await table.count():
            await asyncio.sleep(0.05)
