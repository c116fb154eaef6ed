"""`python -m examples.deals`: an hour of a few automations, told step by step. Ends by itself after a second.

The API, the app and its worker are in this process; the clock is moved by hand from one run to the next.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from accoda import App
from accoda.clock import ManualClock

from .api import DealsApi, Terms
from .app import Plan, Post, Service, make_service
from .automations import MINUTE, Automation, Filters, Timetable
from .client import DealsClient

NINE = 1_700_038_800_000  # 09:00 on a day in November
AUTOMATIONS = [
    Automation("toys-daily", "free", "toys", 60, 0, 0, 24, Filters(min_discount=30), "anna"),
    Automation("toys-cheap", "pro", "toys", 30, 0, 0, 24, Filters(max_price=20, min_reviews=50), "ben"),
    Automation("toys-never", "starter", "toys", 30, 0, 0, 24, Filters(min_discount=95), "carla"),
    Automation(
        "books-new", "business", "books", 15, 0, 0, 24, Filters(exclude_keywords=("used", "refurbished")), "dora"
    ),
    Automation("pets-good", "pro", "pets", 30, 10, 0, 24, Filters(min_rating=4), "emil"),
]


class Hour:
    """Asks for what is due, and tells what comes of it."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._posted: set[str] = set()
        self.timetable = Timetable(AUTOMATIONS, clock.now())

    def say(self, text: str) -> None:
        print(f"{_time(self._clock.now())}  {text}")

    def publish(self, post: Post) -> None:
        self._posted.add(post.run)
        best = max(post.deals, key=lambda deal: deal.discount)
        self.say(f"{_name(post.run)}: {len(post.deals)} deals posted, best: {best.title} at -{best.discount} %")

    def ran(self, run: str) -> None:
        next_at = self.timetable.ran(_name(run), self._clock.now())
        done = "has run" if run in self._posted else "nothing passes its filters, nothing is posted"
        self.say(f"{_name(run)}: {done}; next run {_time(next_at)}")

    async def step(self, service: Service) -> None:
        """Ask for all that is due, and work until nothing is left to do."""
        for at, automation in self.timetable.due(self._clock.now()):
            answer = await service.ask(automation, at)
            self.say(f"{automation.id} ({automation.tier}) wants {automation.category}: {answer.what}")
        await service.app.run_until_idle()
        view = (await service.app.budget_views())["keepa"]
        self.say(f"{view.available:g} of 20 tokens left\n")


async def main() -> None:
    clock = ManualClock(NINE)
    hour = Hour(clock)
    async with DealsApi(Terms(capacity=20), clock) as api, App("memory://", clock=clock) as app:
        client = DealsClient(api.url)
        service = make_service(client, [], hour, Plan(prefetches=False), app)
        while min(hour.timetable.next_run_at.values()) < NINE + 60 * MINUTE:
            clock.advance((min(hour.timetable.next_run_at.values()) - clock.now()) / 1000)
            await hour.step(service)
        runs = (await app.storage.stats()).queues["deals.deliver"].done
        await client.close()
    print(f"{runs} runs of automations, {api.counts.calls} calls of the API, {api.counts.refused} refused.")


def _name(run: str) -> str:
    return run.partition("@")[0]


def _time(moment: int) -> str:
    return f"{datetime.fromtimestamp(moment / 1000, UTC):%H:%M}"


if __name__ == "__main__":
    asyncio.run(main())
