"""The lanes in the pictures of the dashboard: thirty customers that take turns, most with jobs held, one paused."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from accoda import App
from accoda.operations import lanes

QUEUE = "mailings"
LANES = f"/queues/{QUEUE}/lanes"
CUSTOMERS = (
    "acme", "blumen-krüger", "caffè-milano", "delta-airlines-newsletter-of-the-summer", "książki-łódź", "fjord-tours",
    *(f"customer-{number}" for number in range(1, 25)),
)  # fmt: skip


def add_lanes(app: App) -> None:
    """A handler that is slower than its customers."""

    @app.handler(QUEUE)
    async def mail(mailing: dict[str, Any]) -> None:
        await asyncio.sleep(20)


async def fill_lanes(app: App) -> None:
    """Mailings of all customers, of some of them many."""
    random = Random(7)
    changes = {"limit": 2, "limits": {"customer-9": 0, "acme": 6, "vip": 20}, "fair": True, "weights": {"acme": 3.0}}
    await lanes.change(app, QUEUE, changes)
    for place, customer in enumerate(CUSTOMERS):
        count = max(1, round(60 / (place + 1) ** 0.9 * random.uniform(0.7, 1.3)))
        await app.enqueue_many(QUEUE, [{"mailing": number} for number in range(count)], lane=customer)
