"""Callers are killed by SIGKILL between a write and its commit: a job is there if and only if its order is."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import msgspec

from accoda import App
from proof.chaos.transactions.cases import Case, Place, callers_left, read_orders
from proof.chaos.transactions.forks import Role
from proof.chaos.transactions.processes import Forks, Said
from proof.chaos.transactions.roles import BLOCK, MOMENT, QUEUE

WRITERS = 2
PAGE = 1000

Order = tuple[int, str | None]
"""A number, and the key that it shares with others, or none."""


class Found(msgspec.Struct, kw_only=True):
    """What became of a case.

    `written` is how many transactions had written all, `after` how many kills came after the commit.
    """

    case: Case
    written: int = 0
    kills: int = 0
    after: int | None = None
    committed: int = 0
    jobs: int = 0
    missing: Sequence[object] = ()
    extra: Sequence[object] = ()
    disordered: int = 0
    """Jobs that came before one that was written earlier."""

    acknowledged: set[int] = msgspec.field(default_factory=set)
    """Numbers of orders whose commit has returned."""

    def hear(self, said: Said) -> None:
        self.written += said.what == "written"
        if said.what == "committed":
            self.acknowledged.add(said.number)

    @property
    def ok(self) -> bool:
        return self.committed > 0 and not self.missing and not self.extra and self.disordered * 100 <= self.jobs


async def run(
    case: Case, place: Place, forks: Forks, kills: int, *, seed: int = 0, broken: bool = False, writers: int = WRITERS
) -> Found:
    """Each kill is aimed: at a writer that has written, at any moment before, in or soon after its commit."""
    rng = random.Random(seed)
    await forks.kill_all()  # what a run before this one left behind when it failed
    await make_store(place)
    found, hit, started = Found(case=case), set(), 0

    async def start() -> None:
        nonlocal started
        started += 1
        await forks.start(
            Role(
                name=f"{case.driver}-{started}",
                does="write",
                driver=case.driver,
                database=place.database,
                store=place.store,
                outbox=place.outbox,
                first=started * BLOCK,
                seed=rng.getrandbits(32),
                broken=broken,
            )
        )

    for _ in range(min(writers, kills)):
        await start()
    left = rng.randint(1, 5)  # a writer does some transactions before it is killed
    while found.kills < kills:
        said = await forks.next()
        found.hear(said)
        if said.what != "written" or not forks.runs(said.name):
            continue
        left -= 1
        if left > 0:
            continue
        await asyncio.sleep(rng.uniform(0, 2 * MOMENT))
        await forks.kill(said.name)
        found.kills += 1
        hit.add(said.number)
        left = rng.randint(1, 5)
        if found.kills + min(writers, kills) <= kills:
            await start()
    for said in await forks.kill_all():
        found.hear(said)
    await until_alone(place)
    orders = read_orders(place)
    found.after = len({number for number, _ in orders} & hit)
    compare(found, orders, await read_jobs(place))
    return found


def compare(found: Found, orders: Sequence[Order], jobs: Sequence[Order]) -> None:
    """Each order has one job. Those that share a key have one together, of one of them."""
    there = {number for number, _ in orders}
    wanted = Counter(number if shared is None else shared for number, shared in orders)
    have = Counter(number if shared is None else shared for number, shared in jobs)
    found.committed, found.jobs = len(orders), len(jobs)
    found.missing = [*(one for one in wanted if one not in have), *sorted(found.acknowledged - there)]
    found.extra = [
        *(one for one, count in have.items() if count > 1 or one not in wanted),
        *(number for number, shared in jobs if shared is not None and number not in there),
    ]


async def make_store(place: Place) -> None:
    async with App(place.store) as app:
        await app.connections.get()
    if place.store == place.database and place.store.startswith("sqlite"):
        import apsw

        from proof.chaos.transactions.cases import ORDERS

        with apsw.Connection(place.store.removeprefix("sqlite:///")) as connection:
            connection.execute(ORDERS)
        connection.close()


async def until_alone(place: Place) -> None:
    """The server learns of a caller's death when it next reads from it, or writes to it."""
    async with asyncio.timeout(30):
        while callers_left(place):
            await asyncio.sleep(0.01)


async def read_jobs(place: Place) -> list[Order]:
    """All jobs in the store, in order, after the outbox was emptied into it."""
    async with App(place.store, outbox=place.outbox) as app:
        await app.run_until_idle()
        found: list[Order] = []
        page = await app.storage.browse(QUEUE, "ready", order="id", limit=PAGE)
        while page:
            found += [msgspec.msgpack.decode(job.data, type=tuple[int, str | None]) for job in page]
            page = await app.storage.browse(QUEUE, "ready", order="id", after=page[-1].cursor("id"), limit=PAGE)
        return found
