"""Several budgets together: what is granted, and which claim waits for which."""

from typing import Any

from accoda.budget import ledger as book
from accoda.budget.ledger import Basis, Ledger
from accoda.budget.model import CLAIM_FOR, Ask, Budget, Grant, Never, ReserveResult, Settlement, Spent, Wait

NOW = 1_700_000_000_000


class Table:
    """A ledger, and a clock that is moved by hand."""

    def __init__(self, *budgets: Budget) -> None:
        self.budgets = {budget.name: budget for budget in budgets}
        self.ledger, self.now, self.count = Ledger(), NOW, 0

    @property
    def basis(self) -> Basis:
        return Basis(self.budgets, self.now)

    def ask(self, cost: int = 1, queue: str = "deals", **more: Any) -> ReserveResult:
        self.count += 1
        ask = Ask(queue, more.pop("budgets", tuple(self.budgets)), cost, **more)
        self.ledger, answer = book.reserve(self.ledger, self.basis, ask, str(self.count))
        return answer

    def grant(self, cost: int = 1, queue: str = "deals", **more: Any) -> Grant:
        answer = self.ask(cost, queue, **more)
        assert isinstance(answer, Grant), answer
        return answer

    def spend(self, cost: int) -> None:
        self.settle(self.grant(cost, "spender"), Spent(1, cost))

    def settle(self, grant: Grant, spent: Spent) -> None:
        self.ledger = book.settle(self.ledger, self.basis, Settlement(grant, spent))


def keepa(**more: Any) -> Budget:
    return Budget("keepa", 20, 20, 60, **more)


# -- what is granted


def test_a_batch_is_granted_about_its_jobs_and_no_more() -> None:
    assert (lambda g: (g.count, g.max_cost))(Table(keepa()).grant(3, most_jobs=4)) == (4, 12)
    assert (lambda g: (g.count, g.max_cost))(Table(keepa()).grant(3, most_jobs=10)) == (10, 20)


def test_budgets_that_count_jobs_bound_the_number_and_those_that_count_cost_the_cost() -> None:
    table = Table(keepa(), Budget("requests", 3, 3, 1, counts="jobs"), Budget("daily", 11, 11, 86_400))
    grant = table.grant(5, most_jobs=10)
    assert (grant.count, grant.max_cost) == (3, 11)
    assert grant.amounts == {"keepa": 11, "requests": 3, "daily": 11}


def test_where_only_jobs_are_counted_cost_is_unbounded() -> None:
    grant = Table(Budget("requests", 3, 3, 1, counts="jobs")).grant(500, most_jobs=10)
    assert (grant.count, grant.max_cost) == (3, None)


def test_a_head_that_costs_nothing_is_paid_even_in_debt() -> None:
    table = Table(keepa())
    table.settle(table.grant(20), Spent(1, 50))
    assert isinstance(table.ask(1), Wait)
    assert table.grant(0, "free", most_jobs=5).max_cost == 0


def test_a_head_that_costs_more_than_a_budget_holds_can_never_be_paid() -> None:
    table = Table(keepa(), Budget("tokens", 1000, 1000, 60))
    answer = table.ask(30)
    assert isinstance(answer, Never)
    assert answer.reason == "costs 30, and budget 'keepa' holds 20 at most"
    assert table.ledger == Ledger()  # no claim is left


def test_several_budgets_wait_for_the_slowest() -> None:
    table = Table(keepa(), Budget("slow", 10, 1, 60))
    table.settle(table.grant(10), Spent(1, 10))
    answer = table.ask(2)
    assert answer == Wait(NOW + 120_000, "slow")
    assert table.ledger.accounts["keepa"].holds == {}


# -- headroom


def test_the_headroom_is_for_urgent_heads_only_and_for_the_head_alone() -> None:
    table = Table(keepa(headroom=0.2))
    assert table.grant(1, most_jobs=50).max_cost == 16
    assert isinstance(table.ask(1, "other"), Wait)
    urgent = table.grant(1, "other", urgent=True, most_jobs=50)
    assert (urgent.count, urgent.max_cost) == (1, 1)


def test_an_urgent_head_with_plenty_gets_a_batch_like_any() -> None:
    assert Table(keepa(headroom=0.2)).grant(2, urgent=True, most_jobs=5).max_cost == 10


