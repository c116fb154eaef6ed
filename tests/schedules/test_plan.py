"""Which ticks get a job, as properties of all schedules, and by the clock of a few."""

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accoda.schedules import Schedule
from accoda.schedules.model import CatchUp
from accoda.schedules.plan import Plan, plan
from accoda.schedules.ticks import following

NOON = round(datetime(2026, 3, 2, 12, 0, tzinfo=UTC).timestamp() * 1000)
CRONS = ["* * * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "0 7 * * MON-FRI", "0 0 1 * *", "*/20 30 1,2 * * SUN"]
SCHEDULES = st.builds(
    lambda when, catch_up, limit, grace: Schedule(
        name="a", queue="a", catch_up=catch_up, catch_up_limit=limit, grace=grace, **when
    ),
    st.one_of(
        st.floats(0.1, 1e6).map(lambda seconds: {"every": seconds}),
        st.builds(
            lambda cron, zone: {"cron": cron, "tz": zone},
            st.sampled_from(CRONS),
            st.sampled_from(["UTC", "Europe/Rome", "America/New_York"]),
        ),
    ),
    st.sampled_from(["skip", "once", "all"]),
    st.integers(1, 20),
    st.none() | st.floats(0, 1000),
)
LATE = st.integers(0, 10_000) | st.integers(0, 400 * 86_400_000)
SINCE = st.integers(0, 365 * 86_400_000)


@settings(max_examples=200, deadline=None)
@given(SCHEDULES, SINCE, st.lists(LATE, min_size=1, max_size=4))
def test_repeated_plans_never_give_a_tick_twice(schedule: Schedule, since: int, lates: list[int]) -> None:
    ticks = schedule.ticks(NOON + since)
    tick = ticks.after(NOON + since)
    assert tick is not None
    given: list[int] = []
    for late in lates:
        now = tick + late
        found = plan(schedule, ticks, tick, now)
        assert found.next is not None and found.next > now  # the next tick is always in the future
        assert all(tick <= one <= now for one in found.ticks)  # and no job comes before its time
        given += found.ticks
        tick = found.next
    assert given == sorted(set(given))


@settings(max_examples=100, deadline=None)
@given(SCHEDULES, SINCE, st.integers(0, 30), st.floats(0, 1, exclude_max=True))
def test_each_policy_chooses_from_the_ticks_that_have_come(
    schedule: Schedule, since: int, missed: int, part: float
) -> None:
    ticks = schedule.ticks(NOON + since)
    come = list(following(ticks, NOON + since, missed + 2))
    ahead = come.pop()
    now = come[-1] + int((ahead - come[-1]) * part)
    found = plan(schedule, ticks, come[0], now)
    assert found.next == ahead
    if schedule.catch_up == "all":
        assert list(found.ticks) == come[-schedule.catch_up_limit :]
        assert found.missed == (len(come) > schedule.catch_up_limit)
    elif schedule.catch_up == "once":
        assert list(found.ticks) == come[-1:]
    else:
        grace = min(60_000, (ahead - come[-1]) // 2) if schedule.grace is None else round(float(schedule.grace) * 1000)
        assert list(found.ticks) == (come[-1:] if now - come[-1] <= grace else [])


@pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
@pytest.mark.parametrize("when", [{"every": 1}, {"cron": "* * * * * *", "tz": "Europe/Rome"}, {"cron": "* * * 1 1 *"}])
def test_a_year_of_outage_costs_a_bounded_number_of_looks(catch_up: CatchUp, when: dict[str, str]) -> None:
    schedule = Schedule(name="a", queue="a", catch_up=catch_up, **when)  # type: ignore[arg-type]
    looks = 0

    class Counted:
        def __init__(self) -> None:
            self.ticks = schedule.ticks(NOON)

        def after(self, moment: int) -> int | None:
            nonlocal looks
            looks += 1
            return self.ticks.after(moment)

        def last(self, moment: int) -> int | None:
            nonlocal looks
            looks += 1
            return self.ticks.last(moment)

    ticks = Counted()
    tick = ticks.after(NOON)
    assert tick is not None
    found = plan(schedule, ticks, tick, tick + 366 * 86_400_000)
    assert len(found.ticks) == {"all": 100}.get(catch_up, len(found.ticks))
    assert looks <= 104


def test_a_clock_that_was_set_back_loses_no_tick() -> None:
    schedule = Schedule(name="a", queue="a", every=60)
    assert plan(schedule, schedule.ticks(NOON), NOON + 60_000, NOON) == Plan((NOON + 60_000,), NOON + 120_000)


def test_a_tick_that_the_zone_no_longer_has_still_counts() -> None:
    """The rules of a zone may change after it was stored: then it is no tick of the expression any more."""
    schedule = Schedule(name="a", queue="a", cron="0 7 * * *", tz="Europe/Rome", catch_up="all")
    odd = NOON + 1000
    assert plan(schedule, schedule.ticks(0), odd, odd + 5).ticks == (odd,)


def test_the_last_tick_before_the_end_is_the_last() -> None:
    end = datetime(2026, 3, 2, 12, 2, tzinfo=UTC)
    schedule = Schedule(name="a", queue="a", every=60, ends_at=end, catch_up="all")
    ticks = schedule.ticks(NOON)
    assert plan(schedule, ticks, NOON + 60_000, NOON + 60_000).next == NOON + 120_000
    assert plan(schedule, ticks, NOON + 120_000, NOON + 120_000) == Plan((NOON + 120_000,), None)
    assert plan(schedule, ticks, NOON + 60_000, NOON + 900_000) == Plan((NOON + 60_000, NOON + 120_000), None)
