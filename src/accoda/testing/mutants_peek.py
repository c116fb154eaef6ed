"""The mutants of `accoda.testing.mutants` that look wrong or drop what they should not."""

from __future__ import annotations

from accoda.testing import broken
from accoda.testing.mutant import Mutant

PEEK: dict[str, Mutant] = {
    "peek-passes-the-pause": Mutant(
        0,
        "a paused queue shows a head",
        "TestPeek::test_a_paused_queue_has_no_head_but_its_keys_are_held",
        broken.PeekPassesThePause,
    ),
    "peek-applies-nothing": Mutant(
        0,
        "a look overlooks what is due",
        "TestPeek::test_a_delayed_job_is_the_head_once_its_time_has_come",
        broken.PeekAppliesNothing,
        by_machine=False,  # it looks after every command
    ),
    "peek-at-the-first-waiters": Mutant(
        0,
        "the first waiters are shown instead of the rest",
        "TestPeekAtWaiters::test_gives_the_rest_in_the_order_in_which_they_joined",
        broken.PeekAtTheFirstWaiters,
    ),
    "drop-unguarded": Mutant(
        8,
        "drop overlooks waiters that joined",
        "TestDrop::test_is_refused_if_more_wait_than_were_seen",
        broken.DropUnguarded,
    ),
    "drop-in-two-steps": Mutant(
        8,
        "drop counts the waiters, lets others join, then removes",
        "TestDropRaces::test_an_attach_at_the_same_moment_is_never_lost",
        broken.DropInTwoSteps,
        by_machine=False,  # one call at a time
    ),
    "drop-leaks-the-key": Mutant(
        8,
        "a dropped job still holds its key",
        "TestDrop::test_removes_the_job_and_frees_its_key",
        broken.DropLeaksTheKey,
    ),
    "drop-spares-the-running": Mutant(
        0,
        "a running job cannot be dropped",
        "TestDrop::test_of_a_running_job_takes_its_lease",
        broken.DropSparesTheRunning,
    ),
    "drop-takes-the-dead": Mutant(
        0,
        "drop removes a dead job",
        "TestDrop::test_of_a_job_that_has_ended_changes_nothing",
        broken.DropTakesTheDead,
    ),
    "sqlite-drop-unguarded": Mutant(
        8,
        "drop overlooks waiters that joined",
        "TestDrop::test_is_refused_if_more_wait_than_were_seen",
        sqlite=("state_of", "state, waiters,", "state, 0,"),
        by_machine=False,  # found as in memory, but after so many runs that a file takes most of a minute
    ),
    "sqlite-peek-at-all-waiters": Mutant(
        0,
        "all waiters are shown instead of the rest",
        "TestPeekAtWaiters::test_gives_the_rest_in_the_order_in_which_they_joined",
        sqlite=("waiters_after", "AND n > ?2", "AND ?2 IS NOT NULL"),
        by_machine=False,  # the same
    ),
}
