"""`python -m shop`: a few orders, from the first click to the last email, through one SQLite file. Ends by itself."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from accoda import App, InvalidInput, Priority

from .app import Services, make_app
from .queues import NewOrdersJob, Queues

ORDERS = [
    NewOrdersJob(order_id=1001, user_id=7, email="anna@home.example", items=["tea", "cup"], cents=[450, 790]),
    NewOrdersJob(order_id=1002, user_id=8, email="ben@slow.example", items=["tea"], cents=[450], coupon="SPRING"),
    NewOrdersJob(order_id=1003, user_id=9, email="nobody", items=["cup"], cents=[790]),
    NewOrdersJob(order_id=1004, user_id=7, email="anna@home.example", items=[], cents=[]),
]


async def main(url: str) -> None:
    services = Services()
    async with make_app(services, url) as app:
        queues = Queues(app)
        print("Orders come in:")
        await queues.new_orders.enqueue_many(ORDERS)
        await queues.new_orders.enqueue(
            {"priority": Priority.HIGH},
            order_id=1005,
            user_id=10,
            email="carla@home.example",
            items=["kettle"],
            cents=[3_900],
        )
        await refused(queues)
        await work(app)
        print(f"\n{len(services.mail.sent)} emails were sent, {len(services.books.numbers)} invoices written. Buried:")
        await show_dead(app)


async def refused(queues: Queues) -> None:
    """What does not fit the contract never reaches the store, whatever a type checker was told."""
    try:
        await queues.emails.enqueue(to="anna@home.example", subject="Hi", body=b"", user_id=2**63)
    except InvalidInput as error:
        print(f"  refused     {str(error).removeprefix('payload: ')}")


async def work(app: App) -> None:
    """Run jobs until none is left, those included that wait for their next try. A real shop has `accoda worker`."""
    while True:
        await app.run_until_idle()
        counts = (await app.storage.stats()).queues.values()
        if not any(count.ready + count.delayed + count.taken for count in counts):
            return
        await app.storage.wait(list(app.handlers), timeout=1.0)


async def show_dead(app: App) -> None:
    for queue in app.handlers:
        for job in await app.storage.browse(queue, "dead"):
            print(f"  {queue:<11} job {job.id}: {job.reason}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(f"sqlite:///{Path(folder) / 'shop.db'}"))
