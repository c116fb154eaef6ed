"""The newest jobs of a queue. Stores give pages upwards by id only, so the place where they begin is looked for."""

from __future__ import annotations

from accoda.model import JobInfo, State
from accoda.storage.protocol import Store

ROUNDS = 8
"""Pages that are read at most in search of a good one."""
ENOUGH = 0.5
"""The part of what was asked for with which a look is content."""
AIM = 0.9
"""The part of what was asked for that a guess aims at: a page that is too long ends before the newest."""


async def latest(store: Store, queue: str, state: State, most: int) -> list[JobInfo]:
    """The newest jobs of a queue in a state, by id: up to `most`, all there are if they are fewer.

    Where ids are dense in one place and thin in another it may give fewer than `most`, but always the newest without a
    gap. It costs about 2 log2(ids) looks at one job and a few pages, however many jobs there are.
    """
    first = await store.browse(queue, state, None, most)
    if len(first) < most:
        return first
    last = await _last_id(store, queue, state, first[-1].id)
    best: list[JobInfo] = []
    window = most
    for _ in range(ROUNDS):
        page = await store.browse(queue, state, max(0, last - window), most)
        whole = len(page) < most or page[-1].id >= last
        if whole and len(page) > len(best):
            best = page
        if len(best) >= most * ENOUGH or last <= window:
            break
        window = _next_window(window, len(page), most) if whole else max(1, window // 2)
    return best or first


def _next_window(window: int, found: int, most: int) -> int:
    """How far back to go next, as dense as it was so far."""
    return window * 8 if not found else max(window + 1, int(window * AIM * most / found))


async def _last_id(store: Store, queue: str, state: State, low: int) -> int:
    """The id of the newest job, by doubling and then halving; `low` is an id that is there."""
    high = low
    while page := await store.browse(queue, state, high, 1):
        low, high = page[0].id, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        page = await store.browse(queue, state, middle, 1)
        if page:
            low = page[0].id
        else:
            high = middle
    return low
