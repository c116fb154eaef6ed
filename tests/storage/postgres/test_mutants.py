"""The functions of PostgreSQL, broken on purpose in one place: a test of the conformance suite must notice."""

from __future__ import annotations

import asyncpg
import pytest
from proof.servers.postgres import PostgresServer
from tests.storage.suite_tests import (
    FAILURES,
    LARGE,
    LAST_HOLDER,
    MOMENT,
    NEW_RANK,
    OF_CANCELLED,
    OF_DEAD,
    OF_DONE,
    OF_PURGED,
    OF_REVIVED,
    ONCE,
    THEN_REPORT,
    TO_FAIL,
    run,
)

from accoda import open_storage

LATE = "TestLeaseEnd.test_is_too_late_for_the_holder_even_before_anyone_looks"
LATE_HOLDER = "TestLateHolderOfACancelledJob.test_is_told_so_until_the_record_is_gone"
ENDED = "TestCrashes.test_is_not_taken_back_when_the_job_has_ended state=dead"
PROMOTED = "TestPromoted.test_counts_a_job_that_a_call_names_after_its_time way=replace"
IN_ORDER = "TestReportsOfMany.test_each_flow_hears_of_its_own_jobs_in_the_order_of_the_outcomes"
REPORT_WAKES = "TestReportsOfMany.test_a_report_wakes_who_waits_for_it"
RAN_BEFORE = "TestLaneLimit.test_jobs_that_ran_before_the_rules_count"
OWN_LIMIT = "TestLaneLimit.test_limits_of_single_lanes_win"
LOWER_LIMIT = "TestLaneLimit.test_a_lower_limit_holds_back_what_is_in_the_line"
LETS_IN = "TestPlaceInALane.test_whatever_ends_a_run_lets_the_next_in_with_the_same_step"
BETTER = "TestPlaceInALane.test_a_better_job_takes_the_place_of_a_worse_one_in_the_line"
COMES_BACK = "TestPlaceInALane.test_a_job_that_comes_back_at_once_stands_where_its_rank_says"
RERANKED = "TestFairLanes.test_a_new_rank_is_another_turn"
TOTAL = "TestTotal.test_so_many_run_at_once_with_a_lane_or_without"
EXACT = "TestFairLanes.test_a_turn_is_exact"
BY_NAME = "TestFairLanes.test_the_lanes_of_a_step_come_by_name"
SO_MANY = "TestLaneLimit.test_of_each_lane_so_many_are_in_the_line_and_the_others_are_held"
IN_TURN = "TestPromise12ALaneIsNeverOverfullNorStuck.test_workers_that_die_leave_their_places"
OF_ALL = "TestSharedLimits.test_a_place_is_taken_for_all_of_them"
LOWEST = "TestSharedLimits.test_the_lowest_limit_holds"
LEASE_ELSEWHERE = "TestSharedLimits.test_so_does_the_end_of_a_lease_though_nobody_looks_at_its_queue"
WAIT_ELSEWHERE = "TestSharedLimits.test_waiting_ends_with_the_lease_of_another_queue"

_SAME_TAKE = "AND j.taken_at = takes[width_bucket(j.id, ids)]"

