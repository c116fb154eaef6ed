"""The shop with flows: an order of which a part is dead, a large import, an open batch, and one with a deadline."""

import asyncio
import shutil
from pathlib import Path

import msgspec
from cli_world import NOW

from accoda import App, Bury, Done, Job, ManualClock, Outcome
from accoda.envelope import payload_of
from accoda.flows.coordinator import Coordinator

FILES = 298
REASON = "failed 5 times, the last time with LookupError: out of stock: part 4 of order 17 is in no warehouse"


def build_flows(prepared: Path, folder: Path, now: int = NOW) -> Path:
    """A copy of the prepared shop, with flows in its store."""
    shutil.copytree(prepared, folder)
    asyncio.run(_fill(f"sqlite:///{folder.as_posix()}/accoda.db", now))
    return folder


async def _fill(url: str, now: int) -> None:
    clock = ManualClock(now - 180_000)
    async with App(url, clock=clock) as app:
        await _order(app, clock)
        await _import(app, clock)
        await app.batch("mailing", key="mailing-1").__aenter__()
        night = app.flow("night", key="night-31", deadline=3600.0)
        night.add("tidying", name="tidy")
        await night.start()
        await move(app)
        clock.advance((now - clock.now()) / 1000)


async def _order(app: App, clock: ManualClock) -> None:
    """Eight nodes: the last part is dead, so nothing is shipped, and the money goes back."""
    flow = app.flow("order", key="order-17")
    flow.add("payments", 17, name="charge")
    parts = [flow.add("stock", part, name=f"reserve-{part}", after="charge") for part in range(1, 5)]
    flow.add("parcels", 17, name="ship", after=parts)
    flow.add("payments", 17, name="refund", after=parts, when="any_dead")
    flow.add("letters", 17, name="thank", after="charge")
    await flow.start()
    await move(app)
    await finish(app, clock, "payments", 0.24)
    await finish(app, clock, "stock", 1.3, bad=4)
    await finish(app, clock, "payments", 0.31)
    await finish(app, clock, "letters", 4.0)


async def _import(app: App, clock: ManualClock) -> None:
    """300 nodes: what is loaded is joined at the end."""
    flow = app.flow("import", key="import-2030")
    flow.add("files", 2030, name="list")
    loads = [flow.add("loads", number, name=f"load-{number}", after="list") for number in range(1, FILES + 1)]
    flow.add("reports", 2030, name="sum", after=loads)
    await flow.start()
    await move(app)
    await finish(app, clock, "files", 2.0)
    await finish(app, clock, "loads", 0.1, most=FILES - 2)


async def move(app: App) -> None:
    """Let flows go on to which something happened."""
    while await Coordinator().run_once(app.storage):
        pass


async def finish(
    app: App, clock: ManualClock, queue: str, seconds: float, *, bad: int | None = None, most: int = 1000
) -> None:
    """Do the ready jobs of a queue; the one whose payload is `bad` dies."""
    jobs = await app.storage.take(queue, most, lease=600.0, worker="office")
    clock.advance(seconds)
    assert not await app.storage.settle([_outcome(job, bad) for job in jobs])
    await move(app)


def _outcome(job: Job, bad: int | None) -> Outcome:
    value = msgspec.msgpack.decode(payload_of(job.data))
    return (
        Bury(job.lease, REASON)
        if bad is not None and value == bad
        else Done(job.lease, result=msgspec.msgpack.encode({"ok": value}))
    )
