"""What becomes of a call after a try."""

import msgspec
import pytest

from accoda.model import Bury, Done, Job, Lease, Retry
from accoda.webhooks.call import QUEUE, Delivered
from accoda.webhooks.decide import TRIES, Attempt, decide, pause, retry_after

NOW = 1_700_000_000_000


def job(tries: int = 0, attempts: int = 20) -> Job:
    return Job(1, QUEUE, b"", 0.0, 0, None, attempts, NOW, NOW, None, 0, Lease(QUEUE, 1, attempts, 0), tries)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_is_delivered(status: int) -> None:
    outcome = decide(job(), Attempt(status=status, ms=12, text="ok"), NOW)
    assert isinstance(outcome, Done) and outcome.result is not None
    assert msgspec.msgpack.decode(outcome.result, type=Delivered) == Delivered(status, 12, NOW, "ok")


@pytest.mark.parametrize("status", [100, 301, 302, 307, 400, 401, 404, 408, 409, 429, 500, 503, 599])
def test_other_answers_are_tried_again(status: int) -> None:
    assert isinstance(decide(job(), Attempt(status=status), NOW), Retry)


def test_gone_is_final_and_so_is_a_refusal() -> None:
    gone = decide(job(), Attempt(status=410, reason="Gone"), NOW)
    assert isinstance(gone, Bury) and "wants no more calls" in gone.reason
    assert isinstance(decide(job(), Attempt(reason="no", final=True), NOW), Bury)


def test_a_redirect_says_that_it_is_not_followed_and_where_it_leads() -> None:
    outcome = decide(job(), Attempt(status=302, reason="Found", location="http://169.254.169.254/"), NOW)
    assert isinstance(outcome, Retry)
    assert outcome.reason.startswith("HTTP 302 Found: a redirect to http://169.254.169.254/, and redirects are not")


def test_pauses_grow_and_ten_tries_take_about_a_day() -> None:
    pauses = [pause(tries) for tries in range(1, TRIES)]
    assert pauses == sorted(pauses) and 20 * 3600 < sum(pauses) < 26 * 3600
    for tries in range(TRIES - 1):
        for chance, part in ((0.0, 0.8), (0.5, 1.0), (1.0, 1.2)):
            outcome = decide(job(tries), Attempt(reason="x"), NOW, chance)
            assert isinstance(outcome, Retry) and outcome.delay == pytest.approx(pause(tries + 1) * part)
    last = decide(job(TRIES - 1), Attempt(reason="no connection"), NOW)
    assert last == Bury(Lease(QUEUE, 1, 20, 0), "no connection (given up after 10 tries)")


def test_only_tries_count_and_not_how_often_the_call_came_back() -> None:
    assert isinstance(decide(job(tries=9, attempts=9), Attempt(reason="x"), NOW), Bury)
    assert isinstance(decide(job(tries=8, attempts=900), Attempt(reason="x"), NOW), Retry)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120),
        (" 7 ", 7),
        ("999999999999999999999", 3600),
        ("-5", 0),
        ("1.5", 0),
        ("", 0),
        (None, 0),
        ("tomorrow", 0),
        ("٣", 0),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0),
        ("Tue, 14 Nov 2033 22:00:00 GMT", 3600),
        ("Tue, 99 Nov 2033 22:00:00 GMT", 0),
    ],
)
def test_retry_after_is_read_within_bounds(header: str | None, seconds: float) -> None:
    assert retry_after(header, NOW) == seconds


def test_retry_after_is_obeyed_and_never_spends_the_tries_faster() -> None:
    first = decide(job(), Attempt(status=429, retry_after="600"), NOW)
    late = decide(job(7), Attempt(status=429, retry_after="1"), NOW, 0.5)
    assert isinstance(first, Retry) and first.delay == 600
    assert isinstance(late, Retry) and late.delay == pytest.approx(pause(8))
