"""What is wrong with a budget, an ask or an observation is said when it is made."""

import doctest
from typing import Any

import pytest

from accoda.budget import Ask, Budget, Never, Observation, Spent, model
from accoda.errors import InvalidInput

GOOD: dict[str, Any] = {"name": "keepa", "capacity": 20, "refill": 20, "per": 60}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "a b"),
        ("name", ""),
        ("capacity", 0),
        ("capacity", -1),
        ("capacity", float("nan")),
        ("capacity", float("inf")),
        ("capacity", True),
        ("capacity", "20"),
        ("refill", 0),
        ("refill", float("inf")),
        ("per", 0),
        ("per", None),
        ("counts", "tokens"),
        ("headroom", -0.1),
        ("headroom", 1),
        ("headroom", float("nan")),
    ],
)
def test_a_budget_that_cannot_be_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        Budget(**GOOD | {field: value})
    assert caught.value.field == ("budget" if field == "name" else field)


@pytest.mark.parametrize(
    "wrong",
    [
        {"budgets": ()},
        {"budgets": ("a", "a")},
        {"budgets": "keepa"},
        {"head_cost": -1},
        {"most_jobs": 0},
        {"lease": 0},
        {"queue": "a b"},
    ],
)
def test_an_ask_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Ask(**{"queue": "deals", "budgets": ("keepa",)} | wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"left": float("nan")},
        {"left": float("inf")},
        {"left": "5"},
        {"refill_in": -1},
        {"reset_at": -1},
        {"refill_in": 1, "reset_at": 1},
        {"at": 1.5},
    ],
)
def test_an_observation_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Observation(**dict[str, Any](budget="keepa", left=5, at=1) | wrong)


def test_spent_is_never_negative() -> None:
    with pytest.raises(InvalidInput):
        Spent(1, -1)


def test_a_head_that_can_never_be_paid_says_why() -> None:
    assert Never("keepa", 30, 20).reason == "costs 30, and budget 'keepa' holds 20 at most"
    assert Never("keepa", 30, 20.5).reason == "costs 30, and budget 'keepa' holds 20.5 at most"


def test_the_examples_of_the_module_run() -> None:
    assert doctest.testmod(model).failed == 0
