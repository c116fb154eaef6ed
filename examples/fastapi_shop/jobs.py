"""The shop's jobs, for its workers: `accoda worker examples.fastapi_shop.jobs:app`."""

import asyncio
import os

from examples.fastapi_shop.database import URL, Order, Session
from examples.fastapi_shop.messages import PACKING, PackOrder, Parcel

from accoda import App, BuryJob
from accoda.asgi import Injector

app = App(URL)
inject = Injector(app)

PACE = float(os.environ.get("SHOP_PACE", "0.5"))
"""Seconds that it takes to pack one thing."""


@app.handler(PACKING, keep_for=3600, max_attempts=3)
@inject
async def pack(job: PackOrder, session: Session) -> Parcel:
    """Pack an order. The session is the same dependency that the views have."""
    order = await session.get(Order, job.order)
    if order is None:
        raise BuryJob(f"there is no order {job.order}")
    for number, item in enumerate(order.items, 1):
        await asyncio.sleep(PACE)
        await app.progress(number / len(order.items), f"packed {item}")
    order.state = "packed"
    await session.commit()
    return Parcel(order=order.id, items=len(order.items), label=f"{order.customer}-{order.id}")
