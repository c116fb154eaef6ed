"""Does bulk changes until it is killed: `python child.py URL`. A short lease, so that others go on soon."""

import asyncio
import sys

from accoda import App
from accoda.bulk import Bulker


async def main() -> None:
    async with App(sys.argv[1]) as app:
        await Bulker(app, lease=0.3).run(await app.connections.get())


if __name__ == "__main__":
    asyncio.run(main())
