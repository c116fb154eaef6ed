"""Mutants of the SQLite storage: each changes a piece of one SQL statement."""

from __future__ import annotations

from proof.mutants.mutant import MUTANTS, Mutant


def _mutant(
    name: str, breaks: str, caught_by: str, *, statement: str, piece: str, instead: str, by_machine: bool = False
) -> None:
    """The machine finds most of them as it finds those in memory, but on a file that takes most of a minute."""
    MUTANTS[f"sqlite-{name}"] = Mutant(breaks, caught_by, None, (statement, piece, instead), by_machine)


_mutant(
    "late-done",
    "a lease is good until its end is applied",
    "TestLeaseEnd::test_is_too_late_for_the_holder_even_before_anyone_looks",
    statement="held_jobs", piece="AND sort > ?2", instead="AND ?2",
)  # fmt: skip
_mutant(
    "late-extend",
    "a lease that has ended can be extended",
    "TestLeaseEnd::test_is_too_late_for_the_holder_even_before_anyone_looks",
    statement="extend_lease", piece="AND sort > ?4", instead="AND ?4",
)  # fmt: skip
_mutant(
    "moment-unchecked",
    "a lease of another moment can be extended",
    "TestPromise03ALateHolderChangesNothing::test_a_lease_of_another_moment_is_lost_though_id_and_attempts_are_right",
    statement="extend_lease", piece="AND taken_at = ?6", instead="AND ?6 IS NOT NULL",
)  # fmt: skip
_mutant(
    "rank-ignored",
    "first in, first out, whatever the rank",
    "TestOrder::test_the_lowest_rank_goes_first_and_equal_ranks_by_id",
    statement="ready_jobs", piece="ORDER BY sort, id", instead="ORDER BY id", by_machine=True,
)  # fmt: skip
_mutant(
    "attempts-stay",
    "a job whose lease ended comes back with the same attempts",
    "TestLeaseEnd::test_brings_the_job_back",
    statement="end_leases", piece="attempts = attempts + 1,", instead="", by_machine=True,
)  # fmt: skip
_mutant(
    "pause-ignored",
    "a paused queue hands out jobs",
    "TestPause::test_a_paused_queue_gives_nothing_until_it_is_resumed",
    statement="queue_now", piece="paused AND", instead="0 AND", by_machine=True,
)  # fmt: skip
_mutant(
    "fence-ignored",
    "a change overlooks waiters that joined",
    "TestChange::test_is_applied_only_if_no_more_wait_than_were_seen",
    statement="state_of", piece="state, waiters,", instead="state, 0,",
)  # fmt: skip
_mutant(
    "look-at-all-waiters",
    "all waiters are shown instead of the rest",
    "TestLookAtWaiters::test_gives_the_rest_in_the_order_in_which_they_joined",
    statement="waiters_after", piece="AND n > ?2", instead="AND ?2 IS NOT NULL",
)  # fmt: skip
_mutant(
    "ahead-by-rank-only",
    "of equal ranks, those that came later count as ahead",
    "TestAhead::test_goes_by_rank_then_id_as_take_does",
    statement="line_before", piece="AND id < ?3", instead="AND id <> ?3",
)  # fmt: skip
_mutant(
    "browse-skips-equal-jobs",
    "a page leaves out jobs that are equal in what orders them",
    "TestBrowseInLine::test_page_by_page_shows_each_job_once",
    statement="browse_line", piece="AND sort = ?3 AND id > ?4", instead="AND sort = ?3 AND id < -?4",
)  # fmt: skip
_mutant(
    "browse-the-oldest-first",
    "what ended first comes first",
    "TestBrowseInLine::test_goes_by_what_orders_the_state_then_by_id",
    statement="browse_ended", piece="ORDER BY ended_at DESC, id DESC", instead="ORDER BY ended_at, id", by_machine=True,
)  # fmt: skip
_mutant(
    "prefix-open-ended",
    "a prefix lists all names that sort after it",
    "TestPrefix::test_lists_exactly_the_names_that_start_with_it_by_name",
    statement="list_documents", piece="AND name < ?2", instead="AND ?2 IS NOT NULL", by_machine=True,
)  # fmt: skip
_mutant(
    "crashes-uncounted",
    "a lease that ends is not a crash",
    "TestCrashes::test_each_lease_that_ends_is_one",
    statement="end_leases", piece="crashes = crashes + 1", instead="crashes = crashes", by_machine=True,
)  # fmt: skip
_mutant(
    "retry-is-a-crash",
    "a retry is a crash",
    "TestCrashes::test_a_retry_is_none",
    statement="retry_job", piece="reason = ?4", instead="reason = ?4, crashes = crashes + 1",
)  # fmt: skip
_mutant(
    "retry-always-counts",
    "a retry counts though it says that it does not",
    "TestTries::test_a_retry_that_does_not_count_is_none",
    statement="retry_job", piece="tries = tries + ?5", instead="tries = tries + 1",
)  # fmt: skip
_mutant(
    "revive-keeps-crashes",
    "a revived job has its old crashes",
    "TestBeginningAgain::test_revive_sets_both_to_zero",
    statement="revive_job", piece=", crashes = 0", instead="", by_machine=True,
)  # fmt: skip
_mutant(
    "replace-keeps-tries",
    "a replaced job has its old tries",
    "TestBeginningAgain::test_replace_sets_both_to_zero",
    statement="replace_job", piece=", tries = 0", instead="",
)  # fmt: skip
_mutant(
    "start-now-keeps-the-start-time",
    "a job that is started early says that it starts later",
    "TestStartNow::test_makes_a_delayed_job_ready_from_now_on",
    statement="start_now", piece=", start_time = ?2", instead="", by_machine=True,
)  # fmt: skip
_mutant(
    "start-now-goes-to-the-front",
    "jobs that are started early come first, whatever their rank",
    "TestStartNow::test_started_jobs_go_by_rank_then_id_among_the_others",
    statement="start_now", piece="sort = rank", instead="sort = -1000", by_machine=True,
)  # fmt: skip
_mutant(
    "storm-late-first",
    "of a storm the latest moments are applied first",
    "TestStorm::test_the_oldest_moments_come_first",
    statement="due", piece="ORDER BY sort", instead="ORDER BY sort DESC",
)  # fmt: skip
_mutant(
    "purge-ignores-before",
    "purge deletes dead jobs however young",
    "TestRetention::test_takes_only_what_is_old_enough",
    statement="ended_before", piece="AND ended_at < ?3", instead="AND ?3 IS NOT NULL",
)  # fmt: skip
_mutant(
    "rerank-ignored",
    "a duplicate that reranks leaves the job where it is",
    "TestKeys::test_rerank_moves_a_job_in_the_line_and_changes_nothing_else",
    statement="rerank_job",
    piece="rank = ?2, state = ?3, sort = iif(?3 < 1, ?2, sort)",
    instead="state = iif(?2, ?3, ?3)",
)  # fmt: skip
_mutant(
    "flow-not-stored",
    "the flow of a job is not stored",
    "TestReports::test_a_done_job_is_reported_with_its_result",
    statement="insert_job", piece="?13", instead="nullif(?13, ?13)", by_machine=True,
)  # fmt: skip
_mutant(
    "outcome-not-reported",
    "an outcome is not reported",
    "TestReports::test_a_dead_job_is_reported_with_the_reason",
    statement="held_jobs", piece="CAST(reports_to || char(10) || key AS BLOB)", instead="NULL",
)  # fmt: skip
_mutant(
    "change-not-reported",
    "a change is not reported",
    "TestReports::test_a_job_that_is_taken_back_is_reported",
    statement="state_of", piece="CAST(reports_to || char(10) || key AS BLOB)", instead="NULL",
)  # fmt: skip
_mutant(
    "purge-of-waiting-not-reported",
    "a purge of waiting jobs is not reported",
    "TestReports::test_purged_jobs_are_reported",
    statement="by_id", piece="CAST(reports_to || char(10) || key AS BLOB)", instead="NULL",
)  # fmt: skip
_mutant(
    "purge-of-taken-not-reported",
    "a purge of running jobs is not reported",
    "TestReports::test_purged_jobs_are_reported",
    statement="taken_by_id", piece="CAST(reports_to || char(10) || key AS BLOB)", instead="NULL",
)  # fmt: skip
_mutant(
    "purge-of-dead-not-reported",
    "a purge of dead jobs is not reported",
    "TestReports::test_purged_jobs_are_reported",
    statement="ended_before", piece="CAST(reports_to || char(10) || key AS BLOB)", instead="NULL",
)  # fmt: skip
_mutant(
    "replaced-job-reports-no-more",
    "a replaced job reports no more",
    "TestReports::test_a_replaced_job_still_reports",
    statement="replace_job", piece="crashes = 0", instead="crashes = 0, reports_to = NULL", by_machine=True,
)  # fmt: skip
_mutant(
    "shared-places-of-the-line-only",
    "a job that runs in a queue that shares limits has no place",
    "TestSharedLimits::test_so_does_the_end_of_a_lease_though_nobody_looks_at_its_queue",
    statement="in_line_or_running", piece="AND state >= 0 AND state <= 2", instead="AND state = 0 AND state <= 2",
    by_machine=True,
)  # fmt: skip
_mutant(
    "all-queues-share",
    "queues that share other limits are of the same group",
    "TestSharedLimits::test_to_share_no_more_lets_in_at_once",
    statement="queues_sharing", piece="WHERE shared = CAST(?1 AS TEXT)", instead="WHERE ?1 IS NOT NULL",
)  # fmt: skip
