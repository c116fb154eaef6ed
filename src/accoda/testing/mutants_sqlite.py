"""The mutants of `accoda.testing.mutants` that change a piece of one SQL statement of the SQLite storage."""

from __future__ import annotations

from accoda.testing.mutant import Mutant

SQLITE: dict[str, Mutant] = {
    "sqlite-late-done": Mutant(
        3,
        "a lease is good until somebody looks, not until its end",
        "TestLeaseEnd::test_is_too_late_for_the_holder_even_before_anyone_looks",
        sqlite=("held_jobs", "AND sort > ?2", "AND ?2"),
        by_machine=False,
    ),
    "sqlite-late-plain-done": Mutant(
        3,
        "the same, for a batch of plain jobs",
        "TestLeaseEnd::test_comes_at_the_exact_millisecond",
        sqlite=("count_plain", "AND sort > ?4", "AND ?4"),
        by_machine=False,
    ),
    "sqlite-old-token": Mutant(
        3,
        "an old lease may settle the job that another holds now",
        "TestSettle::test_refuses_an_old_lease_while_a_new_one_runs",
        sqlite=("count_plain", "attempts = ?3", "?3 >= 0"),
        by_machine=False,
    ),
    "sqlite-rank-ignored": Mutant(
        4,
        "first in, first out, whatever the rank",
        "TestOrder::test_the_lowest_rank_goes_first_and_equal_ranks_by_id",
        sqlite=("ready_jobs", "ORDER BY sort, id", "ORDER BY id"),
    ),
    "sqlite-attempts-stay": Mutant(
        2,
        "a job whose lease ended comes back with the same attempts",
        "TestLeaseEnd::test_brings_the_job_back",
        sqlite=("end_leases", "attempts = attempts + 1,", ""),
    ),
    "sqlite-pause-ignored": Mutant(
        0,
        "a paused queue hands out jobs",
        "TestPause::test_a_paused_queue_gives_nothing_until_it_is_resumed",
        sqlite=("next_moments", "paused AND", "0 AND"),
    ),
    "sqlite-rerank-unguarded": Mutant(
        8,
        "rerank overlooks waiters that joined",
        "TestRerank::test_is_applied_only_if_no_more_wait_than_were_seen",
        sqlite=("rerank_job", "waiters <= ?4", "?4"),
        by_machine=False,  # found as in memory, but after so many runs that a file takes most of a minute
    ),
    "sqlite-prefix-open-ended": Mutant(
        0,
        "a prefix lists all names that sort after it",
        "TestPrefix::test_lists_exactly_the_names_that_start_with_it_by_name",
        sqlite=("list_documents", "AND name < ?2", "AND ?2 IS NOT NULL"),
    ),
    "sqlite-crashes-uncounted": Mutant(
        0,
        "a lease that ends is no crash",
        "TestCrashes::test_each_lease_that_ends_is_one",
        sqlite=("end_leases", "crashes = crashes + 1", "crashes = crashes"),
    ),
    "sqlite-retry-is-a-crash": Mutant(
        0,
        "a retry counts as a crash",
        "TestCrashes::test_a_retry_is_none",
        sqlite=("retry_job", "reason = ?4", "reason = ?4, crashes = crashes + 1"),
        by_machine=False,  # it does find it, as it finds the one in memory, but needs half a minute on SQLite
    ),
    "sqlite-revive-keeps-crashes": Mutant(
        0,
        "a revived job has its old crashes",
        "TestFreshStart::test_revive_is_one",
        sqlite=("revive_job", ", crashes = 0", ""),
    ),
    "sqlite-replace-keeps-crashes": Mutant(
        0,
        "a replaced job has its old crashes",
        "TestFreshStart::test_replace_is_one",
        sqlite=("replace_job", ", crashes = 0", ""),
        by_machine=False,  # found as in memory, but after so many runs that a file takes most of a minute
    ),
    "sqlite-replace-one-behind": Mutant(
        0,
        "a job replaced while it ran counts from before",
        "TestFreshStart::test_replace_is_one",
        sqlite=("replace_job", "fresh_at = attempts + ?8", "fresh_at = attempts"),
        by_machine=False,  # found as in memory, but after so many runs that a file takes most of a minute
    ),
    "sqlite-storm-late-first": Mutant(
        0,
        "of a storm the latest moments are applied first",
        "TestStorm::test_the_oldest_moments_come_first",
        sqlite=("due", "ORDER BY sort", "ORDER BY sort DESC"),
        by_machine=False,  # it has so few jobs that all of them are applied at once
    ),
    "sqlite-purge-ignores-before": Mutant(
        0,
        "purge deletes dead jobs however young",
        "TestRetention::test_takes_only_what_is_old_enough",
        sqlite=("dead_before", "AND sort <= ?2", "AND ?2 IS NOT NULL"),
        by_machine=False,  # found as in memory, but after so many runs that a file takes most of a minute
    ),
}
