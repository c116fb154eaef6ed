"""The application of Tarantool, broken on purpose in one place: a test of the conformance suite must notice."""

from __future__ import annotations

import pytest
from proof.servers.pytest import need
from proof.servers.tarantool import TarantoolServer
from tests.storage.suite_tests import (
    AS_IT_IS,
    BOUNDED,
    FAILURES,
    FENCED,
    FROM_ZERO,
    KEPT,
    LARGE,
    LAST_HOLDER,
    MOMENT,
    NEW_RANK,
    NOT_COUNTED,
    NOT_OF_REFUSED,
    OF_CANCELLED,
    OF_DEAD,
    OF_DONE,
    OF_PURGED,
    OF_REVIVED,
    OLDEST,
    ONCE,
    PROMOTED,
    STILL_TO_COME,
    STRICT,
    THEN_REPORT,
    TO_FAIL,
    run,
)

from accoda.storage.tarantool import application

REVIVED = "TestWait.test_wakes_for_a_revival"
NEW_PLACE = "TestBrowseInLine.test_follows_a_new_rank"
RAN_BEFORE = "TestLaneLimit.test_jobs_that_ran_before_the_rules_count"
NEXT_IN = "TestPlaceInALane.test_whatever_ends_a_run_lets_the_next_in_with_the_same_step way=done"
BETTER = "TestPlaceInALane.test_a_better_job_takes_the_place_of_a_worse_one_in_the_line"
HEARS_OF_A_PLACE = "TestPlaceInALane.test_a_wait_in_another_handle_hears_of_a_place"
TOTAL = "TestTotal.test_so_many_run_at_once_with_a_lane_or_without"
FULL = "TestTotal.test_a_wait_sleeps_until_one_has_ended"
EXACT = "TestFairLanes.test_a_turn_is_exact"
BY_NAME = "TestFairLanes.test_the_lanes_of_a_step_come_by_name"
BY_RANK = "TestFairLanes.test_a_call_is_one_step"
SHARED_PLACE = "TestSharedLimits.test_a_start_time_elsewhere_takes_the_place"
SHARED_BEST = "TestSharedLimits.test_the_best_job_of_all_of_them_comes_in"
SHARED_LEASE = "TestSharedLimits.test_so_does_the_end_of_a_lease_though_nobody_looks_at_its_queue"
LOWEST = "TestSharedLimits.test_the_lowest_limit_holds"

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
    "start of a job that has started": ("verbs/change.lua", "local job = app.balanced(tx, app.current(tx, id))",
                                        "local job = box.space.accoda_jobs:get(id)", STILL_TO_COME),
    "change wakes no wait": (
        "verbs/change.lua", "tx.touched[queue.name] = tx.touched[queue.name] or true", "", REVIVED,
    ),
    "revive keeps the tries": ("verbs/change.lua", "[f.TRIES] = 0, ", "", FROM_ZERO),
    "rerank keeps the place": (
        "shared/3_jobs.lua", "ops[2], ops[3] = {'=', STATE, state}, {'=', SORT, sort}", "", NEW_PLACE,
    ),
    "promotions uncounted": (
        "shared/3_jobs.lua", "app.count(tx, job[QUEUE], app.count_of.PROMOTED, 1)", "", PROMOTED,
    ),
    "rerank ignored": ("verbs/enqueue.lua", "app.rerank(tx, held, new[3])", "", NEW_RANK),
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
        "verbs/change.lua", "app.report(tx, app.move(tx, job, ops), 'revived')",
        "app.move(tx, job, ops) app.report(tx, job, 'revived')", OF_REVIVED,
    ),
    "the end of a kept job is reported twice": ("shared/3_jobs.lua", "if job[STATE] <= app.DEAD then", "do", ONCE),
    "the report before the follow-ups": (
        "verbs/settle.lua", "    local jobs = {}",
        "    if tx.reports ~= nil then app.store_reports(tx) end tx.reports = nil local jobs = {}", THEN_REPORT,
    ),
    "taken jobs have no place": (
        "shared/9_lanes.lua", "(others or by_rank:count({no, lane}))", "by_rank:count({no, lane, READY})", RAN_BEFORE,
    ),
    "an end frees no place": ("shared/9_lanes.lua", "        note(tx, row[QUEUE], row[LANE])", "", NEXT_IN),
    "the first stays in the line": ("shared/9_lanes.lua", "not is_before(last, other)", "true", BETTER),
    "a place wakes no wait": ("shared/9_lanes.lua", "filled[no] = true", "", HEARS_OF_A_PLACE),
    "total is not counted": ("verbs/take.lua", "math.min(count, app.room(queue))", "count", TOTAL),
    "a full queue has a head": ("verbs/look.lua", " and app.room(queue) > 0", "", TOTAL),
    "no sleep in a full queue": ("verbs/wait.lua", " and app.room(queue) > 0", "", FULL),
    "room wakes no wait": ("verbs/settle.lua", "tx.touched[names[i]] = true", "", FULL),
    "a whole first turn": ("shared/8_lane_rules.lua", "length * NEWCOMER", "length", EXACT),
    "a turn after the first": ("shared/8_lane_rules.lua", "last ~= nil and last + length or ", "", EXACT),
    "lanes from the last": (
        "shared/9_lanes.lua", "table.sort(names)", "table.sort(names, function(a, b) return a > b end)", BY_NAME,
    ),
    "a lane's jobs as they come": ("shared/9_lanes.lua", "table.sort(held, is_before)", "", BY_RANK),
    "taken jobs of one queue": (
        "shared/9_lanes.lua", "sum = sum + (others", "sum = (others", SHARED_PLACE,
    ),
    "the best of one queue": ("shared/9_lanes.lua", "for i = 2, #group do", "for i = 3, #group do", SHARED_BEST),
    "leases of one queue end": (
        "shared/3_jobs.lua", "app.group_of(queue.no) or {queue.no}", "{queue.no} or {queue.no}", SHARED_LEASE,
    ),
    "the limit of one queue": ("shared/8_lane_rules.lua", "math.min(lowest, tonumber", "math.max(0, tonumber", LOWEST),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_mutant_fails_the_test_that_is_said_to_catch_it(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file, old, new, test = MUTANTS[mutant]
    sources = dict(application.parts())
    assert old in sources[file], f"{file} no longer has {old!r}: change this mutant with it"
    sources[file] = sources[file].replace(old, new)
    monkeypatch.setattr(application, "parts", lambda: tuple(sources.items()))
    with need(TarantoolServer) as server, pytest.raises(FAILURES):
        await run(test, server.url, seconds=TO_FAIL)


async def test_the_same_tests_pass_without_a_mutant() -> None:
    for test in sorted({test for *_, test in MUTANTS.values()}):
        with need(TarantoolServer) as server:
            await run(test, server.url)
