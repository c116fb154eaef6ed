"""The app of the tests of logs: each queue is one kind of handler, and each logs, and fails if its job says so."""

import asyncio
import logging
import warnings
from typing import Any

from accoda import App, Batch

app = App()
log = logging.getLogger("shop.jobs")
logging.getLogger("httpx").info("chatty")


def work(order: dict[str, Any]) -> None:
    log.info("paying with %s", order["card"], extra={"order": order, "queue": "mine"})
    if order["fails"]:
        raise ValueError(f"{order['card']} is no card")


@app.handler("loop", secret=("card",), retry=3600)
async def loop(order: dict[str, Any]) -> None:
    await asyncio.sleep(0)
    await asyncio.to_thread(log.info, "in a thread")
    warnings.warn("old card", stacklevel=1)
    work(order)


@app.handler("thread", secret=("card",), retry=3600)
def thread(order: dict[str, Any]) -> None:
    work(order)


@app.handler("child", secret=("card",), retry=3600, run_in="process")
async def child(order: dict[str, Any]) -> None:
    await asyncio.sleep(0)
    work(order)


@app.handler("batch", secret=("card",), retry=3600)
async def batch(orders: Batch[dict[str, Any]]) -> None:
    work(orders[0].payload)


@app.handler("child-batch", secret=("card",), retry=3600, run_in="process")
def child_batch(orders: Batch[dict[str, Any]]) -> None:
    work(orders[1].payload)
