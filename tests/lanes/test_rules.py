"""Whose word holds: what the code declares, and what people changed since."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from accoda import InvalidInput, Lanes, NewJob, Store, VersionConflict
from accoda.lanes.rules import PREFIX, QueueRules, change, declare, declare_all, group_of, reset
from accoda.limits import allowed
from accoda.payload import read_json
from accoda.storage.observed import Call, observe
from accoda.storage.open import open_storage
from accoda.storage.wrapper import Wrapper

QUEUE = "reports"


@pytest_asyncio.fixture
async def store() -> AsyncIterator[Store]:
    async with await open_storage("memory://") as store:
        yield store


async def in_force(store: Store, queue: str = QUEUE) -> Lanes | None:
    return (await store.lanes(queue, limit=0)).rules


async def document(store: Store, queue: str = QUEUE) -> QueueRules:
    found = await store.read(PREFIX + queue)
    assert found is not None
    rules = read_json(found.value, QueueRules)
    assert rules is not None
    return rules


async def test_what_is_declared_is_in_force(store: Store) -> None:
    rules = Lanes(limit=2, limits={"a": 5, "b": None}, fair=True, weights={"a": 0.5}, by_cost=True, total=9)
    await declare(store, QUEUE, rules)
    assert await in_force(store) == rules
    await declare(store, QUEUE, Lanes(limit=3))
    assert await in_force(store) == Lanes(limit=3)


async def test_what_people_changed_is_laid_over_it_field_by_field_and_lane_by_lane(store: Store) -> None:
    await declare(store, QUEUE, Lanes(limit=2, limits={"a": 5, "b": 6}, weights={"a": 2}, total=9))
    assert await change(store, QUEUE, {"limit": None, "limits": {"b": 0, "c": 1}, "fair": True}) == Lanes(
        limit=None, limits={"a": 5, "b": 0, "c": 1}, fair=True, weights={"a": 2}, total=9
    )
    changed = await change(store, QUEUE, {"limits": {"c": None}, "weights": {"d": 3}})
    assert changed == await in_force(store)
    assert changed == Lanes(
        limit=None, limits={"a": 5, "b": 0, "c": None}, fair=True, weights={"a": 2, "d": 3}, total=9
    )


async def test_a_deployment_with_other_rules_leaves_what_people_changed(store: Store) -> None:
    await declare(store, QUEUE, Lanes(limit=2))
    await change(store, QUEUE, {"limits": {"spammer": 0}})
    await declare(store, QUEUE, Lanes(limit=4, fair=True))
    assert await in_force(store) == Lanes(limit=4, fair=True, limits={"spammer": 0})


async def test_a_handler_without_lanes_takes_back_what_an_older_version_declared(store: Store) -> None:
    await declare(store, QUEUE, Lanes(limit=2))
    await declare(store, QUEUE, None)
    assert await in_force(store) is None
    await declare(store, QUEUE, Lanes(limit=2))
    await change(store, QUEUE, {"total": 3})
    await declare(store, QUEUE, None)
    assert await in_force(store) == Lanes(total=3)


async def test_reset_forgets_what_was_changed(store: Store) -> None:
    await declare(store, QUEUE, Lanes(limit=2, limits={"a": 5}))
    await change(store, QUEUE, {"limit": 7, "limits": {"a": 0, "b": 1}, "weights": {"a": 3}})
    assert await reset(store, QUEUE, "a") == Lanes(limit=7, limits={"a": 5, "b": 1})
    assert await reset(store, QUEUE) == Lanes(limit=2, limits={"a": 5})
    assert await in_force(store) == Lanes(limit=2, limits={"a": 5})


async def test_without_a_declaration_reset_leaves_no_rules(store: Store) -> None:
    assert await reset(store, QUEUE) is None
    await change(store, QUEUE, {"limits": {"a": 1}})
    assert await reset(store, QUEUE, "a") is None
    await change(store, QUEUE, {"limit": 1})
    assert await reset(store, QUEUE) is None
    assert await in_force(store) is None


async def test_rules_that_change_hold_for_the_jobs_that_wait(store: Store) -> None:
    await store.enqueue([NewJob(QUEUE, lane="a") for _ in range(5)])
    await declare(store, QUEUE, Lanes(limit=2))
    assert (await store.stats()).queues[QUEUE].held == 3
    await change(store, QUEUE, {"limits": {"a": 4}})
    assert (await store.stats()).queues[QUEUE].held == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"limit": -1}, "limit"),
        ({"limit": True}, "limit"),
        ({"limits": {"a": 10_001}}, "limits['a']"),
        ({"limits": 3}, "limits"),
        ({"limits": {"": 3}}, "lane"),
        ({"limits": {7: 3}}, "lane"),
        ({"weights": {"a": 0}}, "weights['a']"),
        ({"weights": {"a": None}}, "weights['a']"),
        ({"weights": ["a"]}, "weights"),
        ({"fair": 1}, "fair"),
        ({"by_cost": "yes"}, "by_cost"),
        ({"total": 1.5}, "total"),
        ({"shared": "no name"}, "shared"),
        ({"shared": 3}, "shared"),
        ({"limt": 3}, "limt"),
        ({3: 3}, "3"),
        ([], "changes"),
    ],
)
async def test_a_change_that_cannot_be_used_is_refused_as_a_whole(store: Store, changes: Any, field: str) -> None:
    given = {"fair": True, **changes} if isinstance(changes, dict) else changes
    with pytest.raises(InvalidInput) as refused:
        await change(store, QUEUE, given)
    assert refused.value.field == field
    assert await store.read(PREFIX + QUEUE) is None
    assert await in_force(store) is None


async def test_a_wrong_queue_or_lane_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="queue: must be"):
        await change(store, "no queue", {"limit": 1})
    with pytest.raises(InvalidInput, match="lane: must be 1 to 128 printable"):
        await reset(store, QUEUE, "two\nlines")


async def test_a_document_that_cannot_be_read_counts_as_empty(store: Store) -> None:
    await store.write(PREFIX + QUEUE, b'{"changed": {"of a later version": 1}}')
    await declare(store, QUEUE, Lanes(limit=2))
    assert await document(store) == QueueRules(Lanes(limit=2))
    assert await in_force(store) == Lanes(limit=2)


async def verbs_of(store: Store, queue: str, rules: Lanes | None) -> list[str]:
    calls: list[Call] = []
    await declare(observe(store, calls.append), queue, rules)
    return [call.verb for call in calls]


async def test_a_worker_that_declares_nothing_new_writes_nothing(store: Store) -> None:
    assert await verbs_of(store, QUEUE, None) == ["read"]
    assert {"write", "set_lanes"} <= {*await verbs_of(store, QUEUE, Lanes(limit=2))}
    assert {*await verbs_of(store, QUEUE, Lanes(limit=2))} == {"read", "lanes"}
    await change(store, QUEUE, {"limit": 3})
    assert "set_lanes" not in await verbs_of(store, QUEUE, Lanes(limit=3))  # in force already


async def test_rules_that_a_killed_process_did_not_apply_are_applied_by_the_next_worker(store: Store) -> None:
    await declare(store, QUEUE, Lanes(limit=2))
    await change(store, QUEUE, {"limit": 7})
    await store.set_lanes(QUEUE, Lanes(limit=2))
    await declare(store, QUEUE, Lanes(limit=2))
    assert await in_force(store) == Lanes(limit=7)


async def test_queues_without_rules_cost_a_worker_that_starts_one_look_together(store: Store) -> None:
    calls: list[Call] = []
    await declare_all(observe(store, calls.append), dict.fromkeys([f"q-{n}" for n in range(50)]))
    assert [call.verb for call in calls] == ["documents"]
    await change(store, "q-7", {"limit": 1})
    await declare_all(store, {"q-7": None, "q-8": Lanes(limit=2), "q-9": None})
    assert (await in_force(store, "q-7"), await in_force(store, "q-8")) == (Lanes(limit=1), Lanes(limit=2))


class Families(Wrapper):
    """Lets only the queues of one family share limits, as a Redis Cluster does."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        if verb == "set_lanes" and args[1] is not None and args[1].shared not in (None, args[0].partition(".")[0]):
            raise InvalidInput("shared", "must be the family")
        return await getattr(self._store, verb)(*args, **kwargs)


