"""Another service that has orders packed: it knows the queue and what its jobs carry, and nothing of the worker.

`python -m examples.fastapi_shop.producer 17`
"""

import asyncio
import os
import sys

from examples.fastapi_shop.messages import PACKING, PackOrder

from accoda import App
from accoda.enqueue import QueueSpec

app = App(os.environ["SHOP_DATABASE"])
# What the worker's handler says of new jobs, a producer without it has to say: here, that results are kept.
app.declare(QueueSpec(PACKING, keep_for=3600))


async def main(order: int) -> None:
    """Have an order packed (again), and wait for the parcel."""
    async with app:
        job = await app.enqueue(PACKING, PackOrder(order=order))
        print(await app.result(job, timeout=60))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
