"""The moments of cron expressions, and above all the two nights a year on which clocks are changed.

What is expected was written down from the rules of the zones, not computed:

- Europe/Rome is UTC+1, and UTC+2 in summer. On Sunday 29 March 2026, at 01:00 UTC, the clocks go from 02:00 to 03:00:
  the times from 02:00 to 02:59 do not exist. On Sunday 25 October 2026, at 01:00 UTC, they go from 03:00 back to 02:00:
  02:00 to 02:59 comes twice, first at 00:00 to 00:59 UTC (still UTC+2), then at 01:00 to 01:59 UTC (UTC+1).
- America/New_York is UTC-5, and UTC-4 in summer. On Sunday 8 March 2026, at 07:00 UTC, the clocks go from 02:00 to
  03:00. On Sunday 1 November 2026, at 06:00 UTC, they go from 02:00 back to 01:00: 01:00 to 01:59 comes twice, first at
  05:00 to 05:59 UTC (UTC-4), then at 06:00 to 06:59 UTC (UTC-5).
"""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from accoda.errors import InvalidInput
from accoda.schedules.cron import NICKNAMES, Cron, read_cron

ROME, NEW_YORK = "Europe/Rome", "America/New_York"


def utc(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def between(expression: str, zone: str, start: str, end: str) -> list[str]:
    """The ticks from `start` on and before `end`, both in UTC, forwards; backwards they must be the same."""
    cron, first, stop = Cron(expression, zone), utc(start), utc(end)
    forwards: list[int] = []
    at = cron.after(first - 1)
    while at is not None and at < stop:
        forwards.append(at)
        at = cron.after(at)
    backwards: list[int] = []
    at = cron.last(stop - 1)
    while at is not None and at >= first:
        backwards.append(at)
        at = cron.last(at - 1)
    assert backwards[::-1] == forwards
    return [f"{datetime.fromtimestamp(one, UTC):%d %H:%M}" for one in forwards]


# -- spring: an hour is missing


def test_rome_in_spring_a_skipped_time_fires_when_the_jump_ends() -> None:
    # 02:30 on the 28th is 01:30 UTC (UTC+1). On the 29th it does not exist; the jump ends at 01:00 UTC, when clocks
    # show 03:00. On the 30th 02:30 is 00:30 UTC (UTC+2).
    days = ("2026-03-28", "2026-03-31")
    assert between("30 2 * * *", ROME, *days) == ["28 01:30", "29 01:00", "30 00:30"]
    assert between("0 30 2 * * *", ROME, *days) == ["28 01:30", "29 01:00", "30 00:30"]  # with seconds it is no other


def test_rome_in_spring_times_around_the_jump_come_once_each() -> None:
    # 01:30 is 00:30 UTC before the jump; 03:00 is 01:00 UTC, the end of the jump itself; 03:30 is 01:30 UTC.
    day = ("2026-03-29T00:00", "2026-03-29T12:00")
    assert between("30 1,3 * * *", ROME, *day) == ["29 00:30", "29 01:30"]
    assert between("0 3 * * *", ROME, *day) == ["29 01:00"]
    assert between("0,30 2 * * *", ROME, *day) == ["29 01:00"]  # both are jumped over, and both come at its end: once


def test_rome_in_spring_hourly_jobs_come_every_real_hour() -> None:
    # 23:00 (28th), 00:00, 01:00 by UTC+1, then 03:00, 04:00 by UTC+2: an hour apart, all of them.
    hours = ["28 22:00", "28 23:00", "29 00:00", "29 01:00", "29 02:00"]
    assert between("0 * * * *", ROME, "2026-03-28T22:00", "2026-03-29T03:00") == hours


def test_rome_in_spring_jobs_every_15_minutes_do_not_pause() -> None:
    # 01:45 is 00:45 UTC; the next that the clocks show is 03:00, which is 01:00 UTC.
    quarters = ["29 00:30", "29 00:45", "29 01:00", "29 01:15"]
    assert between("*/15 * * * *", ROME, "2026-03-29T00:30", "2026-03-29T01:30") == quarters


def test_rome_in_spring_a_step_whose_hour_is_missing_leaves_it_out() -> None:
    # Every two hours: 00:00 is 23:00 UTC, 02:00 does not exist, 04:00 is 02:00 UTC by UTC+2.
    assert between("0 */2 * * *", ROME, "2026-03-28T22:30", "2026-03-29T03:00") == ["28 23:00", "29 02:00"]


def test_new_york_in_spring() -> None:
    # 02:30 on the 7th is 07:30 UTC (UTC-5). On the 8th it is jumped over, and the jump ends at 07:00 UTC. On the 9th it
    # is 06:30 UTC (UTC-4).
    assert between("30 2 * * *", NEW_YORK, "2026-03-07", "2026-03-10") == ["07 07:30", "08 07:00", "09 06:30"]
    # 00:00 and 01:00 by UTC-5, then 03:00 and 04:00 by UTC-4.
    hours = ["08 05:00", "08 06:00", "08 07:00", "08 08:00"]
    assert between("0 * * * *", NEW_YORK, "2026-03-08T05:00", "2026-03-08T09:00") == hours
    # 01:30, 01:45 by UTC-5, then 03:00, 03:15 by UTC-4.
    quarters = ["08 06:30", "08 06:45", "08 07:00", "08 07:15"]
    assert between("*/15 * * * *", NEW_YORK, "2026-03-08T06:30", "2026-03-08T07:30") == quarters


# -- autumn: an hour comes twice


def test_rome_in_autumn_a_time_that_comes_twice_fires_once_the_first_time() -> None:
    # 02:30 on the 24th is 00:30 UTC (UTC+2). On the 25th it is shown at 00:30 and at 01:30 UTC: the first counts. On
    # the 26th it is 01:30 UTC (UTC+1).
    days = ("2026-10-24", "2026-10-27")
    assert between("30 2 * * *", ROME, *days) == ["24 00:30", "25 00:30", "26 01:30"]
    assert between("15 30 2 * * *", ROME, *days) == ["24 00:30", "25 00:30", "26 01:30"]


def test_rome_in_autumn_hourly_jobs_come_every_real_hour() -> None:
    # 01:00 and 02:00 by UTC+2, 02:00 and 03:00 by UTC+1: the hour that comes twice has two ticks, an hour apart.
    hours = ["24 23:00", "25 00:00", "25 01:00", "25 02:00"]
    assert between("0 * * * *", ROME, "2026-10-24T23:00", "2026-10-25T03:00") == hours


def test_rome_in_autumn_jobs_every_15_minutes_do_not_pause() -> None:
    # 02:30 and 02:45 of the first pass, then 02:00, 02:15, 02:30 of the second.
    quarters = ["25 00:30", "25 00:45", "25 01:00", "25 01:15", "25 01:30"]
    assert between("*/15 * * * *", ROME, "2026-10-25T00:30", "2026-10-25T01:45") == quarters
    # Only in the hour that comes twice: four times in each pass.
    assert len(between("*/15 2 * * *", ROME, "2026-10-24T22:00", "2026-10-25T22:00")) == 8


def test_new_york_in_autumn() -> None:
    # 01:30 on 31 October is 05:30 UTC (UTC-4); on 1 November it is shown at 05:30 and 06:30 UTC, and the first counts;
    # on the 2nd it is 06:30 UTC (UTC-5).
    assert between("30 1 * * *", NEW_YORK, "2026-10-31", "2026-11-03") == ["31 05:30", "01 05:30", "02 06:30"]
    # 00:00 and 01:00 by UTC-4, 01:00 and 02:00 by UTC-5.
    hours = ["01 04:00", "01 05:00", "01 06:00", "01 07:00"]
    assert between("0 * * * *", NEW_YORK, "2026-11-01T04:00", "2026-11-01T08:00") == hours
    # 01:30, 01:45 of the first pass; 01:00, 01:15, 01:30, 01:45 of the second; 02:00.
    quarters = ["01 05:30", "01 05:45", "01 06:00", "01 06:15", "01 06:30", "01 06:45", "01 07:00"]
    assert between("*/15 * * * *", NEW_YORK, "2026-11-01T05:30", "2026-11-01T07:15") == quarters


def test_in_the_second_pass_no_past_moment_is_given() -> None:
    # At 01:15 UTC Rome shows 02:15 for the second time. 02:30 was at 00:30 UTC; the next is tomorrow's, 01:30 UTC.
    cron = Cron("30 2 * * *", ROME)
    assert cron.after(utc("2026-10-25T01:15")) == utc("2026-10-26T01:30")
    assert cron.last(utc("2026-10-25T01:15")) == utc("2026-10-25T00:30")


def test_seven_in_the_morning_in_rome_stays_seven_in_the_morning() -> None:
    # Friday 27 March: 06:00 UTC. Monday 30 March, after the change: 05:00 UTC.
    found = between("0 7 * * MON-FRI", ROME, "2026-03-27", "2026-03-31")
    assert found == ["27 06:00", "30 05:00"]


# -- against cronsim's own idea of zones, where it has the same rule

FIELDS = st.sampled_from(["*", "*/15", "*/7", "0", "30", "5,35", "10-20/5"])
HOURS = st.sampled_from(["*", "*/2", "*/5", "0", "1", "2", "3", "1-3", "2,14"])
DAYS = st.sampled_from(["*", "1", "L", "29", "*/2"])
MONTHS = st.sampled_from(["*", "3", "10", "3,10,11", "2"])
WEEKDAYS = st.sampled_from(["*", "SUN", "MON-FRI", "0#2", "5L"])
# Not Australia/Lord_Howe, whose clocks move by half an hour: cronsim itself leaves out the half hour after the change.
ZONES = st.sampled_from(["UTC", ROME, NEW_YORK, "Asia/Kolkata", "Africa/Casablanca"])
EXPRESSIONS = st.builds(" ".join, st.tuples(FIELDS, HOURS, DAYS, MONTHS, WEEKDAYS))
MOMENTS = st.integers(utc("2020-01-01"), utc("2035-01-01")) | st.integers(-20_000, 20_000).map(
    lambda seconds: utc("2026-10-25T01:00") + seconds
)


def test_no_half_hour_is_left_out_if_clocks_move_by_half_an_hour() -> None:
    # On 4 October 2020 at 02:00 (15:30 UTC) the clocks of Lord Howe Island go to 02:30; 03:00 there is 16:00 UTC.
    cron = Cron("*/10 3 4 10 *", "Australia/Lord_Howe")
    at, found = utc("2020-10-03T12:00"), []
    for _ in range(6):
        at = cron.after(at)
        found.append(at)
    assert found == [utc("2020-10-03T16:00") + 600 * number for number in range(6)]


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS, ZONES, MOMENTS)
def test_five_fields_tick_as_cronsim_says(expression: str, zone: str, moment: int) -> None:
    try:
        theirs = CronSim(expression, datetime.fromtimestamp(moment, ZoneInfo(zone)))
    except Exception:
        return
    # Asked in the second pass of an hour it may give moments that are past, and several times the same one.
    found: list[int] = []
    for one in theirs:
        tick = round(one.timestamp())
        if tick > (found[-1] if found else moment):
            found.append(tick)
        if len(found) == 3:
            break
    cron, at = Cron(expression, zone), moment
    for expected in found:
        assert cron.after(at) == expected
        at = expected


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["", "0 ", "30 ", "*/20 "]), EXPRESSIONS, ZONES, MOMENTS)
def test_looking_back_is_the_inverse_of_looking_ahead(second: str, rest: str, zone: str, moment: int) -> None:
    try:
        cron = read_cron(second + rest, zone)
    except InvalidInput:
        return
    ahead = cron.after(moment)
    assert ahead is not None and ahead > moment
    assert cron.last(ahead) == ahead
    back = cron.last(ahead - 1)
    if back is not None:
        assert back <= moment and cron.after(back) == ahead


