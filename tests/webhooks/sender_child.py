"""A caller in a process of its own, to be killed: `python sender_child.py STORE_URL`."""

import asyncio
import sys

from accoda.storage.open import open_storage
from accoda.webhooks.dispatcher import SenderOptions
from accoda.webhooks.guard import Policy
from accoda.webhooks.sender_loop import SenderLoop


async def main(url: str) -> None:
    async with await open_storage(url) as store:
        await SenderLoop(SenderOptions(policy=Policy.read("127.0.0.1"))).run(store)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
