"""The application of Tarantool, broken on purpose in one place: a test of the conformance suite must notice."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from proof.servers.pytest import need
from proof.servers.tarantool import TarantoolServer

from accoda import open_storage
from accoda.model import RESULT_IN_REPORT, Cancel
from accoda.storage.tarantool import application
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
REVIVED = "TestWait.test_wakes_for_a_revival"
FROM_ZERO = "TestBeginningAgain.test_revive_sets_both_to_zero"
NOT_COUNTED = "TestTries.test_a_retry_that_does_not_count_is_none"
NEW_PLACE = "TestBrowseInLine.test_follows_a_new_rank"
PROMOTED = "TestPromoted.test_counts_delayed_jobs_that_became_ready_by_their_time"
NEW_RANK = "TestKeys.test_rerank_holds_when_a_running_job_comes_back"
OF_DONE = "TestReports.test_a_done_job_is_reported_with_its_result"
OF_DEAD = "TestReports.test_a_dead_job_is_reported_with_the_reason"
OF_PURGED = "TestReports.test_purged_jobs_are_reported"
OF_CANCELLED = "TestReports.test_a_job_that_is_taken_back_is_reported"
OF_REVIVED = "TestReports.test_a_revived_job_is_reported_and_reports_again"
ONCE = "TestReports.test_an_end_is_reported_once_though_the_job_was_kept"
THEN_REPORT = "TestReportsOfMany.test_follow_ups_come_before_the_report"
LARGE = "TestReports.test_a_large_result_is_not_in_the_report"

# What tests are parametrized by.
USUAL: dict[str, Any] = {"way": "retry"}
PARAMETERS: dict[str, dict[str, Any]] = {
    "test_an_end_is_reported_once_though_the_job_was_kept": {"state": "done", "way": "remove"},
    "test_a_job_that_is_taken_back_is_reported": {"state": "ready", "end": Cancel},
    "test_purged_jobs_are_reported": {"state": "dead"},
    "test_a_large_result_is_not_in_the_report": {"size": RESULT_IN_REPORT + 1},
}

# What is broken: the file, a piece of it, what replaces the piece, and the test that must fail.
MUTANTS = {
    "cancelled at another moment": ("shared/3_jobs.lua", "job[f.TAKEN_AT] == taken_at and ", "", LAST_HOLDER),
    "unbounded": ("shared/1_transaction.lua", "may_move = app.DUE_AT_ONCE", "may_move = 1e9", BOUNDED),
    "late outcome": ("shared/3_jobs.lua", "job[SORT] <= tx.now or ", "", FENCED),
    "another moment": ("shared/3_jobs.lua", " or job[f.TAKEN_AT] ~= taken_at", "", MOMENT),
    "youngest first": (
        "shared/3_jobs.lua", "line:pairs({no, state})", "line:pairs({no, state}, {iterator = 'REQ'})", OLDEST,
    ),
    "kept for ever": ("shared/3_jobs.lua", "    forget_kept(tx, no)", "    --", KEPT),
    "named job not up to date": ("shared/3_jobs.lua", "due_at(job) <= tx.now then", "false then", AS_IT_IS),
    "start of a job that has started": ("verbs/change.lua", "local job = app.current(tx, id)",
                                        "local job = box.space.accoda_jobs:get(id)", STILL_TO_COME),
    "change wakes no wait": ("verbs/change.lua", "tx.touched[queue.name] = true", "", REVIVED),
    "revive keeps the tries": ("verbs/change.lua", "[f.TRIES] = 0, ", "", FROM_ZERO),
    "rerank keeps the place": ("shared/3_jobs.lua", "ops[2] = {'=', SORT, rank}", "", NEW_PLACE),
    "promotions uncounted": (
        "shared/3_jobs.lua", "app.count(tx, job[QUEUE], app.count_of.PROMOTED, 1)", "", PROMOTED,
    ),
    "rerank ignored": ("verbs/enqueue.lua", "app.rerank(held, new[3])", "", NEW_RANK),
    "purge too much": ("verbs/purge.lua", ">= before", "> before", STRICT),
    "follow-ups of refused outcomes": ("verbs/settle.lua", "if not is_refused[each[1]] then", "do", NOT_OF_REFUSED),
    "every retry counts": ("verbs/settle.lua", "if counts then", "do", NOT_COUNTED),
    "done is not reported": ("verbs/settle.lua", "app.report_done(tx, job, result)", "", OF_DONE),
    "a dead job is not reported": ("verbs/settle.lua", "app.report(tx, job, 'dead', reason)", "", OF_DEAD),
    "a report without the key": ("shared/7_reports.lua", "head .. job[f.KEY] ..", "head ..", OF_DONE),
    "every result is in the report": ("shared/7_reports.lua", "#result <= RESULT_IN_REPORT", "true", LARGE),
    "purge reports nothing": ("verbs/purge.lua", "app.remove(tx, job)", "app.forget(tx, job)", OF_PURGED),
    "a cancelled job is not reported": ("verbs/change.lua", "app.report(tx, job, 'cancelled')", "", OF_CANCELLED),
    "a revived job has its old token": (
        "verbs/change.lua", "app.report(tx, box.space.accoda_jobs:update(job[f.ID], ops), 'revived')",
        "box.space.accoda_jobs:update(job[f.ID], ops); app.report(tx, job, 'revived')", OF_REVIVED,
    ),
    "the end of a kept job is reported twice": ("shared/3_jobs.lua", "if job[STATE] <= app.DEAD then", "do", ONCE),
    "the report before the follow-ups": (
        "verbs/settle.lua", "    local jobs = {}",
        "    if tx.reports ~= nil then app.store_reports(tx) end tx.reports = nil local jobs = {}", THEN_REPORT,
    ),
}  # fmt: skip


async def run(test: str, url: str) -> None:
    """One test of the suite, with the fixtures that it asks for."""
    suite, _, name = test.partition(".")
    method = getattr(getattr(conformance, suite)(), name)
    fixture = ManualStoreFixture(lambda clock: open_storage(url, clock=clock), url=url, shared=True)
    async with await fixture.open() as store:
        available: dict[str, Any] = {"store": store, "fixture": fixture, **PARAMETERS.get(name, USUAL)}
        async with asyncio.timeout(20):
            await method(**{each: available[each] for each in inspect.signature(method).parameters})


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_mutant_fails_the_test_that_is_said_to_catch_it(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file, old, new, test = MUTANTS[mutant]
    sources = dict(application.parts())
    assert old in sources[file], f"{file} no longer has {old!r}: change this mutant with it"
    sources[file] = sources[file].replace(old, new)
    monkeypatch.setattr(application, "parts", lambda: tuple(sources.items()))
    with need(TarantoolServer) as server, pytest.raises((AssertionError, ValueError, TimeoutError)):
        await run(test, server.url)


async def test_the_same_tests_pass_without_a_mutant() -> None:
    for test in sorted({test for *_, test in MUTANTS.values()}):
        with need(TarantoolServer) as server:
            await run(test, server.url)
