"""All accounts together, as the document keeps them, and what is done to several of them in one change. Pure values."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from math import floor

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from accoda.budget import account as accounts_of
from accoda.budget.flow import TINY, fit, opened, opened_blind
from accoda.budget.model import (
    GRACE,
    Account,
    Ask,
    Budget,
    BudgetView,
    Grant,
    Hold,
    Never,
    Observation,
    ReserveResult,
    Settlement,
    Spent,
    Wait,
)
from accoda.errors import InvalidInput

ALL = "*"
FORGET = 3_600_000
"""Milliseconds after which a writer that was not heard of is forgotten. Nobody tries one write for that long."""

log = logging.getLogger("accoda.budget")


class Mark(Struct, frozen=True):
    """The last write of one writer that got through: its number, and when."""

    number: int
    at: int


class Ledger(Struct, frozen=True, omit_defaults=True):
    """The document: an account for each budget, and by writer the last write, so that none is repeated.

    `lost`: the accounts that could not be read, or all of them ("*"), and when that was found. Their budgets may be
    basis elsewhere, by code that is to open them blind too.
    """

    accounts: dict[str, Account] = field(default_factory=dict)
    writers: dict[str, Mark] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)


class _Stored(Struct):
    accounts: dict[str, Raw] = field(default_factory=dict)
    writers: dict[str, Mark] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)


class Basis(Struct, frozen=True):
    """What a change is decided with: the budgets of the code, and the moment."""

    budgets: Mapping[str, Budget]
    now: int


_encoder = msgspec.json.Encoder()
_stored = msgspec.json.Decoder(_Stored)
_account = msgspec.json.Decoder(Account)


def encode(ledger: Ledger, now: int) -> bytes:
    """The document's value."""
    writers = {name: mark for name, mark in ledger.writers.items() if now - mark.at < FORGET}
    return _encoder.encode(replace(ledger, writers=writers))


def decode(value: bytes, now: int) -> Ledger:
    """The ledger of a document. An account that cannot be read is lost alone, and then opened blind."""
    try:
        stored = _stored.decode(value)
    except (msgspec.DecodeError, ValueError) as error:
        log.error("document 'budgets' cannot be read (%s): every budget starts with nothing left", error)
        return Ledger(lost={ALL: now})
    accounts, lost = {}, stored.lost
    for name, raw in stored.accounts.items():
        try:
            accounts[name] = _sound(_account.decode(raw))
        except (msgspec.DecodeError, ValueError) as error:
            log.error("the account of budget %r cannot be read (%s): it starts with nothing left", name, error)
            lost[name] = now
    return Ledger(accounts, stored.writers, lost)


def _sound(account: Account) -> Account:
    if not (account.capacity > 0 and account.refill > 0 and account.per > 0 and account.left <= account.capacity):
        raise ValueError("its numbers are impossible")
    return account


def account_of(ledger: Ledger, basis: Basis, name: str) -> Account:
    """A budget's account under the code's numbers; opened where there is none."""
    budget = budget_of(basis, name)
    found = ledger.accounts.get(name)
    if found is not None:
        return fit(found, budget, basis.now)
    lost_at = ledger.lost.get(name, ledger.lost.get(ALL))
    return opened(budget, basis.now) if lost_at is None else opened_blind(budget, lost_at)


def budget_of(basis: Basis, name: str) -> Budget:
    budget = basis.budgets.get(name)
    if budget is None:
        known = ", ".join(sorted(basis.budgets)) or "none"
        raise InvalidInput("budget", f"there is no budget {name!r}: declare it with app.budget(…); known: {known}")
    return budget


def reserve(ledger: Ledger, basis: Basis, ask: Ask, id: str) -> tuple[Ledger, ReserveResult]:
    """Reserve in all budgets of the ask together, or leave a claim in each."""
    opened = {name: account_of(ledger, basis, name) for name in ask.budgets}
    for name in ask.budgets:
        head = accounts_of.need(basis.budgets[name], ask)
        if head > basis.budgets[name].capacity:
            return ledger, Never(name, head, basis.budgets[name].capacity)
    waits = [
        # Later than now, whatever rounding says: a caller that is told to wait never asks again at once.
        Wait(max(basis.now + 1, accounts_of.payable_at(account, basis.budgets[name], ask, basis.now)), name)
        for name, account in opened.items()
        if not accounts_of.affordable(account, basis.budgets[name], ask, basis.now)
    ]
    if waits:
        claimed = {name: accounts_of.claim(a, basis.budgets[name], ask, basis.now) for name, a in opened.items()}
        # Time only ever makes a head more affordable, so all can pay it at the latest of their moments.
        return _with(ledger, claimed), max(waits, key=lambda wait: wait.until)
    grant = _grant(opened, basis, ask, id)
    held = {
        name: accounts_of.hold(a, ask, id, Hold(grant.amounts[name], basis.now, grant.until, ask.worker))
        for name, a in opened.items()
    }
    return _with(ledger, held), grant


def can_afford(ledger: Ledger, basis: Basis, ask: Ask) -> bool:
    """Whether all budgets of the ask could pay its head now."""
    return all(
        accounts_of.affordable(account_of(ledger, basis, name), budget_of(basis, name), ask, basis.now)
        and accounts_of.need(budget_of(basis, name), ask) <= budget_of(basis, name).capacity
        for name in ask.budgets
    )


