"""A demand's numbers on the metrics page."""

from accoda import App, Waiter
from accoda.runtime.metrics import Metrics


async def test_the_metrics_page_shows_waiting_jobs_and_answers() -> None:
    app = App("memory://")
    deals = app.demand("deals", fresh_for=60)

    @deals.fetch
    async def fetch(key: str) -> str:
        return key

    @deals.deliver
    async def deliver(waiter: Waiter, found: str) -> None: ...

    metrics = Metrics()
    with app.testing():
        await deals.request("books", Waiter("a", tier="business"))
        await app.run_until_idle()
        await deals.request("books", Waiter("b"))
        for n in range(3):
            await deals.request(f"toys{n}", Waiter("a"))
        await deals.upkeep_once(app.storage)
        metrics.demand(await deals.view())
    page = metrics.page().decode()
    assert 'queue_demand_waiting_jobs{band="normal",queue="deals"} 3.0' in page
    assert 'queue_demand_hit_ratio{queue="deals"} 0.2' in page
    assert 'queue_demand_events{event="calls",queue="deals"} 1.0' in page
    assert 'queue_demand_events{event="created",queue="deals"} 4.0' in page
