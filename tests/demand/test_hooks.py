"""The hooks of a demand, as the processors of a worker call them."""

from accoda import App, Done
from accoda.demand import Demand, Waiter


def shop(app: App) -> Demand:
    deals = app.demand("deals", fresh_for=60)

    @deals.fetch
    async def fetch(key: str) -> str:
        return key

    @deals.deliver
    async def deliver(waiter: Waiter, result: str) -> None: ...

    return deals


async def test_processors_of_one_queue_do_not_lose_each_others_runs() -> None:
    """Both open what they took before either of them decodes it."""
    app = App("memory://")
    deals = shop(app)
    with app.testing():
        store = await app.connections.get()
        for queue in ("deals", "deals.deliver"):
            handler = app.handlers[queue].find(None)
            assert handler is not None and handler.hooks is not None
            if queue == "deals":
                for key in ("a", "b"):
                    await deals.request(key, Waiter("anna"))
            first, second = await store.take(queue, 1), await store.take(queue, 1)
            await handler.hooks.opening(store, first)
            await handler.hooks.opening(store, second)
            runs = [handler.codec.open(job) for job in (*first, *second)]
            if queue == "deals":
                assert [run.key for run in runs] == ["a", "b"]
                jobs = zip((*first, *second), runs, strict=True)
                results = [Done(job.lease, result=_fetched(run.key)) for job, run in jobs]
                assert await store.settle(await handler.hooks.ending(store, results)) == []
            else:
                assert [(run.waiter.id, run.value) for run in runs] == [("anna", "a"), ("anna", "b")]


def _fetched(key: str) -> bytes:
    from accoda.demand.records import Fetched, write

    return write(Fetched(key, 1, False, "call", write(key)))
