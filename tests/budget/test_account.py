"""One account: how tokens come in, what a settlement and an observation do to it."""

import pytest
from msgspec.structs import replace

from accoda.budget import account as of
from accoda.budget.flow import DAY, advance, fit, left_at, opened, reach
from accoda.budget.model import Account, Ask, Budget, Hold, Observation

NOW = 1_700_000_000_000
KEEPA = Budget("keepa", 20, 20, 60)


def account(left: float = 20, **more: object) -> Account:
    return replace(opened(KEEPA, NOW), left=left, **more)


def reserve(state: Account, id: str, amount: float, now: int = NOW) -> Account:
    return of.hold(state, Ask("deals", ("keepa",), int(amount)), id, Hold(amount, now, now + 65_000))


def seen(left: float, at: int = NOW, **more: float) -> Observation:
    return Observation("keepa", left, at, **more)  # type: ignore[arg-type]


# -- rhythms


def test_tokens_flow_in_evenly_up_to_the_capacity() -> None:
    empty = account(0)
    assert [left_at(empty, NOW + ms) for ms in (0, 3000, 30_000, 60_000, 90_000)] == [0, 1, 10, 20, 20]


def test_after_refill_in_they_come_in_steps() -> None:
    state = of.observe(account(), seen(3, refill_in=10), 0, NOW)
    assert [left_at(state, NOW + ms) for ms in (9_999, 10_000, 69_999)] == [3, 20, 20]
    small = replace(state, refill=4.0)
    assert [left_at(small, NOW + ms) for ms in (9_999, 10_000, 69_999, 70_000, 1_000_000)] == [3, 7, 7, 11, 20]


def test_after_reset_at_it_is_full_at_that_moment_and_every_period() -> None:
    state = of.observe(account(), seen(3, reset_at=NOW + 10_000), 0, NOW)
    assert [left_at(state, NOW + ms) for ms in (9_999, 10_000)] == [3, 20]
    spent = of.settle(advance(state, NOW + 10_000), "gone", 18, (), NOW + 10_000)
    assert [left_at(spent, NOW + ms) for ms in (69_999, 70_000)] == [2, 20]


def test_an_observation_that_says_nothing_of_the_rhythm_changes_none() -> None:
    state = of.observe(of.observe(account(), seen(3, refill_in=10), 0, NOW), seen(2), 0, NOW)
    assert state.step_at == NOW + 10_000


def test_a_debt_refills_from_below_zero() -> None:
    state = of.settle(account(2), "x", 12, (), NOW)
    assert state.left == -10
    assert left_at(state, NOW + 30_000) == 0
    assert reach(state, 5, NOW) == NOW + 45_000


def test_more_than_the_capacity_is_never_reached() -> None:
    assert reach(account(0), 21, NOW) is None


def test_an_older_idea_of_the_time_turns_nothing_back() -> None:
    state = advance(account(0), NOW + 3000)
    assert advance(state, NOW + 1000) == state


def test_a_storage_clock_that_was_set_back_does_not_stop_the_refill() -> None:
    state = reserve(account(0, at=NOW), "a", 5)
    earlier = NOW - 3_600_000
    later = advance(state, earlier)
    assert left_at(later, earlier + 30_000) == 10
    assert advance(later, earlier + 65_000).holds == {}


# -- the code's numbers


def test_new_numbers_of_the_code_win_and_what_is_left_stays_within_the_capacity() -> None:
    state = fit(account(0), Budget("keepa", 100, 100, 60), NOW + 30_000)
    assert (state.left, state.capacity) == (10, 100)  # the time before went by the old rate
    assert left_at(state, NOW + 36_000) == 20
    assert fit(account(20), Budget("keepa", 5, 5, 60), NOW).left == 5
    assert fit(account(20), KEEPA, NOW + 1) == account(20)


# -- settlements and observations


def test_the_real_cost_counts_whether_higher_or_lower() -> None:
    state = reserve(account(), "a", 5)
    assert of.free(state, NOW) == 15
    assert of.free(of.settle(state, "a", 7, (), NOW), NOW) == 13
    assert of.free(of.settle(state, "a", 0, (), NOW), NOW) == 20