async def test_nothing_stays_of_what_the_store_refuses(store: Store) -> None:
    family: Any = Families(store)
    with pytest.raises(InvalidInput, match="shared"):
        await change(family, QUEUE, {"limit": 3, "shared": "github"})
    with pytest.raises(InvalidInput, match="shared"):
        await declare(family, QUEUE, Lanes(shared="github"))
    assert await store.read(PREFIX + QUEUE) is None and await in_force(store) is None
    await change(family, QUEUE, {"limit": 3, "shared": QUEUE})
    with pytest.raises(InvalidInput, match="shared"):
        await change(family, QUEUE, {"limit": 4, "shared": "github"})
    assert await in_force(store) == (await document(store)).in_force() == Lanes(limit=3, shared=QUEUE)


async def test_rules_that_were_brought_to_a_store_that_refuses_them_can_be_mended(store: Store) -> None:
    await change(store, QUEUE, {"limit": 3, "shared": "github"})
    await store.set_lanes(QUEUE, None)  # the documents were brought, the rules not
    family: Any = Families(store)
    with pytest.raises(InvalidInput, match="shared"):
        await change(family, QUEUE, {"limit": 4})
    assert (await document(store)).in_force() == Lanes(limit=3, shared="github")
    assert await change(family, QUEUE, {"shared": None}) == await in_force(store) == Lanes(limit=3)


