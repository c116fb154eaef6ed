"""The shop's web application."""

from fastapi import FastAPI

from shop.jobs import Order, charge, price

web = FastAPI()


@web.post("/orders/{item}")
async def order(item: str) -> dict[str, int]:
    paid = await charge.enqueue(Order(1, item))
    return {"cents": await paid.result(timeout=10)}


@web.get("/prices/{item}")
def price_of(item: str) -> dict[str, int]:
    return {"cents": price.sync.enqueue(item).result(timeout=10)}
