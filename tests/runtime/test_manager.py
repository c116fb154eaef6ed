"""Who leads, what happens when a leader is gone or comes back, and what the others hear."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from proof.servers.pytest import need
from proof.servers.redis import RedisFixtures, RedisServer

from accoda import InvalidInput, NewJob, open_storage
from accoda.clock import ManualClock
from accoda.runtime import heartbeat
from accoda.runtime.heartbeat import Heartbeat
from accoda.runtime.manager import Assignment, Manager, ManagerOptions
from accoda.runtime.manager.manager import ASSIGNMENT, LEADER
from accoda.storage.observed import Call, Observed
from accoda.storage.protocol import Store
from accoda.testing.store_fixture import ManualStoreFixture, StoreFixture

REDIS = RedisFixtures(lambda: need(lambda: RedisServer().start()))


@asynccontextmanager
async def memory() -> AsyncIterator[StoreFixture]:
    yield ManualStoreFixture(lambda clock: open_storage("memory://", clock=clock), url="memory://", shared=False)


@pytest.fixture(scope="module", params=["memory", "redis"])
def make_fixture(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "memory":
        yield memory
        return
    with REDIS.running():
        yield REDIS.make


class Fleet:
    """A store with jobs, workers that beat, and managers; time stands still until `pass_time`."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock

    def manager(self, id: str, storage: Any = None) -> Manager:
        return Manager(storage or self.store, id, self.clock)

    async def beat(self, id: str, queues: tuple[str, ...] = ("a", "b"), processors: int = 4) -> None:
        now = self.clock.now()
        word = Heartbeat(
            id=id, name="w", host="h", pid=1, started_at=now, beat_at=now, queues=queues, max_processors=processors
        )
        await self.store.write(heartbeat.PREFIX + id, heartbeat.encode(word), ttl=3600)

    async def enqueue(self, queue: str, count: int) -> None:
        await self.store.enqueue([NewJob(queue)] * count)

    async def word(self) -> Assignment:
        document = await self.store.read(ASSIGNMENT)
        assert document is not None
        return msgspec.json.decode(document.value, type=Assignment)

    async def leader(self) -> str | None:
        document = await self.store.read(LEADER)
        return None if document is None else msgspec.json.decode(document.value)["worker"]

    async def pass_time(self, seconds: float, *managers: Manager) -> None:
        """Let time pass, with a look of each manager every two seconds."""
        for _ in range(round(seconds / 2)):
            self.clock.advance(2)
            for manager in managers:
                await manager.run_once()


@pytest_asyncio.fixture
async def fleet(make_fixture: Any) -> AsyncIterator[Fleet]:
    async with make_fixture() as fixture, await fixture.open() as store:
        fleet = Fleet(store, fixture.clock)
        await fleet.beat("one")
        await fleet.beat("two")
        yield fleet


class Gate:
    """A storage on whose doorstep the caller stops, as a process does that gets SIGSTOP there."""

    def __init__(self, store: Store, verb: str, name: str = "") -> None:
        self._store = store
        self._verb = verb
        self._name = name
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    def __getattr__(self, verb: str) -> Any:
        call = getattr(self._store, verb)
        if verb != self._verb:
            return call

        async def stop_first(*args: Any, **kwargs: Any) -> Any:
            if not self._name or args[0] == self._name:
                self.reached.set()
                await self.go_on.wait()
            return await call(*args, **kwargs)

        return stop_first


class TestLeading:
    async def test_the_first_to_look_leads_and_the_others_hear_it(self, fleet: Fleet) -> None:
        await fleet.enqueue("a", 300)
        one, two = fleet.manager("one"), fleet.manager("two")
        word = await one.run_once()
        assert word is not None and word.workers.keys() == {"one", "two"}
        assert await two.run_once() == word == two.current
        assert (one.leads, two.leads) == (True, False)

    async def test_it_goes_on_for_as_long_as_it_is_renewed(self, fleet: Fleet) -> None:
        await fleet.enqueue("a", 300)
        one, two = fleet.manager("one"), fleet.manager("two")
        await fleet.pass_time(60, one, two)
        assert (one.leads, two.leads) == (True, False)
        assert (await fleet.word()).term == 1
        assert two.current is not None

    async def test_many_that_start_together_make_one_leader(self, fleet: Fleet) -> None:
        managers = [fleet.manager(f"m{n}") for n in range(8)]
        await asyncio.gather(*(manager.run_once() for manager in managers))
        assert sum(manager.leads for manager in managers) == 1

    async def test_the_word_changes_with_the_work(self, fleet: Fleet) -> None:
        one = fleet.manager("one")
        await fleet.enqueue("a", 300)
        first = await one.run_once()
        await fleet.enqueue("b", 900)
        await fleet.pass_time(2, one)
        second = one.current
        assert first is not None and second is not None
        assert first.plans["b"].processors == 0
        assert second.plans["b"].processors > second.plans["a"].processors > 0