# What is broken: the function, a piece of it, what replaces the piece, and the test that must fail.
MUTANTS = {
    "done forgets the moment": ("finish_jobs", _SAME_TAKE, "", MOMENT),
    "retry forgets the moment": ("retry_jobs", _SAME_TAKE, "", MOMENT),
    "bury forgets the moment": ("bury_jobs", _SAME_TAKE, "", MOMENT),
    "extend forgets the moment": ("extend", "(j.id, j.attempts, j.taken_at,", "(j.id, j.attempts, takes[1],", MOMENT),
    "the verdict forgets the moment": ("why_refused", "AND j.taken_at = took", "", LAST_HOLDER),
    "a cancelled job is told of when it is gone": ("why_refused", "AND j.sort > moment", "", LATE_HOLDER),
    "done after the end of the lease": ("finish_jobs", "AND j.sort > moment", "", LATE),
    "a crash of a dead job is taken back": ("change", "AND j.state < 3 AND j.crashes", "AND j.crashes", ENDED),
    "a job that is replaced late is not promoted": ("replace_job", "overdue * (held.state = 1)::int", "0", PROMOTED),
    "rerank ignored": ("rerank_job", "rank = new_rank,", "rank = r.rank,", NEW_RANK),
    "done is not reported": ("finish_jobs", "reports := reports || r.reports", "NULL", OF_DONE),
    "a dead job is not reported": ("bury_jobs", "reports := reports || r.reports", "NULL", OF_DEAD),
    "a report without the key": ("report", "size, key)", "size)", OF_DONE),
    "every result is in the report": ("report_done", "BETWEEN 0 AND 32768", ">= 0", LARGE),
    "purge reports nothing": ("purge", "PERFORM store_reports(moment, told);", "", OF_PURGED),
    "a cancelled job is not reported": (
        "change", "told := told || report('cancelled',", "PERFORM report('',", OF_CANCELLED,
    ),
    "a revived job has its old token": ("change", "j.attempts + 1, moment", "j.attempts, moment", OF_REVIVED),
    "the end of a kept job is reported twice": ("change", "IF j.state < 4 AND", "IF", ONCE),
    "the report before the follow-ups": (
        "settle", "accepted || jobs_that_report(in_turn(told, ids, verdicts, turns))",
        "jobs_that_report(in_turn(told, ids, verdicts, turns)) || accepted", THEN_REPORT,
    ),
    "reports of the dead first": ("in_turn", "ORDER BY coalesce(o.turn, o.place)", "ORDER BY r.wire", IN_ORDER),
    "a running job has no place": ("balance_lanes", "AND t.state = 2", "AND t.state = 3", RAN_BEFORE),
    "the limit of a lane is ignored": ("limit_of", "rules.limits ? lane", "false", OWN_LIMIT),
    "a lower limit holds no one back": ("balance_lanes", "n.free < 0 OR", "", LOWER_LIMIT),
    "a better job waits": ("balance_lanes", "OR n.is_worse", "", BETTER),
    "a job that is done leaves its lane as it is": (
        "finish_jobs", "touched := touched || r.lanes || r.with_total", "NULL", f"{LETS_IN} way=done",
    ),
    "a dead job leaves its lane as it is": (
        "bury_jobs", "touched := touched || r.lanes || r.with_total", "NULL", f"{LETS_IN} way=bury",
    ),
    "a retried job leaves its lane as it is": ("retry_jobs", "touched := touched || r.lanes", "NULL", COMES_BACK),
    "a purge leaves lanes as they are": ("purge", "due.touched || gone.touched", "due.touched", f"{LETS_IN} way=purge"),
    "a job with another rank stays in the line": ("rerank_job", "r.lane IS NOT NULL", "false", RERANKED),
    "a take ignores the total": ("room_in", "r.total IS NOT NULL", "false", TOTAL),
    "a turn is not taken": ("let_in", "turns[width_bucket(j.id, l.ids)]", "j.rank", RERANKED),
    "a newcomer waits for a whole turn": ("turns_of", "r.length * newcomer", "r.length", EXACT),
    "new jobs fit into a full lane": ("entries_of", "<= m.most - b.comers", "<= m.most", SO_MANY),
    "new jobs come in before lanes of lower names": (
        "entries_of", "OVER (ORDER BY l.lane)", "OVER (PARTITION BY l.lane)", IN_TURN,
    ),
    "each job has the turn of the first of its lane": ("turns_of", "last := greatest(last, turn);", "", EXACT),
    "a run that ends lets no one in": ("balance", "h.state = -1", "h.state = -2", f"{LETS_IN} way=done"),
    "a lane that holds no one has no limit": ("balance", "bool_and(note ^@ '-')", "true", RAN_BEFORE),
    "lanes are rearranged after all were filled": (
        "balance_lanes", "IF NOT moves.surplus THEN", "IF let_in(q, coalesce(moves.chosen, '{}')) THEN", BY_NAME,
    ),
    "jobs that run in another queue have no place": (
        "rearrange_lane", "unnest(queues) q, LATERAL", "unnest(queues[:1]) q, LATERAL", OF_ALL,
    ),
    "the limit of one queue holds": ("rearrange_lane", "l.queue = ANY (queues)", "l.queue = queues[1]", LOWEST),
    "a take applies what is due in its queue alone": (
        "apply_group_due", "own.shared IS NOT NULL", "false", LEASE_ELSEWHERE,
    ),
    "a wait ignores the leases of other queues": ("wait", "r.shared IS NOT NULL AND", "false AND", WAIT_ELSEWHERE),
    "a report wakes no one": ("store_reports", "PERFORM notify_queues('{+accoda.flows}');", "", REPORT_WAKES),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_mutant_fails_the_test_that_is_said_to_catch_it(
    mutant: str, url: str, schema: str, sql: asyncpg.Connection
) -> None:
    function, old, new, test = MUTANTS[mutant]
    await (await open_storage(url)).close()  # makes the functions
    text = await sql.fetchval("SELECT pg_get_functiondef($1::regproc)", f"{schema}.{function}")
    assert old in text, f"{function} no longer has {old!r}: change this mutant with it"
    await sql.execute(f'SET search_path = "{schema}"')  # for the types of its arguments
    await sql.execute(text.replace(old, new))
    with pytest.raises(FAILURES):
        await run(test, url, seconds=TO_FAIL)


async def test_the_same_tests_pass_without_a_mutant(server: PostgresServer) -> None:
    for number, test in enumerate(sorted({test for *_, test in MUTANTS.values()})):
        await run(test, f"{server.url}?schema=whole_{number}")
