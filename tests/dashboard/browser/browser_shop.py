"""The app whose service and worker the browser looks at. It is copied into the folder of a world, as `shop.py`.

Files in that folder tell its handlers what to do: `mended-LOT` lets the orders of a lot be paid, `gate-N` lets job N of
`gated` or `packing` go on.
"""

import asyncio
from pathlib import Path
from typing import Any

from accoda import App
from accoda.demand import Waiter

HERE = Path(__file__).parent

app = App()
app.budget("api", capacity=2, refill=1, per=3600)
deals = app.demand("deals", cost=1, budget="api", fresh_for=600, keep_for=3600)


class CardDeclined(Exception):
    """The first of two ways to fail."""


class BankIsClosed(Exception):
    """The other one."""


@app.handler("quick", keep_for=3600)
async def quick(what: Any) -> Any:
    return what


@app.handler("orders", max_attempts=1, keep_for=3600)
async def charge(order: dict[str, Any]) -> str:
    if (HERE / f"mended-{order.get('lot')}").exists():
        return "paid"
    if order.get("says"):
        raise CardDeclined(order["says"])
    raise BankIsClosed("closed until Monday") if order.get("bank") else CardDeclined(f"card {order['n']} was declined")


@app.handler("gated", batch=1, keep_for=3600)
async def gated(_: Any) -> str:
    id = app.current.id
    await app.progress(0.5, "half of it")
    while not (HERE / f"gate-{id}").exists():
        await asyncio.sleep(0.05)
    return "through"


@app.handler("slow")
async def slow(_: Any) -> None:
    id = app.current.id
    try:
        await app.progress(0.25, "the first quarter")
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        (HERE / f"cancelled-{id}").touch()
        raise


@app.handler("packing", keep_for=3600)
async def pack(_: Any) -> None:
    while not (HERE / f"gate-{app.current.id}").exists():
        await asyncio.sleep(0.05)


@app.handler("flows", keep_for=3600)
async def start(what: dict[str, Any]) -> None:
    """Start a flow: an order, or one node after many."""
    flow = app.flow(what["id"], key=what["id"])
    first = flow.add(quick, {}, name=what.get("first", "begin"))
    if "wide" in what:
        flow.add(quick, {}, name="join", after=flow.map(quick, [{}] * what["wide"], name="part", after=first))
    else:
        paid = flow.add(charge, {"n": 7, "lot": what["id"]}, name="charge", after=first)
        flow.add(quick, {}, name="ship", after=paid)
        flow.add(pack if what.get("runs") else quick, {}, name="pack", after=first)
    await flow.start()


@app.handler("batches", keep_for=3600)
async def leave_open(id: str) -> None:
    """A producer that dies before it closes its batch."""
    batch = app.batch(id, key=id, on_done=quick.job({}))
    await batch.__aenter__()
    await batch.enqueue_many(quick, [{}, {}])


@app.handler("crowd")
async def crowd(keys: list[str]) -> None:
    for key in keys:
        for n in range(3):
            await deals.request(key, Waiter(f"reader-{key}-{n}", "pro", 0, {}))


@deals.fetch
async def fetch(category: str) -> list[str]:
    return [f"{category} for less"]


@deals.deliver
async def deliver(waiter: Waiter[dict[str, str]], found: list[str]) -> int:
    return len(found)


@app.cron("0 7 * * MON-FRI", tz="Europe/Rome", queue="newsletter", keep_for=3600)
async def newsletter() -> str:
    return "sent"


@app.every("1h", queue="clean-up", keep_for=3600)
async def clean_up() -> int:
    return 12
