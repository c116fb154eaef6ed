from shop.jobs import Order, app, confirm, mail, price, ship, stock, told

from accoda import Trial, Waiter


async def test_a_parcel_follows_its_price(accoda_jobs: Trial) -> None:
    flow = app.flow("order-17")
    priced = flow.add(price, "tea")
    flow.add(ship, Order(17, "tea"), after=priced)
    flow.add(confirm, Order(17, "tea"), after=priced)
    started = await flow.start()
    await accoda_jobs.drain()
    assert (await app.flows.get(started.id)).state == "done"
    assert mail.sent == [("anna@example.com", "Order 17")]


async def test_one_count_serves_both(accoda_jobs: Trial) -> None:
    await stock.request("tea", Waiter("anna"))
    await stock.request("tea", Waiter("ben"))
    await accoda_jobs.drain()
    assert accoda_jobs.payloads("stock") == ["tea"]
    assert told == {"anna": 3, "ben": 3}
