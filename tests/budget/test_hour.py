"""Eight workers on an API of 20 tokens a minute, for a simulated hour: what it refuses, and how much of it is used."""

import heapq
import itertools
import random

import pytest
from budget_world import EPSILON, Api, Call, Rhythm, World

from accoda.budget import ledger as book
from accoda.budget.model import LOOK_AGAIN, Budget, Grant, Settlement, Spent, Wait

HOUR = 3_600_000


def hour(
    world: World, *, observe: bool, costs: tuple[int, ...] = (1,), latency: int = 2000, exact: bool = False
) -> float:
    """Let workers take what they can for an hour, and give the used share of all tokens.

    `exact`: hold the account against the API at every step.
    """
    chance, order = random.Random(1), itertools.count()
    api = world.api
    due: list[tuple[int, int, str, Call | None]] = [(api.now + n, next(order), "ask", None) for n in range(8)]

    def later(ms: int, what: str, call: Call | None = None) -> None:
        heapq.heappush(due, (api.now + ms, next(order), what, call))

    end = api.now + HOUR
    while due[0][0] < end:
        moment, _, what, call = heapq.heappop(due)
        api.advance(moment - api.now)
        if what == "ask":
            cost = chance.choice(costs)
            answer = world.ask("deals", cost)
            if isinstance(answer, Grant):
                world.calls.append(Call(answer, cost))
                later(chance.randrange(latency // 2), "arrive", world.calls[-1])
            else:
                assert isinstance(answer, Wait)
                later(min(answer.until - api.now, round(LOOK_AGAIN * 1000)), "ask")
        elif what == "arrive":
            assert call is not None
            if not world.arrive(call):  # 429: the API says for how long
                world.calls.remove(call)
                until = api.now + api.retry_after(call.cost)
                settlement = Settlement(call.grant, Spent(), (), until, (), 1)
                world.ledger = book.settle(world.ledger, world.basis, settlement)
                later(until - api.now, "ask")
            else:
                later(chance.randrange(latency // 2), "settle", call)
        else:
            assert call is not None
            world.settle(call, observed=observe)
            later(0, "ask")
        assert not exact or world.free() <= world.truly_free() + EPSILON
    return float(api.spent / (api.capacity + api.refill * HOUR / api.per))


@pytest.mark.parametrize("rhythm", ["even", "steps", "reset"])
@pytest.mark.parametrize("costs", [(1,), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("latency", [2_000, 20_000])
def test_nothing_is_refused_and_nearly_all_is_used(rhythm: Rhythm, costs: tuple[int, ...], latency: int) -> None:
    world = World(Budget("keepa", 20, 20, 60), Api(20.0, 20.0, 60_000, rhythm))
    world.ledger = book.observe(world.ledger, world.basis, [world.api.answer("keepa", world.api.now)])
    used = hour(world, observe=True, costs=costs, latency=latency, exact=True)
    assert world.api.refused == 0
    assert used >= 0.98  # 60/61: what came in at the very end could not be used any more


@pytest.mark.parametrize("rhythm", ["steps", "reset"])
def test_a_capacity_that_is_too_high_is_found_out_after_the_first_refills(rhythm: Rhythm) -> None:
    world = World(Budget("keepa", 60, 60, 60), Api(20.0, 20.0, 60_000, rhythm))
    assert hour(world, observe=True, costs=(5,), latency=20_000) >= 0.9
    assert world.api.refused <= 40
    assert world.ledger.accounts["keepa"].pace == pytest.approx(1 / 3, abs=0.1)


@pytest.mark.parametrize("rhythm", ["even", "steps", "reset"])
@pytest.mark.parametrize("rate", [0.5, 2.0, 5.0])
def test_a_wrong_rate_costs_little_as_long_as_calls_observe(rhythm: Rhythm, rate: float) -> None:
    world = World(Budget("keepa", 20, 20 * rate, 60), Api(20.0, 20.0, 60_000, rhythm))
    used = hour(world, observe=True)
    assert used >= 0.98
    # Twice the rate would be one refusal for every token; the pace is learnt after a few.
    assert world.api.refused <= (20 if rhythm == "even" and rate > 1 else 0)


def test_without_observing_a_wrong_rate_is_refused_all_the_time() -> None:
    world = World(Budget("keepa", 20, 40, 60), Api(20.0, 20.0, 60_000, "even"))
    hour(world, observe=False, costs=(1, 2, 3, 4, 5))
    assert world.api.refused > 500
