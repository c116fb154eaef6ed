"""The scripts of Redis and the application of Tarantool, broken on purpose in one place: the suite must notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import pytest

from accoda.testing.servers.process import find_program
from accoda.testing.servers.pytest import need

TARGET = Path(__file__).with_name("lua_mutant_target.py")
ON_A_CLUSTER = Path(__file__).with_name("test_redis_shards.py")
BOUNDED = "TestStorm::test_one_call_applies_a_bounded_part_over_all_its_queues"
FENCED = "TestStorm::test_no_ended_lease_is_good_though_its_return_is_not_applied"
TOO_LATE = "TestLeaseEnd::test_comes_at_the_exact_millisecond"
GIVEN_BACK = "TestStorm::test_of_leases_gives_every_job_back_once"
OLDEST = "TestStorm::test_the_oldest_moments_come_first"
STRICT = "TestRetention::test_the_moment_itself_is_not_before_it"
AT_MOST = "TestRetention::test_takes_no_more_than_the_limit"
DUE_BEFORE_A_LOOK = "TestPeek::test_a_delayed_job_is_the_head_once_its_time_has_come"
AS_IT_IS = "TestStorm::test_a_look_at_a_key_and_a_drop_see_that_job_as_it_is"
COUNTED = "TestDrop::test_is_refused_if_more_wait_than_were_seen"
THE_REST = "TestPeekAtWaiters::test_gives_the_rest_in_the_order_in_which_they_joined"
AND_WHAT_FOLLOWS = "TestBury::test_enqueues_what_follows"
NOT_OF_REFUSED = "TestBury::test_that_is_refused_enqueues_nothing"
DUE_BEFORE_A_START = "TestStartNow::test_a_job_whose_time_has_come_is_ready_by_itself"
ONCE_IN_LINE = "TestStartNow::test_the_old_start_time_passes_without_a_trace"
WOKEN = "TestStartNow::test_wakes_who_waits"
STILL_TO_COME = "TestStorm::test_a_start_now_counts_only_what_is_still_to_come"
NOT_SENT_OF_REFUSED = "TestFollowUpsOfSeveralShards::test_keep_their_order_and_those_of_refused_outcomes_are_not_stored"
NOT_WHEN_FULL = "TestFollowUpsOfSeveralShards::test_leave_nothing_on_a_full_server"
LOOKED_AT_FIRST = "TestFollowUpsOfSeveralShards::test_change_nothing_where_the_outbox_is_something_else"

# What is broken: the storage, the file, a piece of it, what replaces the piece, and the test that must fail.
MUTANTS = {
    "redis-unbounded": ("redis", "parts/due.lua", "may_move = DUE_AT_ONCE", "may_move = 1e9", BOUNDED),
    "redis-late-done": ("redis", "settle.lua", "if till <= now then", "if till < 0 then", FENCED),
    "redis-late-whole-batch": ("redis", "finish.lua", " or tonumber(till) <= now", "", TOO_LATE),
    "redis-late-extend": ("redis", "extend.lua", "(end_of(base, batch) or 0) <= now", "false", FENCED),
    "redis-rest-of-a-batch": ("redis", "parts/moves.lua", "if at < #joined then", "if at < 0 then", GIVEN_BACK),
    "redis-purge-too-much": ("redis", "purge.lua", "before and '(' .. ARGV[6]", "before and ARGV[6]", STRICT),
    "redis-peek-before-its-time": ("redis", "peek.lua", "apply_due(base)", "", DUE_BEFORE_A_LOOK),
    "redis-peek-in-a-storm": ("redis", "parts/present.lua", "till and till <= now", "false", AS_IT_IS),
    "redis-drop-unseen": ("redis", "drop.lua", " or waiters_of(base, id) > seen", "", COUNTED),
    "redis-bury-drops-follow-ups": (
        "redis", "settle.lua", "outcome.follow_ups = tonumber(ARGV[at + 4])", "", AND_WHAT_FOLLOWS,
    ),
    "redis-follow-ups-of-refused": (
        "redis", "settle.lua", "(outcomes[n].why and 0 or outcomes[n].follow_ups)", "outcomes[n].follow_ups",
        NOT_OF_REFUSED,
    ),
    "redis-start-before-its-time": ("redis", "start_now.lua", "apply_due(base)", "", DUE_BEFORE_A_START),
    "redis-started-twice": ("redis", "start_now.lua", "  unshelve(base, 'delayed', record)", "", ONCE_IN_LINE),
    "redis-start-in-a-storm": (
        "redis", "parts/present.lua", "if start and tonumber(start) <= now then", "if false then", STILL_TO_COME,
    ),
    "tarantool-start-in-a-storm": (
        "tarantool", "verbs/start_now.lua", "app.up_to_date(tx, job)", "job", STILL_TO_COME,
    ),
    "tarantool-start-wakes-nobody": ("tarantool", "verbs/start_now.lua", ".name] = true", ".name] = nil", WOKEN),
    "redis-cluster-sends-for-refused": (
        "redis-cluster", "settle.lua", "if not outcomes[tonumber(ARGV[first])].why then", "do", NOT_SENT_OF_REFUSED,
    ),
    "redis-cluster-sends-the-last-part": (
        "redis-cluster", "settle.lua", "runs[ARGV[first + 1]] or {}", "{}", NOT_SENT_OF_REFUSED,
    ),
    "redis-cluster-posts-when-full": (
        "redis-cluster", "settle.lua", "once(follow_ups + posts > 0)", "once(follow_ups > 0)", NOT_WHEN_FULL,
    ),
    "redis-cluster-half-a-step": ("redis-cluster", "settle.lua", "call('HLEN', KEYS[4])", "", LOOKED_AT_FIRST),
    "tarantool-follow-ups-of-refused": (
        "tarantool", "verbs/settle.lua", "if not is_refused[each[1]] then", "do", NOT_OF_REFUSED,
    ),
    "tarantool-unbounded": (
        "tarantool", "shared/1_transaction.lua", "may_move = app.DUE_AT_ONCE", "may_move = 1e9", BOUNDED,
    ),
    "tarantool-late-done": ("tarantool", "shared/3_jobs.lua", "or job[SORT] <= tx.now ", "", FENCED),
    "tarantool-youngest-first": ("tarantool", "shared/3_jobs.lua", "line:pairs({no, state})",
                                 "line:pairs({no, state}, {iterator = 'REQ'})", OLDEST),
    "tarantool-purge-too-much": ("tarantool", "verbs/purge.lua", "row[3] >= before", "row[3] > before", STRICT),
    "tarantool-purge-unlimited": ("tarantool", "verbs/purge.lua", "ended:select({no, state}, {limit = limit})",
                                  "ended:select({no, state})", AT_MOST),
    "tarantool-drop-unseen": ("tarantool", "verbs/drop.lua", " or app.grown(job, waiters)", "", COUNTED),
    "tarantool-peek-in-a-storm": ("tarantool", "verbs/peek.lua", "app.up_to_date(tx, job)", "job", AS_IT_IS),
    "tarantool-peek-the-last": ("tarantool", "shared/3_jobs.lua", "last[2] <= after", "last[2] <= after + 1", THE_REST),
}  # fmt: skip

PROGRAMS = {"redis": "redis-server", "redis-cluster": "redis-server", "tarantool": "tarantool"}


@cache
def verdicts(storage: str) -> dict[str, set[str]]:
    """What became of the tests on each mutant: "failure" in a test, "error" around it. "" is none: all as it should be.

    One process for all mutants of a storage: to start it takes longer than most of the tests.
    """
    mutants = {name: change for name, (its_storage, *change) in MUTANTS.items() if its_storage == storage}
    # What a broken storage leaves behind is nobody's failure, least of all the next mutant's.
    options = [f"-pno:{each}" for each in ("cacheprovider", "unraisableexception", "threadexception")]
    target = TARGET
    if storage == "redis-cluster":  # tests of its own, with what changes the scripts loaded before them
        target, options = ON_A_CLUSTER, [*options, f"-p{TARGET.stem}"]
    tests = [f"{target}::{test}" for test in sorted({change[-1] for change in mutants.values()})]
    path = os.pathsep.join([str(TARGET.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {
        **os.environ,
        "ACCODA_LUA_MUTANTS": json.dumps([storage, mutants]),
        "ACCODA_TIME_LIMIT": "5",
        "PYTHONPATH": path,
    }
    with TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "--tb=native", *options, f"--junitxml={report}", *tests]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=170)
        assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout + result.stderr
        cases = list(ElementTree.parse(report).iter("testcase"))
    found: dict[str, set[str]] = {}
    for case in cases:
        (mutant,) = [each.attrib["value"] for each in case.iter("property")]
        found.setdefault(mutant, set()).update(each.tag for each in case if each.tag in ("failure", "error"))
    return found


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fails_the_test_that_is_said_to_catch_it(name: str) -> None:
    storage = MUTANTS[name][0]
    need(lambda: find_program(PROGRAMS[storage]))
    assert verdicts(storage).get(name) == {"failure"}


@pytest.mark.parametrize("storage", PROGRAMS)
def test_the_same_tests_pass_without_a_mutant(storage: str) -> None:
    need(lambda: find_program(PROGRAMS[storage]))
    assert verdicts(storage).get("") == set()
