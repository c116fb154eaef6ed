"""The flows in the pictures of the dashboard: orders that run, are shipped and fail, and one of 300 nodes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, NamedTuple

from accoda import App

WAREHOUSES = ("milan", "rome", "turin", "naples", "bari")
FAN_OUT = 298
PICTURES = {
    "flows": "/flows",
    "flow": "/flows/order-17",
    "flow-failed": "/flows/order-16",
    "flow-300": "/flows/nightly-import",
    "flow-300-nodes": "/flows/nightly-import?unfold=load-1",
    "flow-mixed": "/flows/release-4",
    "flow-big": "/flows/archive",
}


class OutOfStock(Exception):
    """What an order fails with."""


class Shop(NamedTuple):
    """The handlers that flows are made of."""

    charge: Any
    reserve: Any
    ship: Any
    refund: Any
    load: Any
    step: Any


def add_shop(app: App) -> Shop:
    """Handlers whose payload says how long they take."""

    @app.handler("payments", keep_for=3600)
    async def charge(order: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(1.2)
        return {"order": order["order"], "paid": 42}

    @app.handler("warehouse", type="reserve", max_attempts=1, keep_for=3600)
    async def reserve(part: dict[str, Any]) -> None:
        await asyncio.sleep(part["seconds"])
        if part.get("missing"):
            raise OutOfStock(f"order {part['order']}: the warehouse in {part['warehouse']} has 0 of 3 left")

    @app.handler("warehouse", type="ship", keep_for=3600)
    async def ship(order: dict[str, Any]) -> None:
        await asyncio.sleep(0.4)

    @app.handler("payments", type="refund", keep_for=3600)
    async def refund(order: dict[str, Any]) -> None:
        await asyncio.sleep(0.3)

    @app.handler("imports.rows")
    async def load(rows: dict[str, Any]) -> None:
        await asyncio.sleep(rows.get("seconds", 0.05))

    @app.handler("build", keep_for=3600)
    async def step(what: dict[str, Any]) -> None:
        await asyncio.sleep(what.get("seconds", 0.5))
        for name in what.get("adds", ()):
            app.current.flow.add(step, {"seconds": 0.5}, name=name)

    return Shop(charge, reserve, ship, refund, load, step)


async def start_flows(app: App, shop: Shop) -> None:
    """A flow of every kind."""
    for number in range(8, 16):
        await _order(app, shop, number)
    await _order(app, shop, 16, missing="turin")
    await _order(app, shop, 17, slow="rome")
    await _fan_out(app, shop, "nightly-import", FAN_OUT, slow=(7, 120, 121))
    await _fan_out(app, shop, "archive", 5000, slow=(4999,))
    await _release(app, shop)
    late = app.flow("report-late", key="report-late", deadline=2.0)
    late.add(shop.step, {"seconds": 300}, name="sum up")
    await late.start()
    stopped = app.flow("order-7", key="order-7")
    stopped.add(shop.step, {"seconds": 300}, name="charge")
    await stopped.start()
    await app.flows.cancel("order-7")
    batch = app.batch("newsletter", key="newsletter", on_done=shop.ship.job({}))
    await batch.__aenter__()  # it stays open
    await batch.enqueue_many(shop.load, [{"seconds": 0.2}] * 40 + [{"seconds": 3600}])


async def _order(app: App, shop: Shop, number: int, missing: str = "", slow: str = "") -> None:
    order = {"order": number}
    flow = app.flow(f"order-{number}", key=f"order-{number}", deadline=timedelta(hours=2))
    charged = flow.add(shop.charge, order, name="charge")
    parts = []
    for place, where in enumerate(WAREHOUSES):
        seconds = 3600 if where == slow else 0.4 + 0.6 * place
        part = {**order, "warehouse": where, "seconds": seconds, "missing": where == missing}
        parts.append(flow.add(shop.reserve, part, name=f"reserve-{where}", after=charged))
    flow.add(shop.ship, order, name="ship", after=parts)
    flow.add(shop.refund, order, name="refund", after=parts, when="any_dead")
    await flow.start()


async def _fan_out(app: App, shop: Shop, name: str, count: int, slow: tuple[int, ...]) -> None:
    flow = app.flow(name, key=name)
    split = flow.add(shop.load, {}, name="split")
    rows = [{"seconds": 3600 if n in slow else 0.02, "part": n} for n in range(count)]
    loads = flow.map(shop.load, rows, name="load", after=split)
    flow.add(shop.load, {}, name="join", after=loads)
    await flow.start()


async def _release(app: App, shop: Shop) -> None:
    """Lines over several columns, nodes that are added by one that runs, and one for the case that it is cancelled."""
    flow = app.flow("release-4", key="release-4")
    check = flow.add(shop.step, {}, name="check out")
    build = flow.add(shop.step, {"seconds": 2, "adds": ["build wheel", "build docs"]}, name="build", after=check)
    lint = flow.add(shop.step, {"seconds": 0.2}, name="lint", after=check)
    test = flow.add(shop.step, {"seconds": 3}, name="test on every database", after=build)
    sign = flow.add(shop.step, {"seconds": 3600}, name="sign", after=[build, check])
    flow.add(shop.step, {}, name="publish", after=[test, sign, lint])
    flow.add(shop.step, {}, name="announce", after=[check, sign], when="all_ended")
    flow.on_cancel(shop.step, {}, name="withdraw")
    await flow.start()
