"""The scripts of Redis, broken on purpose in one place: a test of the suite, or of the outbox, must notice."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from proof.servers.pytest import need
from proof.servers.redis import ClusterSet, RedisServer
from tests.storage.redis import test_lanes, test_outbox
from tests.storage.suite_tests import (
    AS_IT_IS,
    BOUNDED,
    FENCED,
    FROM_ZERO,
    KEPT,
    LAST_HOLDER,
    MOMENT,
    NEW_RANK,
    NOT_COUNTED,
    NOT_OF_REFUSED,
    OF_PURGED,
    OF_REVIVED,
    OLDEST,
    PROMOTED,
    STILL_TO_COME,
    STRICT,
    THEN_REPORT,
    TO_FAIL,
    call,
    run,
)

from accoda import open_storage
from accoda.storage.redis import scripts
from accoda.storage.redis.lanes import LaneVerbs

GIVEN_BACK = "TestStorm.test_of_leases_gives_every_job_back_once"
CANCELLED = "TestStorm.test_of_cancelled_jobs_leaves_none"
DEAR_HEAD = "TestCost.test_a_dear_job_in_the_middle_stops_the_batch"
AT_MOST = "TestRetention.test_takes_no_more_than_the_limit state=taken"
DUE_BEFORE_A_LOOK = "TestLookAtTheHead.test_a_delayed_job_is_the_head_once_its_time_has_come"
REST = "TestLookAtWaiters.test_gives_the_rest_in_the_order_in_which_they_joined by=key"
NEWER = "TestAhead.test_newer_are_those_that_came_later_and_go_first"
COUNTED = "TestRemove.test_is_refused_if_more_wait_than_were_seen state=delayed"
FOLLOWED = "TestBury.test_enqueues_what_follows"
ONCE_IN_LINE = "TestStartNow.test_the_old_start_time_passes_without_a_trace"
GROWN = "TestGrown.test_done_is_refused_when_more_wait_than_were_seen"
OWN_LEASE = "TestKeys.test_replace_ends_the_lease_of_a_running_job"
IN_ONE_CALL = "TestKeys.test_duplicates_in_one_call_meet_each_other"
NEXT_PAGE = "TestBrowseInLine.test_begins_after_a_job_that_has_gone"
RESUMED = "TestPause.test_a_pause_with_an_end_ends_by_itself"
AGE = "TestOldestAge.test_is_the_age_of_the_ready_job_that_was_created_first"
WOKEN = "TestStartNow.test_wakes_a_wait"
VERSIONS = "TestDocuments.test_a_version_of_what_does_not_exist_is_refused"
ENDED = "TestTimeToLive.test_it_is_gone_at_the_exact_millisecond"
EXTENDED = "TestBrowseInLine.test_follows_an_extended_lease"
NOT_BELOW_ZERO = "TestCrashes.test_is_taken_back_by_a_worker_that_lives state=ready"
RETRIED = "TestRetryWithFollowUps.test_enqueues_what_follows_and_comes_back"
ONE_END = "TestReports.test_an_end_is_reported_once_though_the_job_was_kept state=done way=purge"
NO_END = "TestReports.test_a_refused_outcome_reports_nothing"
REPLACED = "TestReports.test_a_replaced_job_still_reports"
LEASE_STAYS = "TestCrashes.test_of_the_job_that_runs_can_be_taken_back_and_its_lease_stays"
SO_MANY = "TestLaneLimit.test_of_each_lane_so_many_are_in_the_line_and_the_others_are_held"
OWN_LIMITS = "TestLaneLimit.test_limits_of_single_lanes_win"
RAN_BEFORE = "TestLaneLimit.test_jobs_that_ran_before_the_rules_count"
RUNNING = "TestPlaceInALane.test_an_outcome_that_is_refused_frees_nothing"
LOWEST = "TestSharedLimits.test_the_lowest_limit_holds"
LEASE_ELSEWHERE = "TestSharedLimits.test_waiting_ends_with_the_lease_of_another_queue"
DUE_ELSEWHERE = "TestSharedLimits.test_so_does_the_end_of_a_lease_though_nobody_looks_at_its_queue"
BETTER = "TestPlaceInALane.test_a_better_job_takes_the_place_of_a_worse_one_in_the_line"
PLACE = "TestPlaceInALane.test_a_batch_frees_as_many_places_as_it_had"
LEASE_OVER = "TestPlaceInALane.test_the_end_of_a_lease_does_too"
PLACE_WAKES = "TestPlaceInALane.test_a_wait_is_no_waiting_for_what_is_held"
TOTAL = "TestTotal.test_so_many_run_at_once_with_a_lane_or_without"
TOTAL_WAKES = "TestTotal.test_a_wait_sleeps_until_one_has_ended"
TURNS = "TestFairLanes.test_lanes_take_turns"
LEVELS = "TestFairLanes.test_levels_stay_above_turns"
WEIGHTS = "TestFairLanes.test_a_heavy_lane_has_more_turns"
SHOWN = "TestFairLanes.test_a_turn_is_shown_and_orders_the_pages"

# What is broken: the file, a piece of it, what replaces the piece, and the test that must fail.
MUTANTS = {
    "cancelled at another moment": ("parts/lease.lua", " and job.taken_at == taken_at", "", LAST_HOLDER),
    "cancelled and kept for ever": ("parts/due.lua", "{'done', 'cancelled'}", "{'done'}", CANCELLED),
    "unbounded": ("parts/due.lua", "may_move = DUE_AT_ONCE", "may_move = 1e9", BOUNDED),
    "youngest first": (
        "parts/due.lua", "'ZRANGEBYSCORE', base .. ':delayed', '-inf', till",
        "'ZREVRANGEBYSCORE', base .. ':delayed', till, '-inf'", OLDEST,
    ),
    "promotions uncounted": ("parts/due.lua", "  Lease.count(base, 'promoted', #records)", "  --", PROMOTED),
    "rest of a batch": ("parts/due.lua", "if joined and at < #joined then", "if false then", GIVEN_BACK),
    "kept for ever": ("parts/due.lua", "    Due.forget_kept(base)", "    --", KEPT),
    "named job not up to date": ("parts/job.lua", "Lease.end_of(base, batch) <= now", "false", AS_IT_IS),
    "start of a job that has started": (
        "parts/job.lua", "tonumber(select(2, Placed.find(base, state, id))) <= now", "false", STILL_TO_COME,
    ),
    "started job wakes no wait": ("parts/job.lua", "call('PUBLISH', base .. ':wake', '')", "--", WOKEN),
    "replaced run keeps its lease": ("parts/add.lua", "    Record.give_back(job, run.start)", "    --", OWN_LEASE),
    "rerank ignored": ("parts/add.lua", "      Job.rerank(", "      tostring(", NEW_RANK),
    "key of the same call": ("parts/add.lua", "call('HSET', base .. ':keys', key, id)", "--", IN_ONE_CALL),
    "expensive jobs are skipped": ("take.lua", "return n - 1", "left = left + (tonumber(job.cost) or 0)", DEAR_HEAD),
    "late outcome": ("settle.lua", "if till <= now then", "if till < 0 then", FENCED),
    "waiters that joined": ("settle.lua", "Job.waiters_of(base, job.id) > seen", "false", GROWN),
    "burial without follow-ups": (
        "settle.lua", "= tonumber(ARGV[at - 1])", "= kind == 'b' and 0 or ARGV[at - 1] + 0", FOLLOWED,
    ),
    "retry without follow-ups": (
        "settle.lua", "= tonumber(ARGV[at - 1])", "= kind == 'r' and 0 or ARGV[at - 1] + 0", RETRIED,
    ),
    "purge of dead jobs unreported": (
        "purge.lua", "    Report.removed(state, record)\n  end\n  return", "  end\n  return", OF_PURGED,
    ),
    "kept jobs reported twice": ("parts/report.lua", "state ~= 'done' and ", "", ONE_END),
    "revival unreported": ("change.lua", "  Report.note('revived', job)", "  --", OF_REVIVED),
    "report of a refused end": (
        "settle.lua", "  if seen and Job.waiters_of",
        "  Report.note('done', job, result, place)\n  if seen and Job.waiters_of", NO_END,
    ),
    "replaced job reports no more": (
        "parts/add.lua", "  job.start, job.rank, job.cost, job.keep,",
        "  job.reports_to = ''\n  job.start, job.rank, job.cost, job.keep,", REPLACED,
    ),
    "report before follow-ups": (
        "parts/report.lua", "staying[#staying + 1] =",
        "staying[#staying + 1] = staying[1]\n    staying[1] =", THEN_REPORT,
    ),
    "follow-ups of refused outcomes": ("settle.lua", "if is_refused[n] then", "if false then", NOT_OF_REFUSED),
    "every retry counts": ("settle.lua", "if ARGV[from + 3] == '1' then", "do", NOT_COUNTED),
    "outcome of another take": ("settle.lua", " or taken_at ~= run.moments[n]", "", MOMENT),
    "extension of another take": ("extend.lua", " or taken_at ~= ARGV[at + 2]", "", MOMENT),
    "late extension": ("extend.lua", " or Lease.end_of(base, batch) <= now", "", FENCED),
    "extension of the whole batch": ("extend.lua", "== group.size then", ">= group.size then", EXTENDED),
    "look before its time": ("look.lua", "  Due.apply(base)", "  --", DUE_BEFORE_A_LOOK),
    "all waiters": ("look.lua", "id, after, -1)", "id, 0, -1)", REST),
    "newer of a lower rank only": ("look.lua", "(sub(found[n], 1, #id) > id and 1 or 0)", "1", NEWER),
    "removal of more waiters": ("change.lua", "Job.waiters_of(base, id) > seen", "false", COUNTED),
    "started twice": ("change.lua", "  Placed.remove(base, 'delayed', {id}, {record})", "  --", ONCE_IN_LINE),
    "revive keeps the tries": ("change.lua", "  Record.begin_again(job)", "  --", FROM_ZERO),
    "crashes below zero": ("change.lua", "if crashes == 0 then", "if not job then", NOT_BELOW_ZERO),
    "a crash that is taken back ends the lease": ("parts/job.lua", "batch .. ',' .. taken_at", "',0'", LEASE_STAYS),
    "page begins too late": ("browse.lua", "sub(here, 1, #after) == after and 1 or 0", "1 or 0", NEXT_PAGE),
    "pause without an end": ("pause.lua", "'paused', ARGV[6])", "'paused', '')", RESUMED),
    "purge too much": ("purge.lua", "before and '(' .. ARGV[10]", "before and ARGV[10]", STRICT),
    "purge unlimited": ("purge.lua", "if n > most or", "if", AT_MOST),
    "age of the youngest": ("stats.lua", "now - job.created", "0", AGE),
    "any version": ("write.lua", "if expected ~= '' and expected ~= found then", "if false then", VERSIONS),
    "no limit": ("parts/balance.lua", "return limit - count", "return math.huge", SO_MANY),
    "no own limits": ("parts/balance.lua", "    if own then", "    if false then", OWN_LIMITS),
    "running jobs have no place": (
        "parts/lane.lua", "    Lane.shift(base .. ':ready:of:', counts)",
        "    Lane.shift(base .. ':ready:of:', counts) call('DEL', base .. ':lanes')", RUNNING,
    ),
    "those that ran before have none": (
        "set_lanes.lua", "Rules.forget()", "Rules.forget() call('HDEL', base .. ':lanes', 'a')", RAN_BEFORE,
    ),
    "a place is taken in one queue only": (
        "parts/balance.lua", "count + step.counts[n]", "count + (step == sides[1] and step.counts[n] or 0)",
        DUE_ELSEWHERE,
    ),
    "the own limit holds": (
        "parts/balance.lua", "math.min(limit, its_limit or math.huge)", "its_limit or math.huge", LOWEST,
    ),
    "a place elsewhere wakes no wait": (
        "wait.lua", "(each .. ':ends'), '')", "(base .. ':ends'), '')", LEASE_ELSEWHERE,
    ),
    "what is due elsewhere is not applied": ("take.lua", "    Due.apply(each)", "    Due.apply(base)", DUE_ELSEWHERE),
    "worse jobs stay in the line": ("parts/choose.lua", "worst <= place", "true", BETTER),
    "places are not given on": ("settle.lua", "    Lane.end_run(base, lane)", "    --", PLACE),
    "nor with the end of a lease": ("parts/due.lua", "  Lane.end_run(base, job.lane)", "  --", LEASE_OVER),
    "a place wakes no wait": ("parts/balance.lua", "if step.wakes then", "if false then", PLACE_WAKES),
    "no total": ("take.lua", "math.min(count, free or count)", "count", TOTAL),
    "total wakes no wait": ("parts/rules.lua", "left < total and left + count >= total", "false", TOTAL_WAKES),
    "no turns": ("parts/line.lua", "if step.rules.is_fair", "if false", TURNS),
    "turns of all levels": ("parts/turn.lua", "local level = floor(rank)", "local level = 0", LEVELS),
    "no weights": ("parts/line.lua", " / step.weight * TURN", " * TURN", WEIGHTS),
    "turns are not shown": ("parts/job.lua", "Placed.score_of(base, 'ready', id) or ''", "''", SHOWN),
    "document without an end": ("parts/document.lua", "tonumber(ends) <= now\n", "false\n", ENDED),
}  # fmt: skip

LOWERED = "TestLaneWithManyJobs.test_a_lower_limit_is_never_exceeded"
BEST = "TestLaneWithManyJobs.test_the_best_jobs_stay_in_the_line"
LATER = "TestLaneWithManyJobs.test_rules_that_come_meanwhile_are_kept_to"
LIFTED = "TestLaneWithManyJobs.test_a_limit_that_is_lifted_lets_a_thousand_in_with_each_step"
WITH_MANY_JOBS = {
    "jobs above a limit are taken": ("take.lua", "if is_over() then", "if false then", LOWERED),
    "what set_lanes has left to do is not noted": (
        "set_lanes.lua",
        "call('HSET', each .. ':meta', 'unbalanced', mark)",
        "--",
        LOWERED,
    ),
    "earlier rules end what later ones began": (
        "balance.lua",
        "if call('HGET', base .. ':meta', 'unbalanced') == ARGV[5] then",
        "do",
        LATER,
    ),
    "one step holds all back": ("parts/choose.lua", "'0', AT_ONCE - 1 - #back", "'0', '-1'", LOWERED),
    "any jobs stay in the line": ("parts/balance.lua", "  step.is_mixed = true", "  --", BEST),
    "one step lets all in": ("parts/choose.lua", "from_held == AT_ONCE", "false", LIFTED),
}

FAILURES = (AssertionError, TimeoutError, pytest.fail.Exception)

SENT = "test_keep_their_order_and_those_of_refused_outcomes_are_not_stored"
WHEN_FULL = "test_leave_nothing_on_a_full_server"
ONCE = "test_arrive_once_though_their_sender_died_and_several_move_them"
PROMPT = "TestReportsForAnotherShard.test_have_arrived_when_the_call_is_back verb="
LOST = "TestReportsForAnotherShard.test_arrive_once_though_the_reply_was_lost verb="
IN_ORDER = "TestReportsForAnotherShard.test_come_after_what_their_jobs_left_though_the_sender_died options="
ALL = "TestReportsForAnotherShard.test_keep_the_order_of_the_outcomes"
BEHIND = "TestReportsForAnotherShard.test_those_of_the_flows_own_family_wait_behind_what_has_to_wait"
IN_A_CLUSTER = {
    "reports are posted but not told of": (
        "parts/report.lua", "= table.concat(parts), run", "= table.concat(parts), nil", f"{PROMPT}settle",
    ),
    "reports of a purge are not told of": (
        "purge.lua", "size), reported}", "size), string.rep(reported, 0)}", f"{PROMPT}purge",
    ),
    "a lost reply forgets the reports": ("settle.lua", "'' or remember(answer)", "'' or answer", f"{LOST}settle"),
    "reports throw out what they leave with": ("parts/report.lua", "{leaving[run] or ''}", "{''}", IN_ORDER),
    "reports leave by themselves": ("parts/report.lua", "with[report.place] or ARGV[8]", "ARGV[8]", BEHIND),
    "only the last report leaves": ("parts/report.lua", "posted[run] = posted[run] or {", "posted[run] = {", ALL),
    "sends those of refused outcomes": (
        "settle.lua", "if not is_refused[number] then", "do", f"TestFollowUpsOfSeveralShards.{SENT}",
    ),
    "sends the last part only": (
        "settle.lua", "(sealed[run] or '') ..", "", f"TestFollowUpsOfSeveralShards.{SENT}",
    ),
    "posts on a full server": (
        "settle.lua", "once(any_follow_ups or posts > 0)", "once(any_follow_ups)",
        f"TestFollowUpsOfSeveralShards.{WHEN_FULL}",
    ),
    "delivers again": ("parts/once.lua", "HSETNX', KEYS[1], ARGV[2], '') == 0", "HSETNX', KEYS[1], ARGV[2], '') == 2",
                       f"TestJobsForOtherShards.{ONCE}"),
}  # fmt: skip


@contextmanager
def changed(file: str, old: str, new: str) -> Iterator[None]:
    """The scripts with one change: the modules that have loaded them load them again, now and afterwards."""
    original = scripts._read

    def read(path: str) -> str:
        text = original(path)
        assert path != file or old in text, f"{file} no longer has {old!r}: change this mutant with it"
        return text.replace(old, new) if path == file else text

    scripts._read = read
    try:
        load_again()
        yield
    finally:
        scripts._read = original
        load_again()


def load_again() -> None:
    scripts.script.cache_clear()
    for name, module in list(sys.modules.items()):
        if name.startswith("accoda.storage.redis"):
            for each, value in list(vars(module).items()):
                if isinstance(value, scripts.Script):
                    setattr(module, each, scripts.script(value.name))


async def run_on_a_server(test: str, *, seconds: float = 20) -> None:
    with need(RedisServer) as server:
        await run(test, server.url, seconds=seconds)


async def run_on_a_cluster(servers: ClusterSet, test: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for master in servers.masters:
        master.ask("FLUSHALL")
    async with await open_storage(servers.url) as store:
        await call(test_outbox, test, store=store, servers=servers, monkeypatch=monkeypatch)


async def run_with_many_jobs(test: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LaneVerbs, "_balance", test_lanes.dies)
    with need(RedisServer) as server:
        async with await open_storage(server.url) as store:
            await call(test_lanes, test, store=store, monkeypatch=monkeypatch)


@pytest.mark.parametrize("mutant", MUTANTS)
async def test_a_mutant_fails_the_test_that_is_said_to_catch_it(mutant: str) -> None:
    *change, test = MUTANTS[mutant]
    with changed(*change), pytest.raises(FAILURES):
        await run_on_a_server(test, seconds=TO_FAIL)


@pytest.mark.parametrize("mutant", IN_A_CLUSTER)
async def test_so_does_one_in_a_cluster(mutant: str, servers: ClusterSet, monkeypatch: pytest.MonkeyPatch) -> None:
    *change, test = IN_A_CLUSTER[mutant]
    with changed(*change), pytest.raises(FAILURES):
        await run_on_a_cluster(servers, test, monkeypatch)


@pytest.mark.parametrize("mutant", WITH_MANY_JOBS)
async def test_so_does_one_of_a_lane_with_many_jobs(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    *change, test = WITH_MANY_JOBS[mutant]
    with changed(*change), pytest.raises(FAILURES):
        await run_with_many_jobs(test, monkeypatch)


async def test_the_same_tests_pass_without_a_mutant(servers: ClusterSet, monkeypatch: pytest.MonkeyPatch) -> None:
    for test in sorted({test for *_, test in MUTANTS.values()}):
        await run_on_a_server(test)
    for test in sorted({test for *_, test in IN_A_CLUSTER.values()}):
        await run_on_a_cluster(servers, test, monkeypatch)
    for test in sorted({test for *_, test in WITH_MANY_JOBS.values()}):
        await run_with_many_jobs(test, monkeypatch)
