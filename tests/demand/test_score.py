"""The score of a shared job, and its bands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accoda import InvalidInput
from accoda.demand.score import Crowd, Weights, band, changes_at, crowd_of, score
from accoda.limits import MOMENT

MINUTE = 60_000
NOW = 1_700_000_000_000
TIERS = Weights().tiers


def waiters(count: int, tier: str, minutes: float | None) -> list[tuple[float, int | None]]:
    due = None if minutes is None else NOW + round(minutes * MINUTE)
    return [(TIERS[tier], due)] * count


@pytest.mark.parametrize(
    ("count", "tier", "minutes", "points", "name"),
    [
        (5, "business", 0, 10, "urgent"),
        (3, "pro", 5, 22, "normal"),
        (1, "free", 20, 48, "normal"),
        (0, "free", None, 100, "prefetch"),
    ],
)
def test_the_four_rows_of_the_table(count: int, tier: str, minutes: float, points: float, name: str) -> None:
    found = score(crowd_of(waiters(count, tier, minutes)), NOW)
    assert found == points
    assert band(found) == name


@pytest.mark.parametrize(
    ("rank", "name"),
    [
        *[(0, "urgent"), (20, "urgent"), (20.1, "normal"), (21, "normal"), (50, "normal"), (50.5, "low")],
        *[(51, "low"), (99.99, "low"), (100, "prefetch"), (1000, "prefetch")],
    ],
)
def test_the_bands_have_no_gap_between_them(rank: float, name: str) -> None:
    assert band(rank) == name


def test_urgency_counts_whole_minutes_up_to_thirty_and_is_zero_when_overdue() -> None:
    def urgency(minutes: float | None) -> float:
        return score(crowd_of(waiters(10, "business", minutes)), NOW)

    assert [urgency(m) for m in (None, -5, 0, 0.99, 1, 29.9, 30, 500)] == [0, 0, 0, 0, 1, 29, 30, 30]


def test_the_earliest_due_time_and_the_best_tier_may_come_from_different_waiters() -> None:
    mixed = [*waiters(1, "free", 3), *waiters(1, "business", 25)]
    assert score(crowd_of(mixed), NOW) == 3 + 16 + 0


def test_weights_are_parameters() -> None:
    weights = Weights(urgency=2, most_urgency=10, crowd=8, each=1, tiers={"gold": 0, "iron": 5})
    assert score(Crowd(3, 5.0, NOW + 4 * MINUTE), NOW, weights) == 8 + 5 + 5


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        *[({"urgency": -1}, "urgency"), ({"crowd": float("nan")}, "crowd"), ({"tiers": {}}, "tiers")],
        *[({"tiers": {"gold": "0"}}, "tiers['gold']"), ({"each": True}, "each")],
    ],
)
def test_invalid_weights_are_refused_by_name(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Weights(**wrong)  # type: ignore[arg-type]
    assert caught.value.field == field


@given(
    st.lists(st.tuples(st.sampled_from(sorted(TIERS)), st.integers(-10, 90)), min_size=1, max_size=15),
    st.tuples(st.sampled_from(sorted(TIERS)), st.integers(-10, 90)),
)
def test_another_waiter_never_makes_a_job_less_urgent(crowd: list[tuple[str, int]], one: tuple[str, int]) -> None:
    def points(all: list[tuple[str, int]]) -> float:
        return score(crowd_of((TIERS[tier], NOW + m * MINUTE) for tier, m in all), NOW)

    assert points([*crowd, one]) <= points(crowd)
    assert points(crowd) < 100


@given(
    st.builds(Crowd, st.integers(0, 12), st.sampled_from([0.0, 3.0, 10.0]), st.integers(0, 60 * 60_000)),
    st.integers(0, 60 * 60_000),
    st.sampled_from([Weights(), Weights(urgency=0), Weights(most_urgency=0), Weights(urgency=2.5, most_urgency=7)]),
)
def test_the_moment_at_which_time_changes_a_score_is_exact(crowd: Crowd, now: int, weights: Weights) -> None:
    at = changes_at(crowd, now, weights)
    assert at > now
    if at == MOMENT:
        assert score(crowd, now + 120 * 60_000, weights) == score(crowd, now, weights)
    else:
        assert score(crowd, at - 1, weights) == score(crowd, now, weights) > score(crowd, at, weights)
