from shop.jobs import Order, confirm, mail, place, remind

from accoda import Trial


def test_an_order_is_confirmed_at_once_and_asked_about_in_a_week(accoda_jobs: Trial) -> None:
    place(Order(17, "tea"))
    accoda_jobs.assert_enqueued(confirm, Order(17, "tea"), priority="HIGH", headers={"shop": "rome"})
    accoda_jobs.assert_enqueued(remind, delay=7 * 86_400)
    accoda_jobs.refute_enqueued(confirm, Order(18, "tea"))


def test_a_confirmation_is_an_email(accoda_jobs: Trial) -> None:
    place(Order(17, "tea"))
    assert accoda_jobs.sync.drain() == 1  # the reminder starts later
    assert mail.sent == [("anna@example.com", "Order 17")]
    accoda_jobs.assert_no_failures()


def test_a_reminder_names_the_item(accoda_jobs: Trial) -> None:
    place(Order(17, "tea"))
    job = accoda_jobs.assert_enqueued(remind)
    assert job.payload.item == "tea"
    assert job.state == "delayed"
