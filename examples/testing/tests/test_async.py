from shop.jobs import Order, confirm, mail, price

from accoda import Trial


async def test_an_async_test_awaits_what_it_drains(accoda_jobs: Trial) -> None:
    await confirm.enqueue(Order(17, "tea"))
    await accoda_jobs.drain()
    assert mail.sent == [("anna@example.com", "Order 17")]


async def test_a_result_of_a_job_that_was_drained(accoda_jobs: Trial) -> None:
    asked = await price.enqueue("tea")
    await accoda_jobs.drain()
    assert await asked.result() == 450
