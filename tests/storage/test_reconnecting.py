"""How long calls wait for a server that is away."""

import asyncio

from accoda.storage.common.reconnecting import Backoff, limited_patience, patience_of, set_patience


def test_pauses_are_random_and_their_limit_doubles_until_a_reset() -> None:
    limits = [0.1, 0.2, 0.4, 0.4]
    runs = []
    for _ in range(200):
        backoff = Backoff(first=0.1, longest=0.4)
        runs.append([backoff.next() for _ in limits])
    for pauses, limit in zip(zip(*runs, strict=True), limits, strict=True):
        assert 0 <= min(pauses) < limit / 4 and limit * 3 / 4 < max(pauses) <= limit
    backoff.reset()
    assert backoff.next() <= 0.1


def test_the_shorter_of_two_limits_holds() -> None:
    assert patience_of(30.0) == 30.0
    with limited_patience(2.0):
        with limited_patience(5.0):
            assert patience_of(30.0) == 2.0
        assert patience_of(1.0) == 1.0
    assert patience_of(30.0) == 30.0


async def test_a_limit_holds_for_its_task_and_those_started_in_it() -> None:
    async def read() -> float:
        return patience_of(30.0)

    async def limited() -> float:
        set_patience(3.0)
        return await asyncio.create_task(read())

    assert await asyncio.create_task(limited()) == 3.0
    assert await read() == 30.0
