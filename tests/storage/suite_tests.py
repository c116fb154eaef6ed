"""Tests of the conformance suite that catch mutants of several storages, and how to run one on a store.

A test is written as `TestClass.test_method`, with what it is parametrized by behind it: `state=dead way=purge`.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from accoda import open_storage
from accoda.model import RESULT_IN_REPORT, Cancel
from accoda.testing import conformance
from accoda.testing.store_fixture import ManualStoreFixture

BOUNDED = "TestStorm.test_one_call_applies_a_bounded_part_over_all_its_queues"
FENCED = "TestStorm.test_no_ended_lease_is_good_though_its_return_is_not_applied"
MOMENT = (
    "TestPromise03ALateHolderChangesNothing.test_a_lease_of_another_moment_is_lost_though_id_and_attempts_are_right"
)
OLDEST = "TestStorm.test_the_oldest_moments_come_first"
LAST_HOLDER = "TestLateHolderOfACancelledJob.test_is_told_only_if_it_was_the_last"
KEPT = "TestStorm.test_of_kept_results_leaves_none"
AS_IT_IS = "TestStorm.test_a_look_at_a_key_and_a_removal_see_that_job_as_it_is"
STILL_TO_COME = "TestStorm.test_a_start_now_counts_only_what_is_still_to_come"
STRICT = "TestRetention.test_the_moment_itself_is_not_before_it"
NOT_OF_REFUSED = "TestBury.test_that_is_refused_enqueues_nothing"
FROM_ZERO = "TestBeginningAgain.test_revive_sets_both_to_zero"
NOT_COUNTED = "TestTries.test_a_retry_that_does_not_count_is_none"
PROMOTED = "TestPromoted.test_counts_delayed_jobs_that_became_ready_by_their_time"
NEW_RANK = "TestKeys.test_rerank_holds_when_a_running_job_comes_back way=retry"
OF_DONE = "TestReports.test_a_done_job_is_reported_with_its_result"
OF_DEAD = "TestReports.test_a_dead_job_is_reported_with_the_reason"
OF_PURGED = "TestReports.test_purged_jobs_are_reported state=dead"
OF_CANCELLED = "TestReports.test_a_job_that_is_taken_back_is_reported state=ready end=Cancel"
OF_REVIVED = "TestReports.test_a_revived_job_is_reported_and_reports_again"
ONCE = "TestReports.test_an_end_is_reported_once_though_the_job_was_kept state=done way=remove"
THEN_REPORT = "TestReportsOfMany.test_follow_ups_come_before_the_report"
LARGE = "TestReports.test_a_large_result_is_not_in_the_report size=large"

FAILURES = (AssertionError, ValueError, TimeoutError)
"""How a test fails on a mutant. ValueError: not the expected number of records."""

_VALUES: dict[str, Any] = {"Cancel": Cancel, "large": RESULT_IN_REPORT + 1}  # arguments that are no texts


TO_FAIL = 3.0
"""Seconds for a test that is expected to fail: one that waits for what a mutant never does takes all of them."""


async def call(suite: Any, test: str, *, seconds: float = 20, **available: Any) -> None:
    """One test of a module, with the fixtures and the arguments that it asks for."""
    place, *arguments = test.split()
    group, _, name = place.partition(".")
    for argument in arguments:
        key, _, value = argument.partition("=")
        available[key] = _VALUES.get(value, value)
    method = getattr(getattr(suite, group)(), name)
    wanted = inspect.signature(method).parameters
    async with asyncio.timeout(seconds):
        await method(**{key: value for key, value in available.items() if key in wanted})


async def run(test: str, url: str, *, seconds: float = 20) -> None:
    """One test of the suite, on the store of this URL."""
    fixture = ManualStoreFixture(lambda clock: open_storage(url, clock=clock), url=url, shared=True)
    async with await fixture.open() as store:
        await call(conformance, test, seconds=seconds, store=store, fixture=fixture)