def test_a_head_that_needs_the_headroom_to_be_paid_at_all_waits_until_it_is_full() -> None:
    table = Table(keepa(headroom=0.2))
    assert (lambda g: (g.count, g.max_cost))(table.grant(18, most_jobs=3)) == (1, 18)
    table = Table(keepa(headroom=0.2))
    table.spend(1)
    assert table.ask(18) == Wait(NOW + 3000, "keepa")


def test_an_urgent_head_uses_the_headroom_although_an_ordinary_one_waited_first() -> None:
    table = Table(keepa(headroom=0.2))
    table.spend(16)
    assert isinstance(table.ask(15, "dear"), Wait)
    assert isinstance(table.ask(4, "urgent", urgent=True), Grant)
    assert isinstance(table.ask(1, "cheap"), Wait)


# -- claims


def test_cheap_jobs_of_other_queues_leave_what_an_expensive_head_waits_for() -> None:
    table = Table(keepa())
    table.spend(10)
    answer = table.ask(15, "dear")
    assert answer == Wait(NOW + 15_000, "keepa")
    table.now = NOW + 9_000
    assert isinstance(table.ask(1, "cheap"), Wait)
    assert isinstance(table.ask(15, "dear"), Wait)  # it asks again: its claim lives on
    table.now = NOW + 15_000
    assert isinstance(table.ask(1, "cheap"), Wait)
    assert isinstance(table.ask(15, "dear"), Grant)


def test_what_is_left_beyond_a_claim_may_be_used() -> None:
    table = Table(keepa())
    held = table.grant(10, "slow")
    assert isinstance(table.ask(12, "dear"), Wait)
    table.ledger = book.keep(table.ledger, table.basis, held, Spent())  # 20 free, 12 of them claimed
    assert table.grant(1, "cheap", most_jobs=50).max_cost == 8


def test_claims_are_served_in_the_order_in_which_they_came() -> None:
    table = Table(keepa())
    table.spend(20)
    assert table.ask(5, "first") == Wait(NOW + 15_000, "keepa")
    # The second's moment is when the first is paid, or gone: its claim ends unless it is renewed.
    assert table.ask(5, "second") == Wait(NOW + 15_000, "keepa")
    table.now += 9_000
    table.ask(5, "first")
    assert table.ask(5, "second") == Wait(table.now + 10_000, "keepa")
    table.now = NOW + 15_000
    assert isinstance(table.ask(5, "second"), Wait)
    assert isinstance(table.ask(5, "first"), Grant)


def test_a_claim_that_is_not_renewed_ends() -> None:
    table = Table(keepa())
    table.spend(10)
    table.ask(20, "gone")
    assert isinstance(table.ask(1, "cheap"), Wait)
    table.now += round(CLAIM_FOR * 1000)
    assert isinstance(table.ask(1, "cheap"), Grant)


def test_a_claim_is_renewed_by_a_write_only_when_half_of_it_is_over() -> None:
    table = Table(keepa())
    table.spend(20)
    table.ask(5)
    before = table.ledger
    table.now += 4_000
    table.ask(5)
    assert table.ledger is before
    table.now += 1_000
    table.ask(5)
    assert table.ledger is not before


def test_the_first_in_line_takes_for_its_head_only_what_others_wait_for() -> None:
    table = Table(keepa())
    held = table.grant(20, "slow")
    table.ask(2, "first")
    table.ask(17, "second")
    table.ledger = book.keep(table.ledger, table.basis, held, Spent())
    grant = table.grant(2, "first", most_jobs=10)
    assert (grant.count, grant.max_cost) == (10, 3)
    assert isinstance(table.ask(17, "second"), Grant)


# -- the document


def test_a_ledger_is_the_same_after_it_was_stored() -> None:
    table = Table(keepa(), Budget("requests", 3, 3, 1, counts="jobs"))
    table.grant(5, most_jobs=3)
    table.ask(20, "dear")
    assert book.decode(book.encode(table.ledger, NOW), NOW) == table.ledger


def test_budgets_of_other_code_are_shown_and_kept() -> None:
    table = Table(keepa())
    table.spend(5)
    elsewhere = Table(Budget("other", 10, 10, 60))
    elsewhere.ledger = table.ledger
    elsewhere.spend(1)
    views = book.views(elsewhere.ledger, elsewhere.basis)
    assert {name: view.left for name, view in views.items()} == {"keepa": 15, "other": 9}