class TestFailOver:
    async def test_another_takes_over_after_the_time_to_live_and_not_before(self, fleet: Fleet) -> None:
        await fleet.enqueue("a", 300)
        one, two = fleet.manager("one"), fleet.manager("two")
        await fleet.pass_time(2, one, two)
        await fleet.pass_time(4, two)
        assert await fleet.leader() == "one" and not two.leads
        await fleet.pass_time(2, two)
        assert await fleet.leader() == "two" and two.leads
        assert (await fleet.word()).leader == "two"

    async def test_terms_grow(self, fleet: Fleet) -> None:
        await fleet.enqueue("a", 300)
        terms = []
        for id in ("one", "two", "three"):
            manager = fleet.manager(id)
            await fleet.pass_time(12, manager)
            assert manager.leads
            terms.append((await fleet.word()).term)
            await fleet.pass_time(6)
        assert terms == sorted(set(terms))

    async def test_a_leader_that_leaves_is_followed_at_once(self, fleet: Fleet) -> None:
        one, two = fleet.manager("one"), fleet.manager("two")
        await one.run_once()
        await one.close()
        await one.close()
        await two.run_once()
        assert (one.leads, two.leads) == (False, True)

    async def test_a_leader_that_leaves_too_late_takes_nothing_from_its_successor(self, fleet: Fleet) -> None:
        one, two = fleet.manager("one"), fleet.manager("two")
        await one.run_once()
        await fleet.pass_time(6)
        await two.run_once()
        await one.close()
        assert await fleet.leader() == "two"

    async def test_the_successor_knows_what_the_leader_had_learned(self, fleet: Fleet) -> None:
        one, two = fleet.manager("one"), fleet.manager("two")
        await one.run_once()
        for _ in range(5):
            await fleet.enqueue("a", 60)
            await fleet.pass_time(2, one)
        learned = (await fleet.word()).plans["a"].arrivals
        assert learned == pytest.approx(30)
        await one.close()
        await two.run_once()
        assert two._known["a"].arrivals == learned

    async def test_a_leader_whose_reply_was_lost_finds_its_own_name_and_goes_on(self, fleet: Fleet) -> None:
        await fleet.store.write(LEADER, b'{"worker":"one"}', version=0, ttl=6)
        one = fleet.manager("one")
        await one.run_once()
        assert one.leads
        await fleet.pass_time(20, one)
        assert one.leads


class TestAStaleLeader:
    async def test_steps_down_when_it_sees_that_another_leads(self, fleet: Fleet) -> None:
        one, two = fleet.manager("one"), fleet.manager("two")
        await one.run_once()
        await fleet.pass_time(6)
        await two.run_once()
        await one.run_once()
        assert (one.leads, two.leads) == (False, True)

    @pytest.mark.parametrize(("verb", "name"), [("documents", "worker/"), ("stats", ""), ("write", ASSIGNMENT)])
    async def test_cannot_write_over_its_successors_assignment(self, fleet: Fleet, verb: str, name: str) -> None:
        await fleet.enqueue("a", 300)
        gate = Gate(fleet.store, verb, name)
        one, two = fleet.manager("one", gate), fleet.manager("two")
        late = asyncio.create_task(one.run_once())
        await gate.reached.wait()  # it leads, and is stopped before it can speak
        await fleet.pass_time(6)
        await fleet.enqueue("b", 300)
        await two.run_once()
        said = await fleet.word()
        gate.go_on.set()
        await late
        assert await fleet.word() == said
        assert said.leader == "two"
        await one.run_once()
        assert one.current == said and not one.leads

    async def test_cannot_renew_what_is_no_longer_its_own(self, fleet: Fleet) -> None:
        await fleet.manager("one").run_once()
        gate = Gate(fleet.store, "write", LEADER)
        back, two = fleet.manager("one", gate), fleet.manager("two")
        late = asyncio.create_task(back.run_once())
        await gate.reached.wait()
        await fleet.pass_time(6)
        await two.run_once()
        gate.go_on.set()
        await late
        assert not back.leads
        assert await fleet.leader() == "two"

    async def test_is_stopped_by_the_higher_term_where_the_version_would_fit(self, fleet: Fleet) -> None:
        await fleet.enqueue("a", 300)
        one = fleet.manager("one")
        await one.run_once()
        later = msgspec.structs.replace(await fleet.word(), term=99, leader="two")
        await fleet.store.write(ASSIGNMENT, msgspec.json.encode(later), ttl=60)
        await fleet.enqueue("b", 900)
        await one.run_once()
        assert await fleet.word() == later

    async def test_speaks_first_and_its_successor_still_gets_its_word_in(self, fleet: Fleet) -> None:
        await fleet.enqueue("a", 300)
        gate = Gate(fleet.store, "write", ASSIGNMENT)
        one, two = fleet.manager("one", gate), fleet.manager("two")
        late = asyncio.create_task(one.run_once())
        await gate.reached.wait()
        await fleet.pass_time(6)
        await fleet.store.write(LEADER, b'{"worker":"two"}', version=0, ttl=6)  # it took over and has not spoken yet
        gate.go_on.set()
        await late
        await two.run_once()
        assert (await fleet.word()).leader == "two"


