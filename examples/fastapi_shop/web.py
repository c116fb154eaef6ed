"""The shop's web application: `uvicorn examples.fastapi_shop.web:web`."""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

from examples.fastapi_shop.database import Order, Session, create_tables, engine
from examples.fastapi_shop.jobs import app, inject, pack
from examples.fastapi_shop.login import User, router, staff
from examples.fastapi_shop.messages import PackOrder
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from pydantic import BaseModel, Field
from starlette.middleware.sessions import SessionMiddleware

from accoda.asgi import Jobs, accepted, events_of, lifespan, mount, status_of


@asynccontextmanager
async def life(web: FastAPI) -> AsyncGenerator[Mapping[str, Any], None]:
    """The shop's own lifespan, with that of its jobs inside."""
    await create_tables()
    async with lifespan(app, worker="SHOP_WORKER" in os.environ) as state:
        yield state
    await engine.dispose()


web = FastAPI(title="The shop", lifespan=life)
web.add_middleware(SessionMiddleware, secret_key=os.environ.get("SHOP_SECRET", "only for development"))
web.include_router(router)
web.dependency_overrides = inject.dependency_overrides  # one dictionary for views and handlers
web.mount("/ops/jobs", mount(app, auth=staff))


class NewOrder(BaseModel):
    """What a customer sends."""

    items: list[str] = Field(min_length=1)


@web.post("/orders", status_code=202)
async def place_order(request: Request, new: NewOrder, session: Session, user: User) -> Response:
    """The order and its job are stored together, or neither is."""
    async with session.begin():
        order = Order(customer=user, items=new.items)
        session.add(order)
        await session.flush()
        job = await pack.enqueue(PackOrder(order=order.id), connection=session)
        order.job = job.id
    return accepted(request, job, id=order.id, status="order_status", events="order_events")


async def own_order(id: int, session: Session, user: User) -> Order:
    """An order of this customer's. That of another is as good as none."""
    order = await session.get(Order, id)
    if order is None or order.customer != user or order.job is None:
        raise HTTPException(404, f"you have no order {id}")
    return order


OwnOrder = Annotated[Order, Depends(own_order)]


@web.get("/orders/{id}")
async def order_status(order: OwnOrder, jobs: Jobs) -> Response:
    """How far it is, and the parcel when it is packed."""
    assert order.job is not None
    return await status_of(jobs, order.job, id=order.id)


@web.get("/orders/{id}/events")
async def order_events(order: OwnOrder, jobs: Jobs) -> Response:
    """The same as a stream of events."""
    assert order.job is not None
    return await events_of(jobs, order.job, id=order.id)
