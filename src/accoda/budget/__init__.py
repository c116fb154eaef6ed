"""Budgets: tokens that a shared resource has left, and what jobs take of them."""

from accoda.budget.books import Books
from accoda.budget.clock import StorageClock
from accoda.budget.model import (
    CLAIM_FOR,
    LOOK_AGAIN,
    Account,
    Ask,
    Budget,
    BudgetView,
    Claim,
    Grant,
    Hold,
    Never,
    Observation,
    ReserveResult,
    Settlement,
    Spent,
    Wait,
)

__all__ = [
    "CLAIM_FOR",
    "LOOK_AGAIN",
    "Account",
    "Ask",
    "Books",
    "Budget",
    "BudgetView",
    "Claim",
    "Grant",
    "Hold",
    "Never",
    "Observation",
    "ReserveResult",
    "Settlement",
    "Spent",
    "StorageClock",
    "Wait",
]