def test_an_observation_counts_instead_of_the_estimate_up_and_down() -> None:
    state = reserve(account(10), "a", 5)
    assert of.settle(state, "a", 5, (seen(17),), NOW).left == 17
    assert of.settle(state, "a", 5, (seen(1),), NOW).left == 1
    assert of.settle(state, "a", 5, (seen(-3),), NOW).left == -3
    assert of.settle(state, "a", 5, (seen(500),), NOW).left == 20


def test_what_others_have_reserved_is_off_what_was_observed() -> None:
    state = of.settle(reserve(reserve(account(), "a", 5), "b", 4), "a", 5, (seen(15),), NOW)
    assert of.free(state, NOW) == 11


def test_an_answer_that_was_overtaken_is_believed_downwards_only() -> None:
    both = reserve(reserve(account(), "a", 5), "b", 5)
    first = of.settle(both, "b", 5, (seen(10),), NOW)  # the API had a before b, but b's answer came first
    assert of.settle(first, "a", 5, (seen(15),), NOW).left == 10
    first = of.settle(both, "a", 5, (seen(15),), NOW)
    assert of.settle(first, "b", 5, (seen(10),), NOW).left == 10


def test_one_that_was_reserved_after_the_last_answer_is_believed_again() -> None:
    state = of.settle(reserve(account(), "a", 5), "a", 5, (seen(2),), NOW)
    state = of.settle(reserve(state, "b", 1), "b", 1, (seen(12),), NOW)
    assert state.left == 12


def test_what_settled_blind_meanwhile_is_off_an_answer() -> None:
    both = reserve(reserve(account(), "a", 5), "b", 5)
    state = of.settle(both, "b", 5, (), NOW)  # it came to the API after a, whose number does not know of it
    assert of.settle(state, "a", 5, (seen(15),), NOW).left == 10


def test_of_the_answers_of_one_batch_only_the_first_raises() -> None:
    state = reserve(account(5), "a", 3)
    assert of.settle(state, "a", 3, (seen(12), seen(11), seen(10)), NOW).left == 10
    assert of.settle(state, "a", 3, (seen(10), seen(11), seen(12)), NOW).left == 10


def test_tokens_that_came_in_since_the_answer_are_counted() -> None:
    state = reserve(account(5), "a", 3)
    later = of.settle(state, "a", 3, (seen(10, at=NOW + 3000),), NOW + 9000)
    assert later.left == pytest.approx(12)


def test_an_answer_without_a_moment_is_as_of_now() -> None:
    state = reserve(account(5), "a", 3)
    assert of.settle(state, "a", 3, (seen(10, at=0),), NOW + 9000).left == 10


def test_an_older_answer_puts_a_step_off_but_never_forward() -> None:
    state = of.settle(reserve(reserve(account(), "a", 1), "b", 1), "a", 1, (seen(15, refill_in=1),), NOW)
    assert of.settle(state, "b", 1, (seen(14, refill_in=59),), NOW).step_at == NOW + 59_000
    assert of.settle(state, "b", 1, (seen(14, refill_in=0.5),), NOW).step_at == NOW + 1000


def test_a_reservation_ends_by_itself_and_a_late_settlement_still_counts() -> None:
    state = reserve(account(), "a", 5)
    late = NOW + 65_000
    assert of.free(state, late - 1) == 15 and of.free(state, late) == 20
    assert of.settle(state, "a", 5, (), late).left == 15
    assert of.settle(state, "a", 5, (seen(20, at=late),), late).left == 15  # what came after it is unknown
    assert of.settle(state, "a", 5, (seen(3, at=late),), late).left == 3