def withdraw(ledger: Ledger, basis: Basis, ask: Ask) -> Ledger:
    """End the claims of an ask."""
    accounts = {name: account_of(ledger, basis, name) for name in ask.budgets}
    return _with(ledger, {name: accounts_of.unclaim(account, ask.queue) for name, account in accounts.items()})


def _grant(opened: Mapping[str, Account], basis: Basis, ask: Ask, id: str) -> Grant:
    """How many jobs, and of what cost: the least over all budgets, and at least the head."""
    count, cost = ask.most_jobs, ask.most_jobs * ask.head_cost
    for name, account in opened.items():
        spare = floor(accounts_of.spare(account, basis.budgets[name], ask, basis.now) + TINY)
        head = accounts_of.need(basis.budgets[name], ask)
        if spare < head:
            # Paid from the headroom, or before younger claims: for the head alone, or a job behind it would use that.
            count = 1
        elif basis.budgets[name].counts == "jobs":
            count = min(count, spare)
        else:
            cost = min(cost, spare)
    cost = min(cost, count * ask.head_cost)
    amounts = {name: float(count if basis.budgets[name].counts == "jobs" else cost) for name in opened}
    counts_cost = any(basis.budgets[name].counts == "cost" for name in opened)
    return Grant(id, count, cost if counts_cost else None, amounts, basis.now + round((ask.lease + GRACE) * 1000))


def amounts(basis: Basis, names: Iterable[str], spent: Spent) -> dict[str, float]:
    """What each budget pays."""
    return {name: float(spent.jobs if budget_of(basis, name).counts == "jobs" else spent.cost) for name in names}


def keep(ledger: Ledger, basis: Basis, grant: Grant, taken: Spent) -> Ledger:
    """Give back what was not taken."""
    paid = amounts(basis, grant.amounts, taken)
    return _with(
        ledger,
        {
            name: accounts_of.keep(account_of(ledger, basis, name), grant.id, amount if taken.jobs else None, basis.now)
            for name, amount in paid.items()
        },
    )


def renew(ledger: Ledger, basis: Basis, grants: Sequence[Grant], lease: float) -> Ledger:
    """Make reservations last `lease` seconds from now."""
    until = basis.now + round((lease + GRACE) * 1000)
    ids: dict[str, list[str]] = {}
    for grant in grants:
        for name in grant.amounts:
            ids.setdefault(name, []).append(grant.id)
    return _with(
        ledger,
        {name: accounts_of.renew(account_of(ledger, basis, name), of, until, basis.now) for name, of in ids.items()},
    )


def settle(ledger: Ledger, basis: Basis, settlement: Settlement) -> Ledger:
    """End a grant: its real cost, the API's numbers, and its refusal, in one change."""
    grant, seen = settlement.grant, settlement.observed
    for name, amount in amounts(basis, grant.amounts, settlement.spent).items():
        of_this = [observation for observation in seen if observation.budget == name]
        account = accounts_of.settle(account_of(ledger, basis, name), grant.id, amount, of_this, basis.now)
        ledger = _with(ledger, {name: account})
    ledger = observe(ledger, basis, [observation for observation in seen if observation.budget not in grant.amounts])
    if settlement.closed_until is None:
        return ledger
    return close(ledger, basis, settlement.closes or tuple(grant.amounts), settlement.closed_until, settlement.refused)


def observe(ledger: Ledger, basis: Basis, observed: Iterable[Observation]) -> Ledger:
    """Believe numbers that belong to no reservation."""
    for seen in observed:
        account = accounts_of.observe(account_of(ledger, basis, seen.budget), seen, 0.0, basis.now)
        ledger = _with(ledger, {seen.budget: accounts_of.overtake(account)})
    return ledger


def close(ledger: Ledger, basis: Basis, names: Iterable[str], until: int, refused: int = 0) -> Ledger:
    """Reserve nothing of these before that moment."""
    return _with(
        ledger,
        {name: accounts_of.close(account_of(ledger, basis, name), until, refused, basis.now) for name in names},
    )


def reopen(ledger: Ledger, basis: Basis, names: Iterable[str]) -> Ledger:
    """End what `close` began."""
    return _with(ledger, {name: accounts_of.reopen(account_of(ledger, basis, name), basis.now) for name in names})


def views(ledger: Ledger, basis: Basis) -> dict[str, BudgetView]:
    """Every budget of the code, and those that other code has written."""
    stored = {name: account for name, account in ledger.accounts.items() if name not in basis.budgets}
    declared = {name: account_of(ledger, basis, name) for name in basis.budgets}
    return {
        name: accounts_of.view(name, account, basis.budgets.get(name), basis.now)
        for name, account in sorted((stored | declared).items())
    }


def _with(ledger: Ledger, changed: Mapping[str, Account]) -> Ledger:
    if all(ledger.accounts.get(name) is account for name, account in changed.items()):
        return ledger  # the same object: there is nothing to write
    lost = {name: at for name, at in ledger.lost.items() if name not in changed}
    return replace(ledger, accounts={**ledger.accounts, **changed}, lost=lost)