async def test_rules_that_are_too_large_to_be_written_are_not_in_force(store: Store) -> None:
    limits = {f"{n:0127}": n % 7 for n in range(allowed.document // 128)}
    with pytest.raises(InvalidInput, match="value"):
        await change(store, QUEUE, {"shared": "github", "limits": limits})
    assert await in_force(store) is None


async def test_the_queues_that_share_limits_are_found(store: Store) -> None:
    await change(store, "a", {"shared": "github"})
    await declare(store, "b", Lanes(shared="github"))
    await change(store, "c", {"shared": "gitlab"})
    await declare(store, "d", Lanes(shared="github"))
    await change(store, "d", {"shared": None})
    await store.write(PREFIX + "e", b"damaged")
    rules = Lanes(shared="github")
    assert await group_of(store, "a", "github") == {"b": rules}
    assert await group_of(store, "new", "github") == {"a": rules, "b": rules}


class Interleaved(Wrapper):
    """Lets others have turns before and after each call, as a network does."""

    def __init__(self, store: Store, choices: random.Random) -> None:
        self._store = store
        self._choices = choices

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        await self._others()
        try:
            return await getattr(self._store, verb)(*args, **kwargs)
        finally:
            await self._others()

    async def _others(self) -> None:
        for _ in range(self._choices.randrange(6)):
            await asyncio.sleep(0)


@pytest.mark.parametrize("block", range(5))
async def test_those_who_write_at_once_leave_the_newest_rules_in_force(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        async with await open_storage("memory://") as store:
            choices = random.Random(seed)
            slow: Any = Interleaved(store, choices)
            work = [
                declare(slow, QUEUE, Lanes(limit=1)),
                declare(slow, QUEUE, None),
                change(slow, QUEUE, {"limit": 3, "limits": {"a": 1}}),
                change(slow, QUEUE, {"limits": {"b": 2}}),
                change(slow, QUEUE, {"shared": "github"}),
                change(slow, QUEUE, {"shared": None, "total": 4}),
                reset(slow, QUEUE, "a"),
                reset(slow, QUEUE),
            ]
            choices.shuffle(work)
            await asyncio.gather(*work)
            assert await in_force(store) == (await document(store)).in_force(), seed


async def test_no_change_of_two_at_once_is_lost(store: Store) -> None:
    slow: Any = Interleaved(store, random.Random(1))
    await asyncio.gather(*(change(slow, QUEUE, {"limits": {f"lane-{n}": n}}) for n in range(20)))
    assert await in_force(store) == Lanes(limits={f"lane-{n}": n for n in range(20)})


async def test_others_cannot_write_between_the_look_and_the_write(store: Store) -> None:
    await declare(store, QUEUE, Lanes(limit=2))
    with pytest.raises(VersionConflict):
        await store.write(PREFIX + QUEUE, b"{}", version=0)