def test_keep_lowers_and_renew_lengthens_only_what_is_there() -> None:
    state = reserve(account(), "a", 5)
    assert of.keep(state, "a", 2.0, NOW).holds["a"].amount == 2
    assert of.keep(state, "a", 9.0, NOW).holds["a"].amount == 5
    assert of.keep(state, "a", None, NOW).holds == {}
    assert of.keep(state, "b", 2.0, NOW) is state
    assert of.keep(state, "a", 2.0, NOW + 65_000) is state
    assert of.renew(state, ["a", "b"], NOW + 100_000, NOW).holds["a"].until == NOW + 100_000
    assert of.renew(state, ["a"], NOW + 200_000, NOW + 65_000) is state


# -- the pace


def paced(configured: float, real: float, calls: int = 40) -> Account:
    """An account after calls every 12 seconds, one at a time, at an API of another rate."""
    state = fit(account(10), Budget("keepa", 20, configured, 60), NOW)
    left, now = 10.0, NOW
    for number in range(calls):
        state = reserve(advance(state, now), str(number), 1, now)
        left = min(20.0, left + real / 5) - 3
        now += 12_000
        state = of.settle(state, str(number), 3, (seen(left, now),), now)
    return state


def test_a_rate_that_is_too_high_is_found_out() -> None:
    assert paced(30, 15).pace == pytest.approx(0.5, rel=0.12)
    assert paced(150, 15).pace == pytest.approx(0.1, rel=0.12)


def test_a_rate_that_is_right_or_too_low_is_left_as_it_is() -> None:
    assert paced(15, 15).pace == 1
    assert paced(8, 15).pace == 1


def test_calls_under_way_that_are_in_a_number_already_are_no_sign_of_a_slow_pace() -> None:
    state, left, now = account(15), 15.0, NOW
    state = of.observe(state, seen(15), 0, NOW)
    for number in range(40):
        state = reserve(reserve(state, f"a{number}", 2, now), f"b{number}", 2, now)
        now += 12_000
        left = left + 4 - 4  # both have been there when a's answer comes
        state = of.settle(state, f"a{number}", 2, (seen(left, now),), now)
        state = of.settle(state, f"b{number}", 2, (seen(left, now),), now)
    assert state.pace == 1


def test_a_pace_recovers_when_more_comes_in_again() -> None:
    slow = replace(paced(15, 15), pace=0.3)
    state, now = slow, slow.at
    for number in range(20):
        state = reserve(state, f"n{number}", 1, now)
        now += 12_000
        state = of.settle(state, f"n{number}", 3, (seen(10, now),), now)
    assert state.pace == pytest.approx(1, rel=0.12)


# -- closing, and the day


def test_a_closed_account_pays_nothing_until_its_moment_and_a_shorter_close_does_not_shorten() -> None:
    state = of.close(account(), NOW + 5000, 1, NOW)
    state = of.close(state, NOW + 1000, 1, NOW)
    ask = Ask("deals", ("keepa",), 1)
    assert not of.affordable(state, KEEPA, ask, NOW + 4999) and of.affordable(state, KEEPA, ask, NOW + 5000)
    assert of.payable_at(state, KEEPA, ask, NOW) == NOW + 5000
    free_of_charge = Ask("deals", ("keepa",), 0)
    assert not of.affordable(state, KEEPA, free_of_charge, NOW)
    assert of.affordable(of.reopen(state, NOW), KEEPA, ask, NOW)
    assert of.view("keepa", state, KEEPA, NOW).refused_today == 2


def test_the_day_s_counters_begin_anew_at_midnight() -> None:
    midnight = (NOW // DAY + 1) * DAY
    state = of.settle(account(), "x", 12, (), midnight - 1000)
    view = of.view("keepa", state, KEEPA, midnight - 1000)
    assert view.used_today == 12 and view.utilisation < 0.01
    assert of.view("keepa", state, KEEPA, midnight).used_today == 0


def test_utilisation_is_the_used_share_of_what_could_be_used() -> None:
    state = account()
    for minute in range(1, 11):
        state = of.settle(state, "x", 20, (), NOW + minute * 60_000)
    assert of.view("keepa", state, KEEPA, NOW + 600_000).utilisation == pytest.approx(200 / 220)