class TestSilence:
    async def test_the_last_assignment_is_followed_until_there_is_another(self, fleet: Fleet) -> None:
        await fleet.enqueue("a", 300)
        one, two = fleet.manager("one"), fleet.manager("two")
        said = await one.run_once()
        await two.run_once()
        await fleet.store.write(LEADER, b'{"worker":"silent"}', ttl=3600)
        await fleet.pass_time(60, two)
        assert await fleet.store.read(ASSIGNMENT) is None
        assert said is not None and two.current == said

    async def test_an_assignment_that_does_not_name_the_worker_changes_nothing_for_it(self, fleet: Fleet) -> None:
        await fleet.enqueue("a", 300)
        two, three = fleet.manager("two"), fleet.manager("three")
        said = await two.run_once()
        others = msgspec.structs.replace(await fleet.word(), workers={"one": {"a": 4}}, term=99)
        await fleet.store.write(ASSIGNMENT, msgspec.json.encode(others), ttl=60)
        assert await two.run_once() == said
        assert await three.run_once() is None, "round robin, as if there were no manager"

    async def test_a_word_that_cannot_be_read_counts_as_none_and_is_replaced(self, fleet: Fleet) -> None:
        await fleet.enqueue("a", 300)
        await fleet.store.write(ASSIGNMENT, b'{"workers": "of another age"}', ttl=60)
        one = fleet.manager("one")
        word = await one.run_once()
        assert word is not None and word == await fleet.word()

    async def test_a_leader_that_cannot_be_read_is_waited_for(self, fleet: Fleet) -> None:
        await fleet.store.write(LEADER, b"?", ttl=6)
        one = fleet.manager("one")
        assert await one.run_once() is None and not one.leads
        await fleet.pass_time(6, one)
        assert one.leads

    async def test_without_workers_nothing_is_said_that_could_do_harm(self, fleet: Fleet) -> None:
        for id in ("one", "two"):
            await fleet.store.write(heartbeat.PREFIX + id, b"", ttl=0)
        await fleet.enqueue("a", 300)
        assert await fleet.manager("one").run_once() is None


class TestCost:
    async def calls(self, fleet: Fleet, id: str, rounds: int) -> list[str]:
        seen: list[Call] = []
        manager = fleet.manager(id, Observed(fleet.store, seen.append))
        await manager.run_once()
        seen.clear()
        for _ in range(rounds):
            await fleet.pass_time(2, manager)
        return [call.verb for call in seen]

    async def test_an_idle_leader_makes_three_reads_and_one_renewal_a_look(self, fleet: Fleet) -> None:
        found = await self.calls(fleet, "one", 10)
        assert sorted(found) == sorted(["documents", "documents", "stats", "write"] * 10)

    async def test_a_follower_makes_one_read_a_look(self, fleet: Fleet) -> None:
        await fleet.store.write(LEADER, b'{"worker":"other"}', ttl=3600)
        assert await self.calls(fleet, "one", 10) == ["documents"] * 10

    async def test_an_unchanged_word_is_repeated_only_before_it_ends(self, fleet: Fleet) -> None:
        await fleet.enqueue("a", 300)
        writes = (await self.calls(fleet, "one", 10)).count("write")
        assert writes == 10 + 5


def test_a_time_to_live_that_could_not_be_renewed_is_refused() -> None:
    with pytest.raises(InvalidInput, match="leader_ttl: must be at least twice the interval of 5 s"):
        ManagerOptions(interval=5.0)
