"""A caller in a process of its own, to be killed: `python caller_child.py STORE_URL`."""

import asyncio
import sys

from accoda.storage.open import open_storage
from accoda.webhooks import Caller, CallerOptions, Policy


async def main(url: str) -> None:
    async with await open_storage(url) as store:
        await Caller(CallerOptions(policy=Policy.read("127.0.0.1"))).run(store)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
