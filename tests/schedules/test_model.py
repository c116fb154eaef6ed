"""What a schedule may say, and how it is told what it may not."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accoda.errors import InvalidInput
from accoda.schedules import Schedule, in_words
from accoda.schedules.model import read_schedule
from accoda.schedules.ticks import Bounded, Interval
from accoda.schedules.words import length_in_words, seconds_of


def schedule(**given: Any) -> Schedule:
    return Schedule(**{"name": "report", "queue": "reports", "every": 60, **given})


@pytest.mark.parametrize(
    ("given", "field", "says"),
    [
        ({"name": "no spaces"}, "name", "letters, digits"),
        ({"queue": "accoda.webhooks"}, "queue", "Accoda's own"),
        ({"every": None}, "cron", "give one of the two"),
        ({"cron": "* * * * *"}, "every", "give one of the two"),
        ({"every": None, "cron": "99 * * * *"}, "cron", "bad minute"),
        ({"every": None, "cron": 5}, "cron", "must be text"),
        ({"every": 0.01}, "every", "at least 0.1 seconds"),
        ({"every": "soon"}, "every", '"1h30m"'),
        ({"every": -1}, "every", '"1h30m"'),
        ({"every": float("nan")}, "every", '"1h30m"'),
        ({"every": True}, "every", '"1h30m"'),
        ({"every": 1e12}, "every", '"1h30m"'),
        ({"tz": "Europe/Roma"}, "tz", "Europe/Rome"),
        ({"priority": "URGENT"}, "priority", "CRITICAL, HIGH, NORMAL, LOW"),
        ({"catch_up": "some"}, "catchUp", "skip, once, all"),
        ({"catch_up_limit": 0}, "catchUpLimit", "from 1 to 1000"),
        ({"catch_up_limit": 10_000}, "catchUpLimit", "from 1 to 1000"),
        ({"overlap": "no"}, "overlap", "allow, skip, replace"),
        ({"grace": "later"}, "grace", '"5m"'),
        ({"starts_at": datetime(2030, 1, 1)}, "startsAt", "time zone"),
        ({"starts_at": "tomorrow"}, "startsAt", "2030-01-31T09:00:00Z"),
        ({"ends_at": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)}, "endsAt", "year 9999"),
        (
            {"starts_at": datetime(2030, 1, 2, tzinfo=UTC), "ends_at": datetime(2030, 1, 1, tzinfo=UTC)},
            "endsAt",
            "at least one tick",
        ),
        ({"enabled": "yes"}, "enabled", "true or false"),
        ({"job_name": ""}, "jobName", "1 to 200"),
        ({"max_retries": -1}, "maxRetries", "whole number from 0"),
        ({"webhook_on": ["never"]}, "webhookOn", "done"),
        ({"cost": -1}, "cost", "whole number from 0"),
        ({"payload": object()}, "payload", "cannot be stored"),
        ({"source": "elsewhere"}, "source", "code, file, api"),
    ],
)
def test_an_invalid_field_is_named_with_advice(given: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(InvalidInput) as error:
        schedule(**given)
    assert error.value.field == field
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"queue": "reports", "every": "5m"}, "name"),
        ({"name": "a", "queue": "reports", "every": "5m", "catchup": "all"}, "catchup"),
        ({"name": "a", "queue": "reports", "every": [5]}, "every"),
        ({"name": "a", "queue": "reports", "every": 5, "catchUp": "no"}, "catchUp"),
        ({"name": "a", "queue": "reports", "every": 5, "overlap": []}, "overlap"),
        ({"name": "a", "queue": "reports", "every": "5m", "startsAt": "2030-13-01"}, "startsAt"),
        ({"name": "a", "queue": "reports", "every": "5m", "catchUpLimit": 5000}, "catchUpLimit"),
    ],
)
def test_plain_values_are_read_by_their_names_on_the_wire(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as error:
        read_schedule(given)
    assert error.value.field == field


def test_a_schedule_travels_as_json_in_camel_case() -> None:
    made = schedule(every="1h30m", catch_up="all", ends_at=datetime(2030, 1, 1, tzinfo=UTC))
    wire = msgspec.json.encode(made)
    assert b'"catchUp":"all"' in wire and b'"every":5400.0' in wire and b'"endsAt":"2030-01-01T00:00:00Z"' in wire
    assert msgspec.json.decode(wire, type=Schedule) == made


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (90, 90.0),
        ("90", 90.0),
        ("90s", 90.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("1d", 86_400.0),
        ("1w2d", 777_600.0),
        ("1.5h", 5400.0),
        ("250ms", 0.25),
        ("1m250ms", 60.25),
        (timedelta(hours=1), 3600.0),
        (0.2, 0.2),
    ],
)
def test_lengths_of_time(given: Any, seconds: float) -> None:
    assert seconds_of("every", given) == seconds


@pytest.mark.parametrize("given", ["", "s", "5 minutes", "m5", "30m1h", "5mm", "1e3", "-5m", None, [], "٣m"])
def test_invalid_lengths_of_time_are_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match="every: must be seconds, or a length such as"):
        seconds_of("every", given)


def test_an_interval_is_anchored_and_never_drifts() -> None:
    interval = Interval(start=1_000_000, every=333)
    assert interval.after(0) == 1_000_000
    assert interval.last(999_999) is None
    assert interval.after(1_000_000) == 1_000_333
    assert interval.after(1_000_000 + 333 * 10**9) == 1_000_000 + 333 * (10**9 + 1)


@given(st.integers(0, 10**13), st.integers(100, 10**9), st.integers(0, 10**13))
def test_looking_back_is_the_inverse_of_looking_ahead(start: int, every: int, moment: int) -> None:
    interval = Interval(start, every)
    ahead = interval.after(moment)
    assert ahead is not None and ahead > moment and (ahead - start) % every == 0
    back = interval.last(moment)
    assert (back is None) == (moment < start)
    assert back is None or (back <= moment and interval.after(back) == ahead)


def test_bounds_hold_at_both_ends_and_include_them() -> None:
    bounded = Bounded(Interval(0, 10), first=20, end=40)
    assert [bounded.after(moment) for moment in (0, 19, 20, 39, 40)] == [20, 20, 30, 40, None]
    assert [bounded.last(moment) for moment in (0, 19, 20, 45, 1000)] == [None, None, 20, 40, 40]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"every": 300}, "every 5 minutes"),
        ({"every": 3600}, "every hour"),
        ({"every": 90}, "every 1 minute 30 seconds"),
        ({"cron": "0 7 * * MON-FRI", "tz": "Europe/Rome"}, "at 07:00, Monday to Friday, Europe/Rome"),
        ({"cron": "0 7 * * *", "tz": "Europe/Rome"}, "every day at 07:00, Europe/Rome"),
        ({"cron": "*/5 * * * *"}, "every 5 minutes, UTC"),
        ({"cron": "*/10 * * * * *"}, "every 10 seconds, UTC"),
        ({"cron": "* * * * *"}, "every minute, UTC"),
        ({"cron": "0 * * * *"}, "every hour, UTC"),
        ({"cron": "*/7 9-17 * * *"}, "every seventh minute from 09:00 to 17:59, UTC"),
        ({"cron": "@daily"}, "every day at 00:00, UTC"),
        ({"cron": "0 6,18 * * *"}, "every day at 06:00 and 18:00, UTC"),
        ({"cron": "30 2 1 * *"}, "at 02:30 on the first day of every month, UTC"),
        ({"cron": "0 0 * * SUN"}, "at 00:00, Sunday, UTC"),
    ],
)
def test_a_schedule_in_words(given: dict[str, Any], words: str) -> None:
    assert in_words(schedule(**{"every": None, **given})) == words


def test_lengths_in_words() -> None:
    assert [length_in_words(n) for n in (1, 60, 0.25, 172_800, 90_061)] == [
        "second",
        "minute",
        "0.25 seconds",
        "2 days",
        "1 day 1 hour 1 minute 1 second",
    ]
