"""Random histories of calls, answers that overtake each other, deaths and time, against an API that counts itself."""

import random

import pytest
from budget_world import EPSILON, Api, Rhythm, World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accoda.budget import ledger as book
from accoda.budget.model import Budget, Grant, Never, Wait

NAME = "keepa"
steps = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "reserve", "arrive", "arrive", "settle", "settle", "blind", "die", "time"]),
        st.integers(0, 1000),
        st.integers(0, 1000),
    ),
    max_size=60,
)
worlds = st.builds(
    lambda capacity, refill, per, rhythm, phase, headroom: World(
        Budget(NAME, capacity, capacity if rhythm == "reset" else refill, per, headroom=headroom),
        Api(float(capacity), float(capacity if rhythm == "reset" else refill), per * 1000, rhythm, phase),
    ),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 90),
    st.sampled_from(["even", "steps", "reset"]),
    st.integers(0, 90_000),
    st.sampled_from([0.0, 0.2]),
)
fast = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def play(world: World, history: list[tuple[str, int, int]]) -> None:
    world.ledger = book.observe(world.ledger, world.basis, [world.api.answer(NAME, world.api.now)])
    for what, a, b in history:
        waiting = [call for call in world.calls if not call.arrived]
        answered = [call for call in world.calls if call.arrived]
        if what == "reserve":
            world.reserve(f"q{a % 3}", a % 7, 1 + b % 4, b % 5)
        elif what == "arrive" and waiting:
            assert world.arrive(waiting[a % len(waiting)]), "the API refused a call"
        elif what == "settle" and answered:
            world.settle(answered[a % len(answered)])
        elif what == "blind" and answered and world.api.rhythm != "steps":
            # Not with steps: a step is known late by the time of an answer, and what is spent unobserved until then
            # may be paid from what the API cut off at its capacity. docs/budgets.md says so.
            world.settle(answered[a % len(answered)], observed=False)
        elif what == "die" and waiting:
            world.calls.remove(waiting[a % len(waiting)])
        elif what == "time":
            world.pass_time(a * b // 25)
        assert world.free() <= world.truly_free() + EPSILON, what


@given(world=worlds, history=steps)
@fast
def test_nothing_is_reserved_that_the_api_does_not_have(world: World, history: list[tuple[str, int, int]]) -> None:
    play(world, history)


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_reserved_that_the_api_does_not_have_in_long_histories(seed: int) -> None:
    chance = random.Random(seed)
    rhythm: Rhythm = chance.choice(["even", "steps", "reset"])
    capacity, per = chance.randint(1, 40), chance.randint(1, 90)
    refill = capacity if rhythm == "reset" else chance.randint(1, 40)
    world = World(
        Budget(NAME, capacity, refill, per),
        Api(float(capacity), float(refill), per * 1000, rhythm, chance.randrange(90_000)),
    )
    often = ["reserve", "arrive", "settle"] * 3 + ["blind", "die"] + ["time"] * chance.randint(1, 3)
    play(world, [(chance.choice(often), chance.randrange(1001), chance.randrange(300)) for _ in range(300)])


@given(world=worlds, history=steps)
@fast
def test_when_all_calls_have_ended_or_died_every_token_is_back_after_a_while(
    world: World, history: list[tuple[str, int, int]]
) -> None:
    play(world, history)
    world.calls.clear()
    world.pass_time(65_000 + world.api.per * (2 + int(world.budget.capacity / world.budget.refill) * 2))
    view = book.views(world.ledger, world.basis)[NAME]
    assert view.reserved == 0 and view.reservations == {} and view.claims == {}
    # It may have been on the safe side by what was under way when an answer came: at most that much behind.
    assert view.left == pytest.approx(world.api.left, abs=EPSILON) or view.left <= world.api.left


@given(world=worlds, history=steps, cost=st.integers(1, 40), urgent=st.booleans())
@fast
def test_the_moment_that_one_is_told_to_wait_for_is_the_first_at_which_the_head_is_paid(
    world: World, history: list[tuple[str, int, int]], cost: int, urgent: bool
) -> None:
    play(world, history)
    world.calls.clear()  # they died: nothing happens any more but the passing of time
    answer = world.ask("patient", cost, urgent=urgent)
    if cost > world.budget.capacity:
        assert isinstance(answer, Never)
        return
    if isinstance(answer, Wait):
        wait = answer.until - world.api.now
        assert wait > 0
        world.api.advance(wait - 1)
        assert isinstance(world.ask("patient", cost, urgent=urgent), Wait), "it could be paid before"
        world.api.advance(1)
        answer = world.ask("patient", cost, urgent=urgent)
    assert isinstance(answer, Grant)
    assert answer.max_cost is not None and answer.max_cost >= cost


@given(seed=st.integers(0, 2**32), rhythm=st.sampled_from(["even", "steps", "reset"]), cost=st.integers(2, 20))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_an_expensive_head_is_paid_within_one_refill_of_being_affordable_whatever_cheap_asks_come(
    seed: int, rhythm: Rhythm, cost: int
) -> None:
    chance = random.Random(seed)
    api = Api(20.0, 20.0, 60_000, rhythm, chance.randrange(60_000))
    world = World(Budget(NAME, 20, 20, 60), api)
    world.ledger = book.observe(world.ledger, world.basis, [api.answer(NAME, api.now)])
    while (grant := world.reserve("cheap", 1, 1, 1)) is not None:  # the budget is empty when the head comes
        world.arrive(world.calls[-1])
        world.settle(world.calls[-1])
    saved, asked_at, granted = 0.0, api.now, grant is not None
    affordable_at, granted_at = None, api.now
    while not granted:
        # What a head that came first could have: everything that has come in since it asked.
        if affordable_at is None and saved + EPSILON >= cost:
            affordable_at = api.now
        for queue in chance.sample(["dear", "cheap", "cheaper", "cheapest"], 4):
            if queue == "dear":
                granted = isinstance(world.ask("dear", cost), Grant)
                granted_at = api.now
            elif world.reserve(queue, 1, 10, 10) is not None:
                call = world.calls[-1]
                world.arrive(call)
                world.settle(call)
        before = api.left
        api.advance(chance.randrange(1, 2000))
        saved += max(0.0, api.left - before)
        assert api.now - asked_at < 200_000
    # Heads of other queues that waited before it go first, once each; then it is its turn, at the look after a refill.
    assert affordable_at is None or granted_at - affordable_at <= 60_000 + 2_000
    assert api.refused == 0


@given(history=steps, rate=st.sampled_from([0.3, 0.5, 2.0, 3.0]))
@fast
def test_after_wrong_rates_and_deaths_one_answer_puts_the_account_right(
    history: list[tuple[str, int, int]], rate: float
) -> None:
    world = World(Budget(NAME, 20, 20 * rate, 60), Api(20.0, 20.0, 60_000, "even"))
    for what, a, b in history:
        waiting = [call for call in world.calls if not call.arrived]
        answered = [call for call in world.calls if call.arrived]
        if what == "reserve":
            world.reserve(f"q{a % 3}", a % 7, 1 + b % 4, b % 5)
        elif what == "arrive" and waiting:
            world.arrive(waiting[a % len(waiting)])
        elif what in ("settle", "blind") and answered:
            world.settle(answered[a % len(answered)], observed=what == "settle")
        elif what == "die" and world.calls:  # before its call, or after it: then the tokens are spent and come back
            world.calls.pop(a % len(world.calls))
        elif what == "time":
            world.pass_time(a * b // 25)
    world.pass_time(66_000)
    for call in list(world.calls):
        call.arrived or world.arrive(call)
        world.settle(call)
    world.reserve("last", 0, 1, 1)
    last = world.calls[-1]
    world.arrive(last)
    world.settle(last)
    assert world.free() == pytest.approx(world.api.left, abs=EPSILON)
