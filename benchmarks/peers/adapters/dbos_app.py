"""What the adapters of DBOS share: a queue that is partitioned by customer, and jobs in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from dbos import DBOS, DBOSClient, DBOSConfig, EnqueueOptions

QUEUE, WORKFLOW, VERSION = "customers", "job", "1"
AT_ONCE = 20  # calls that enqueue


def launch(url: str, run: Callable[[dict[str, Any]], Awaitable[None]], **queue: Any) -> None:
    """Work until the process ends."""
    logging.disable(logging.WARNING)
    config: DBOSConfig = {
        "name": "lanes", "system_database_url": url, "application_version": VERSION, "run_admin_server": False,
    }  # fmt: skip
    DBOS(config=config)

    @DBOS.workflow(name=WORKFLOW)
    async def job(payload: dict[str, Any]) -> None:
        await run(payload)

    DBOS.launch()
    DBOS.register_queue(QUEUE, **queue)


def enqueue(url: str, jobs: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Jobs with their customers, in this order as far as a few calls at once keep it."""
    DBOS.migrate(url)

    async def run() -> None:
        client, waiting = DBOSClient(system_database_url=url), iter(jobs)

        async def put() -> None:
            for customer, payload in waiting:
                options: EnqueueOptions = {
                    "queue_name": QUEUE, "workflow_name": WORKFLOW, "queue_partition_key": customer,
                    "app_version": VERSION,
                }  # fmt: skip
                await client.enqueue_async(options, payload)

        await asyncio.gather(*(put() for _ in range(AT_ONCE)))
        client.destroy()

    asyncio.run(run())
