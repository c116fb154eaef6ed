"""Storages that are broken on purpose, to prove that the suite would notice.

Each breaks one promise in one small place. `caught_by` names the test that must fail on it; `by_machine` says that the
random machine must find it too (it cannot see what is slow, asleep, or refused before it is stored).

    ACCODA_MUTANT=late-done pytest tests/storage/mutant_target.py
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from tempfile import TemporaryDirectory

from accoda.clock import Clock
from accoda.storage.memory import MemoryStorage
from accoda.storage.open import open_storage
from accoda.storage.protocol import Store
from accoda.testing import broken
from accoda.testing.mutant import Mutant
from accoda.testing.mutants_bury import BURY
from accoda.testing.mutants_peek import PEEK
from accoda.testing.mutants_place import PLACE
from accoda.testing.mutants_sqlite import SQLITE
from accoda.testing.mutants_start import START
from accoda.testing.world import ManualWorld, World

MUTANTS: dict[str, Mutant] = {
    "leased-twice": Mutant(
        1,
        "a taken job stays in the line",
        "TestTake::test_gives_at_most_count_jobs",
        broken.LeasedTwice,
    ),
    "take-in-two-steps": Mutant(
        1,
        "take looks, lets others run, then leases",
        "TestPromise01AJobIsNeverLeasedToTwoTakers::test_takers_that_come_at_once_share_the_jobs_out",
        broken.TakeInTwoSteps,
        by_machine=False,
    ),
    "attempts-stay": Mutant(
        2,
        "a job whose lease ended comes back with the same attempts",
        "TestLeaseEnd::test_brings_the_job_back",
        broken.AttemptsStay,
    ),
    "late-done": Mutant(
        3,
        "an old lease may settle the job that another holds now",
        "TestSettle::test_refuses_an_old_lease_while_a_new_one_runs",
        broken.LateDone,
    ),
    "lease-lasts-too-long": Mutant(
        3,
        "a lease is good until somebody looks, not until its end",
        "TestLeaseEnd::test_is_too_late_for_the_holder_even_before_anyone_looks",
        broken.LeaseLastsTooLong,
        by_machine=False,  # it looks after every command
    ),
    "queue-unchecked": Mutant(
        3,
        "a lease that names another queue is accepted",
        "TestSettle::test_refuses_leases_that_are_not_current",
        broken.QueueUnchecked,
    ),
    "rank-ignored": Mutant(
        4,
        "first in, first out, whatever the rank",
        "TestOrder::test_the_lowest_rank_goes_first_and_equal_ranks_by_id",
        broken.RankIgnored,
    ),
    "retry-to-the-back": Mutant(
        4,
        "a retried job loses its rank",
        "TestRetry::test_without_a_delay_is_ready_again_at_once",
        broken.RetryToTheBack,
    ),
    "delay-ignored": Mutant(
        4,
        "every job is ready at once",
        "TestStartTime::test_a_delayed_job_is_not_handed_out_before_its_time",
        broken.DelayIgnored,
    ),
    "deaf": Mutant(
        4,
        "nobody who waits is woken",
        "TestWait::test_wakes_for_an_enqueue",
        broken.Deaf,
        by_machine=False,
    ),
    "own-clock": Mutant(
        5,
        "leases end by the clock of the machine that asks",
        "TestPromise05TheStoresClockDecides::test_every_moment_is_the_stores",
        broken.OwnClock,
    ),
    "half-a-batch": Mutant(
        6,
        "enqueue stores the jobs before the one that is wrong",
        "TestEnqueue::test_stores_none_of_the_jobs_if_one_is_no_job",
        broken.HalfABatch,
        by_machine=False,
    ),
    "follow-ups-dropped": Mutant(
        6,
        "Done forgets what follows",
        "TestDone::test_enqueues_what_follows",
        broken.FollowUpsDropped,
    ),
    "follow-ups-of-refused": Mutant(
        6,
        "a refused Done enqueues what follows all the same",
        "TestDone::test_that_is_refused_enqueues_nothing",
        broken.FollowUpsOfRefused,
    ),
    "follow-ups-first": Mutant(
        6,
        "what follows is enqueued before the outcomes are applied",
        "TestDone::test_applies_all_outcomes_before_any_follow_up",
        broken.FollowUpsFirst,
    ),
    **BURY,
    "head-skipped": Mutant(
        7,
        "a cheaper job overtakes a head that costs too much",
        "TestCost::test_the_head_is_never_skipped_for_a_cheaper_job",
        broken.HeadSkipped,
    ),
    "waiter-forgotten": Mutant(
        8,
        "Done is accepted though waiters joined",
        "TestGrown::test_done_is_refused_when_more_wait_than_were_seen",
        broken.WaiterForgotten,
    ),
    "key-leaked-by-done": Mutant(
        8,
        "a finished job holds its key for ever",
        "TestKeys::test_a_job_that_ended_holds_its_key_no_longer",
        broken.KeyLeakedByDone,
    ),
    "key-leaked-by-bury": Mutant(
        8,
        "a dead job holds its key",
        "TestKeys::test_a_job_that_ended_holds_its_key_no_longer",
        broken.KeyLeakedByBury,
    ),
    "rerank-unguarded": Mutant(
        8,
        "rerank overlooks waiters that joined",
        "TestRerank::test_is_applied_only_if_no_more_wait_than_were_seen",
        broken.RerankUnguarded,
    ),
    "replace-keeps-the-lease": Mutant(
        8,
        "the run of the old data may settle the new data",
        "TestKeys::test_replace_ends_the_lease_of_a_running_job",
        broken.ReplaceKeepsTheLease,
    ),
    "counter-drift": Mutant(
        9,
        "a refused outcome is counted as done",
        "TestSettle::test_refuses_leases_that_are_not_current",
        broken.CounterDrift,
    ),
    "stats-scan": Mutant(
        9,
        "statistics look at every job",
        "TestPromise09StatisticsAreNoScan::test_many_jobs_do_not_make_them_slower",
        broken.StatsScan,
        by_machine=False,
    ),
    "take-scans": Mutant(
        10,
        "take sorts the whole line",
        "TestPromise10OneOperationCostsAtMostLogN::test_many_waiting_jobs_do_not_make_a_run_slower",
        broken.TakeScans,
        by_machine=False,
    ),
    "pause-ignored": Mutant(
        0,
        "a paused queue hands out jobs",
        "TestPause::test_a_paused_queue_gives_nothing_until_it_is_resumed",
        broken.PauseIgnored,
    ),
    "version-unchecked": Mutant(
        0,
        "a document is overwritten whatever its version",
        "TestDocuments::test_a_write_with_another_version_is_refused",
        broken.VersionUnchecked,
    ),
    "versions-begin-again": Mutant(
        0,
        "an old version fits a document that came after an expired one",
        "TestTimeToLive::test_versions_go_on_after_it",
        broken.VersionsBeginAgain,
    ),
    "crashes-uncounted": Mutant(
        0,
        "a lease that ends is no crash",
        "TestCrashes::test_each_lease_that_ends_is_one",
        broken.CrashesUncounted,
    ),
    "retry-is-a-crash": Mutant(
        0,
        "a retry counts as a crash",
        "TestCrashes::test_a_retry_is_none",
        broken.RetryIsACrash,
    ),
    "revive-keeps-crashes": Mutant(
        0,
        "a revived job has its old crashes",
        "TestFreshStart::test_revive_is_one",
        broken.ReviveKeepsCrashes,
    ),
    "revive-is-no-start": Mutant(
        0,
        "a revived job counts from its old start",
        "TestFreshStart::test_revive_is_one",
        broken.ReviveIsNoStart,
    ),
    "replace-keeps-crashes": Mutant(
        0,
        "a replaced job has its old crashes",
        "TestFreshStart::test_replace_is_one",
        broken.ReplaceKeepsCrashes,
    ),
    "replace-is-no-start": Mutant(
        0,
        "a replaced job counts from its old start",
        "TestFreshStart::test_replace_is_one",
        broken.ReplaceIsNoStart,
    ),
    "attach-is-a-start": Mutant(
        0,
        "a job that somebody joins begins afresh",
        "TestCrashes::test_who_joins_or_reranks_changes_neither",
        broken.AttachIsAStart,
    ),
    "take-tells-no-crashes": Mutant(
        0,
        "take forgets both, find tells them",
        "TestCrashes::test_are_told_with_the_jobs_of_a_batch",
        broken.TakeTellsNoCrashes,
    ),
    "storm-forgotten": Mutant(
        2,
        "what is due beyond the bound of a call is forgotten",
        "TestStorm::test_of_leases_gives_every_job_back_once",
        broken.StormForgotten,
        by_machine=False,  # it has so few jobs that no bound is reached
    ),
    "storm-in-one-call": Mutant(
        0,
        "one call applies all that is due",
        "TestStorm::test_one_call_applies_a_bounded_part_over_all_its_queues",
        broken.StormInOneCall,
        by_machine=False,
    ),
    "pending-lease-accepted": Mutant(
        3,
        "a lease that ended is good as long as its return is not applied",
        "TestStorm::test_no_ended_lease_is_good_though_its_return_is_not_applied",
        broken.PendingLeaseAccepted,
        by_machine=False,
    ),
    "purge-ignores-before": Mutant(
        0,
        "purge deletes jobs however young",
        "TestRetention::test_takes_only_what_is_old_enough",
        broken.PurgeIgnoresBefore,
    ),
    "purge-ignores-limit": Mutant(
        0,
        "purge deletes more than it was asked to",
        "TestRetention::test_takes_no_more_than_the_limit",
        broken.PurgeIgnoresLimit,
    ),
    **PEEK,
    **START,
    **PLACE,
    **SQLITE,
}


@asynccontextmanager
async def mutant_world(name: str) -> AsyncIterator[World]:
    """The world of a mutant. An empty name is memory as it should be, and "sqlite" is SQLite as it should be."""
    mutant = MUTANTS.get(name)
    if mutant is None and name not in ("", "sqlite"):
        raise ValueError(f"no mutant is called {name!r}")
    if name.startswith("sqlite"):
        with TemporaryDirectory() as folder, _changed(mutant.sqlite if mutant else None):
            url = f"sqlite:///{folder}/jobs.db"
            yield ManualWorld(lambda clock: open_storage(url, clock=clock), url=url, shared=True)
    else:
        kind = mutant.memory if mutant and mutant.memory else MemoryStorage
        yield ManualWorld(_opener(kind), url="memory://", shared=False)


def _opener(kind: type[MemoryStorage]) -> Callable[[Clock], Awaitable[Store]]:
    async def opener(clock: Clock) -> Store:
        return kind(clock)

    return opener


@contextmanager
def _changed(change: tuple[str, str, str] | None) -> Iterator[None]:
    """While it lasts, one SQL statement of the SQLite storage says something else, for lists of ids and for ranges."""
    from accoda.storage.sqlite.transaction import RANGE, SQL

    if change is None:
        yield
        return
    name, old, new = change
    texts = {each: SQL[each] for each in (name, name + RANGE) if each in SQL}
    if old not in texts[name]:
        raise ValueError(f"the statement {name!r} no longer has {old!r}: change this mutant with it")
    SQL.update({each: text.replace(old, new) for each, text in texts.items()})
    try:
        yield
    finally:
        SQL.update(texts)
