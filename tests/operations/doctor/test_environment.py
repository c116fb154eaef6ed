"""This machine and this Python."""

from accoda.operations.doctor import environment
from accoda.operations.doctor.reach import clock_skew, round_trip


def test_wrong_limits_of_the_environment_are_problems() -> None:
    found = environment.look("memory", {"ACCODA_MAX_PAYLOAD": "lots"})
    [limit] = [each for each in found if each.what == "limits"]
    assert limit.level == "problem" and "ACCODA_MAX_PAYLOAD" in limit.found and limit.advice


def test_the_driver_of_the_store_is_looked_for() -> None:
    drivers = [each.found for each in environment.look("sqlite", {}) if each.what == "driver"]
    assert len(drivers) == 1 and drivers[0].startswith("apsw ")


def test_a_clock_that_is_off_is_a_warning_and_far_off_a_problem() -> None:
    assert clock_skew(300, 0.001).level == "ok"
    assert clock_skew(-5_000, 0.001).level == "warning" and "behind" in clock_skew(-5_000, 0.001).found
    assert clock_skew(3_600_000, 0.001).level == "problem" and "3600.0 s ahead" in clock_skew(3_600_000, 0.001).found


def test_a_slow_answer_says_nothing_of_the_clock() -> None:
    assert clock_skew(2_000, 4.0).level == "ok"


def test_a_long_round_trip_is_told() -> None:
    assert [round_trip(seconds).level for seconds in (0.001, 0.05, 0.5)] == ["ok", "note", "warning"]
