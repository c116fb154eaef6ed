"""Levels and policies: the corrected formulas of the old schedulers."""

import pytest

from accoda import App, InvalidInput, NewJob, Priority, aging, open_storage, policy, strict

NOW = 1_704_067_200_000


def test_lower_is_sooner() -> None:
    assert Priority.CRITICAL < Priority.HIGH < Priority.NORMAL < Priority.LOW
    assert [strict(level, NOW) for level in Priority] == [0, 1, 2, 3]


def test_strict_does_not_look_at_the_time() -> None:
    assert strict(Priority.LOW, 0) == strict(Priority.LOW, NOW)


def test_aging_adds_what_the_old_scheduler_took_away() -> None:
    assert [aging(level, NOW) - NOW for level in Priority] == [0, 1_000_000, 2_000_000, 3_000_000]


def test_aging_lets_a_low_job_wait_at_most_50_minutes_more_than_a_critical_one() -> None:
    minutes = 60_000
    assert aging(Priority.LOW, NOW) > aging(Priority.CRITICAL, NOW + 49 * minutes)
    assert aging(Priority.LOW, NOW) < aging(Priority.CRITICAL, NOW + 51 * minutes)


def test_a_rank_of_aging_is_exact_for_thousands_of_years() -> None:
    assert aging(Priority.LOW, 1 << 52) == (1 << 52) + 3_000_000


def test_a_policy_is_found_by_its_name() -> None:
    assert policy("strict") is strict and policy("aging") is aging
    with pytest.raises(InvalidInput, match="policy: must be one of strict, aging, not 'random'"):
        policy("random")


async def test_critical_jobs_are_taken_first_and_each_level_first_in_first_out() -> None:
    async with await open_storage("memory://") as store:
        levels = [Priority.LOW, Priority.NORMAL, Priority.CRITICAL, Priority.LOW, Priority.HIGH, Priority.CRITICAL]
        await store.enqueue(
            [NewJob("q", bytes([place]), rank=strict(level, NOW)) for place, level in enumerate(levels)]
        )
        assert [job.data[0] for job in await store.take("q", 10)] == [2, 5, 4, 1, 0, 3]


async def test_a_level_may_be_given_by_its_name_in_any_case() -> None:
    app = App("memory://")

    @app.every(60, priority="high")
    async def sweep() -> None: ...

    async with app:
        await app.enqueue("q", "n", priority="NORMAL")
        await app.enqueue_many("q", ["c"], priority="Critical")
        await sweep.enqueue(priority="low")
        assert [job.rank for job in await app.storage.take("q", 2)] == [Priority.CRITICAL, Priority.NORMAL]
        assert [job.rank for job in await app.storage.take("sweep", 2)] == [Priority.LOW]
    assert app.schedules["sweep"].priority == "HIGH"


@pytest.mark.parametrize("wrong", ["URGENT", "", "Priority.HIGH", 7, None])
async def test_a_word_that_is_no_level_is_told_which_ones_there_are(wrong: object) -> None:
    with pytest.raises(InvalidInput, match=r"priority: must be one of CRITICAL, HIGH, NORMAL, LOW, not "):
        await App("memory://").enqueue("q", priority=wrong)  # type: ignore[arg-type]
