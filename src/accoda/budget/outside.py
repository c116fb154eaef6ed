"""Budgets for code outside of any job: a script or a web view that calls the same API as the jobs do."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence

from accoda.budget.books import Books
from accoda.budget.model import LOOK_AGAIN, Ask, Grant, Never, Settlement, Spent
from accoda.errors import InvalidInput, TokensTimeout, VersionConflict
from accoda.model import check_duration

LEASE = 60.0
"""Seconds that a reservation lasts if its caller dies between reserving and spending."""


async def can_afford(books: Books, name: str, cost: int) -> bool:
    """Whether an ordinary job of this cost could be paid now."""
    return await books.can_afford(Ask("outside", (name,), cost))


async def wait_for_tokens(books: Books, name: str, cost: int, timeout: float | None) -> None:
    """Wait until the budget can pay, and spend. Each call has a claim of its own, so that all are served in order."""
    if timeout is not None:
        check_duration("timeout", timeout)
    deadline = None if timeout is None else time.monotonic() + timeout
    ask = Ask(f"outside-{secrets.token_hex(4)}", (name,), cost, lease=LEASE)
    came = asyncio.Event()

    def tokens_came(budgets: Sequence[str]) -> None:
        if name in budgets:
            came.set()

    books.listeners.add(tokens_came)
    try:
        while (pause := await _pay(books, ask, came)) is not None:
            left = LOOK_AGAIN if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TokensTimeout(name, cost, timeout or 0.0)
            try:
                async with asyncio.timeout(min(pause, left, LOOK_AGAIN)):
                    await came.wait()
            except TimeoutError:
                continue
    except BaseException:  # timed out or cancelled: the queues that wait behind it need not wait for its claim to end
        await books.withdraw(ask)
        raise
    finally:
        books.listeners.discard(tokens_came)


async def _pay(books: Books, ask: Ask, came: asyncio.Event) -> float | None:
    """None: it is paid; else the seconds until it can be."""
    # Cleared before the look, not after it: tokens that come back meanwhile set it again, and end the pause at once.
    came.clear()
    try:
        answer = await books.reserve(ask)
    except VersionConflict:  # others were faster for many seconds on end
        return 1.0
    if isinstance(answer, Never):
        raise InvalidInput("cost", f"can never be paid: {answer.reason}")
    if isinstance(answer, Grant):
        # Nothing is awaited since the answer: a caller that is cancelled now has written the settlement to be made.
        await books.settle(Settlement(answer, Spent(1, ask.head_cost)))
        return None
    return max(0.001, (answer.until - books.clock.guess()) / 1000)
