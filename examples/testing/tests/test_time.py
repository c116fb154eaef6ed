from datetime import UTC, datetime, timedelta

import pytest
from shop.jobs import Order, confirm, digest, mail, place, remind, ship

from accoda import Trial


def test_a_reminder_is_sent_after_a_week(accoda_jobs: Trial) -> None:
    place(Order(17, "tea"))
    accoda_jobs.sync.drain()
    accoda_jobs.advance(days=7)
    accoda_jobs.sync.drain()
    assert ("anna@example.com", "How do you like your tea?") in mail.sent


def test_a_greylisted_email_is_sent_a_minute_later(accoda_jobs: Trial) -> None:
    mail.greylisted = True
    confirm.sync.enqueue(Order(17, "tea"))
    accoda_jobs.sync.drain()
    mail.greylisted = False
    accoda_jobs.advance(minutes=1)
    accoda_jobs.sync.drain()
    assert [run.ended for run in accoda_jobs.runs(confirm)] == ["failed", "done"]


def test_a_server_that_is_away_for_good_is_given_up(accoda_jobs: Trial) -> None:
    mail.greylisted = True
    confirm.sync.enqueue(Order(17, "tea"))
    accoda_jobs.sync.drain(with_scheduled=True)  # from one try to the next, until none is left
    assert len(accoda_jobs.runs(confirm)) == 3
    accoda_jobs.assert_dead(confirm, "try again later")


@pytest.mark.accoda(now=datetime(2030, 1, 1, tzinfo=UTC))
def test_the_digest_is_sent_at_seven(accoda_jobs: Trial) -> None:
    accoda_jobs.sync.drain()  # stores the schedule, as a worker does when it starts
    accoda_jobs.travel_to(datetime(2030, 1, 1, 5, 59, tzinfo=UTC))
    accoda_jobs.sync.drain()
    assert accoda_jobs.runs(digest) == []
    accoda_jobs.advance(minutes=1)  # 7 o'clock in Rome
    accoda_jobs.sync.drain()
    assert len(accoda_jobs.runs(digest)) == 1


def test_parcels_wait_for_the_carrier_s_budget(accoda_jobs: Trial) -> None:
    start = accoda_jobs.now
    ship.sync.enqueue_many([Order(n, "tea") for n in range(4)])
    assert accoda_jobs.sync.drain() == 2
    assert accoda_jobs.sync.drain(with_scheduled=True) == 2
    assert accoda_jobs.now - start <= timedelta(minutes=1)


def test_a_moment_that_the_code_computes(accoda_jobs: Trial) -> None:
    remind.sync.enqueue(Order(17, "tea"), at=datetime(2031, 5, 1, 9, tzinfo=UTC))
    accoda_jobs.travel_to(accoda_jobs.assert_enqueued(remind).starts_at)
    assert accoda_jobs.sync.drain() == 1