# -- what is refused


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("61 * * * *", "bad minute"),
        ("* * * *", "wrong number of fields"),
        ("* * * * * * *", "wrong number of fields"),
        ("0 0 32 2 *", "bad day-of-month"),
        ("0 0 * 2 MON#9", "bad day-of-week"),
        ("@sometimes", "wrong number of fields"),
        ("9" * 150 + " * * * *", "bad minute"),
        ("*/0 * * * *", "bad minute"),
        ("", "1 to 200"),
        ("0 " * 200, "1 to 200"),
    ],
)
def test_an_invalid_expression_is_refused_with_advice(expression: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=r"five fields \(minute hour day month weekday\)") as error:
        read_cron(expression, "UTC")
    assert error.value.field == "cron" and says in str(error.value)


@pytest.mark.parametrize("expression", ["0 0 */30 2 MON#5", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "5 0 0 31 2 *"])
def test_an_expression_that_never_fires_is_refused(expression: str) -> None:
    with pytest.raises(InvalidInput, match="never fires: none of its months has such a day") as error:
        read_cron(expression, "UTC")
    assert error.value.field == "cron"


@pytest.mark.parametrize("zone", ["Europe/Roma", "../etc/passwd", "", "/etc/localtime", "x" * 100, "Europe", 5, None])
def test_an_unknown_zone_is_refused(zone: object) -> None:
    with pytest.raises(InvalidInput, match="Europe/Rome") as error:
        read_cron("* * * * *", zone)
    assert error.value.field == "tz"


def test_nicknames_are_expressions() -> None:
    for name, expression in NICKNAMES.items():
        assert read_cron(name, ROME).after(0) == read_cron(expression, ROME).after(0)
