"""Runs bulk changes until it is killed: `python bulk_child.py URL`. A short lease, so that others continue soon."""

import asyncio
import sys

from accoda import App
from accoda.operations.bulk import bulk_runner


async def main() -> None:
    async with App(sys.argv[1]) as app:
        await bulk_runner(app, lease=0.3).run(await app.connections.get())


if __name__ == "__main__":
    asyncio.run(main())
