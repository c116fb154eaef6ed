"""Retry rules, and what becomes of a job after a run."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from accoda import (
    Bury,
    BuryJob,
    Done,
    Exponential,
    Fixed,
    InvalidInput,
    Job,
    Lease,
    Priority,
    Retry,
    RetryLater,
    WorkerStopped,
    aging,
)
from accoda.errors import RateLimited
from accoda.retry import Failed, Finished, Limits, decide, describe, give_up, quarantine, quarantine_pause, rule


def job(tries: int = 0, crashes: int = 0, given_back: int = 0) -> Job:
    attempts = tries + crashes + given_back
    lease = Lease("emails", 7, attempts, 0)
    return Job(7, "emails", b"", 0.0, 0, None, attempts, 0, 0, None, 0, lease, tries, crashes)


BOOM = ValueError("boom")


def test_a_run_that_went_well_is_done() -> None:
    assert decide(job(), Finished(b"42"), Limits()) == Done(job().lease, (), b"42")


def test_a_failure_is_retried_without_limit_by_default() -> None:
    outcome = decide(job(tries=10_000), Failed(BOOM), Limits(rule=Fixed(30)))
    assert outcome == Retry(job(10_000).lease, delay=30, reason="ValueError: boom")


def test_the_last_try_that_a_limit_allows_buries_the_job() -> None:
    limits = Limits(rule=Fixed(1), max_attempts=3)
    assert isinstance(decide(job(tries=1), Failed(BOOM), limits), Retry)
    outcome = decide(job(tries=2), Failed(BOOM), limits)
    assert outcome == Bury(job(2).lease, "failed 3 times, the last time with ValueError: boom")


def test_a_job_that_was_given_back_has_not_tried() -> None:
    limits = Limits(rule=Exponential(first=1, jitter=False), max_attempts=3)
    outcome = decide(job(tries=1, given_back=50), Failed(BOOM), limits)
    assert outcome == Retry(job(51).lease, delay=2, reason="ValueError: boom")
    assert give_up(job(tries=2, given_back=50), limits) is None


def test_a_handler_may_say_when() -> None:
    later = decide(job(), Failed(RetryLater("busy", delay=timedelta(minutes=2))), Limits())
    assert later == Retry(job().lease, delay=120.0, reason="RetryLater: busy")
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert decide(job(), Failed(RetryLater(at=at)), Limits()).at == 1_893_456_000_000  # type: ignore[union-attr]


def test_a_handler_may_ask_for_a_new_priority() -> None:
    asked = Failed(RetryLater("busy", delay=9, priority=Priority.LOW))
    assert decide(job(), asked, Limits()) == Retry(job().lease, delay=9, reason="RetryLater: busy", rank=3.0)
    old = replace(job(), created_at=5_000, start_time=7_000, rank=7_000.0)
    outcome = decide(old, Failed(RetryLater(at=9_000, priority=Priority.HIGH)), Limits(policy=aging))
    assert isinstance(outcome, Retry) and outcome.rank == 1_007_000, "it keeps its age, which counts from its start"
    by_rule = decide(job(), Failed(RetryLater(priority=Priority.CRITICAL)), Limits(rule=Fixed(4)))
    assert isinstance(by_rule, Retry) and (by_rule.delay, by_rule.rank) == (4, 0.0)
    outcome = decide(job(), Failed(RetryLater(delay=1, priority=17)), Limits(rule=Fixed(4)))
    assert isinstance(outcome, Retry) and (outcome.delay, outcome.rank) == (4, None)
    assert "priority: must be one of CRITICAL" in outcome.reason


def test_a_wish_that_cannot_be_granted_leaves_the_rule_in_charge() -> None:
    outcome = decide(job(), Failed(RetryLater(delay=-5)), Limits(rule=Fixed(9)))
    assert isinstance(outcome, Retry)
    assert outcome.delay == 9
    assert "seconds >= 0" in outcome.reason


def test_a_handler_may_bury_at_once() -> None:
    assert decide(job(), Failed(BuryJob("no such user")), Limits()) == Bury(job().lease, "no such user")


def test_a_rule_may_bury_by_the_error() -> None:
    def not_for_values(tries: int, error: BaseException) -> float | None:
        return None if isinstance(error, ValueError) else 1.0

    assert isinstance(decide(job(), Failed(BOOM), Limits(rule=not_for_values)), Bury)
    assert isinstance(decide(job(), Failed(KeyError("x")), Limits(rule=not_for_values)), Retry)


def test_a_rule_that_fails_itself_loses_no_job_and_does_not_spin() -> None:
    outcome = decide(job(), Failed(BOOM), Limits(rule=lambda tries, error: 1 / 0))
    assert isinstance(outcome, Retry)
    assert outcome.delay == 3600
    assert "retry rule failed: ZeroDivisionError" in outcome.reason


def test_a_worker_that_stops_gives_the_job_back_at_once_whatever_the_limit() -> None:
    outcome = decide(job(tries=2), Failed(WorkerStopped("the worker stopped")), Limits(max_attempts=3))
    assert isinstance(outcome, Retry)
    assert (outcome.delay, outcome.counts) == (0, False)


def test_a_poison_job_is_given_up_before_it_runs_again_where_its_crashes_have_a_limit() -> None:
    assert give_up(job(crashes=4), Limits(max_crashes=5)) is None
    given_up = give_up(job(crashes=5), Limits(max_crashes=5))
    assert given_up is not None
    assert given_up.reason == "poison: its lease ended 5 times without an outcome; its worker may have died"
    assert give_up(job(crashes=10_000), Limits()) is None


def test_crashes_are_no_tries() -> None:
    limits = Limits(rule=Fixed(1), max_attempts=3)
    assert give_up(job(tries=1, crashes=50), limits) is None
    assert isinstance(decide(job(tries=1, crashes=50), Failed(BOOM), limits), Retry)
    outcome = decide(job(tries=2, crashes=50, given_back=7), Failed(BOOM), limits)
    assert outcome == Bury(job(59).lease, "failed 3 times, the last time with ValueError: boom")


def test_the_pauses_of_a_quarantine_double_up_to_an_hour() -> None:
    pauses = [quarantine_pause(crashes) for crashes in range(13)]
    assert pauses == [0, 0, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]
    assert quarantine_pause(10**9) == 3600


def crashed(crashes: int, started: int, before: int | None) -> Job:
    return replace(job(crashes=crashes), start_time=started, prev_start_time=before)


def test_a_job_is_quarantined_once_for_each_crash_until_its_pause_is_served() -> None:
    assert quarantine(crashed(1, 5_000, 4_000)) is None, "the first crash costs no pause"
    outcome = quarantine(crashed(2, 5_000, 4_000))
    assert outcome == Retry(
        job(crashes=2).lease,
        at=15_000,
        reason="quarantined: its lease ended 2 times without an outcome; it runs alone, after a pause of 10 s",
        counts=False,
    )
    # As the store has it after that retry, and after the crash that follows.
    assert quarantine(crashed(2, 15_000, 5_000)) is None
    again = quarantine(crashed(3, 17_000, 15_000))
    assert again is not None
    assert again.at == 37_000
    assert quarantine(crashed(3, 37_000, 17_000)) is None


def test_a_long_lease_is_a_pause_too() -> None:
    assert quarantine(crashed(4, 100_000, 60_000)) is None
    assert quarantine(crashed(5, 160_000, 100_000)) is not None


def test_a_clock_that_went_back_quarantines_nothing_that_needs_no_pause() -> None:
    assert quarantine(crashed(1, 4_000, 5_000)) is None


def test_rate_limited_comes_back_when_it_says_and_no_limit_of_attempts_buries_it() -> None:
    limits = Limits(max_attempts=3)
    outcome = decide(job(tries=2), Failed(RateLimited(retry_after=12)), limits)
    assert isinstance(outcome, Retry)
    assert (outcome.delay, outcome.reason, outcome.counts) == (12, "RateLimited: the API has had enough", False)
    moment = decide(job(tries=2), Failed(RateLimited(at=5)), limits)
    assert isinstance(moment, Retry)
    assert (moment.at, moment.counts) == (5, False)


def test_full_jitter_stays_between_zero_and_the_pause() -> None:
    drawn = [Exponential(first=1, longest=100)(5, BOOM) for _ in range(2_000)]
    assert 0 <= min(drawn) < 2
    assert 30 < max(drawn) <= 32
    assert Exponential(first=1, longest=100, jitter=False)(10_000, BOOM) == 100


@pytest.mark.parametrize("wrong", ["soon", -1, float("nan"), True])
def test_a_rule_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidInput):
        rule(wrong)  # type: ignore[arg-type]


class Rude(Exception):
    """An error that cannot even be told."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def test_an_error_whose_text_cannot_be_had_is_told_by_its_name() -> None:
    assert describe(Rude()) == "Rude: its text cannot be had (RuntimeError in __str__)"
