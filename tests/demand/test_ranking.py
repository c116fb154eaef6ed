"""The ranks of shared jobs: right after every join and leave, and as time passes."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accoda import App, Retry
from accoda.clock import ManualClock
from accoda.demand import Demand, Waiter, crowd_of, score
from accoda.demand.waiters import JOINS, Entry, present, read_entries
from accoda.demand.waiting import read_waiting
from accoda.model import ByKey, Change, Enqueued, Look, NewJob, Target
from accoda.storage.memory import MemoryStorage
from accoda.storage.protocol import Store

MINUTE = 60_000
TIERS = ("business", "pro", "starter", "free")


def declared(app: App) -> Demand:
    deals = app.demand("deals", cost=5, fresh_for=60)

    @deals.fetch
    async def fetch(key: str) -> None: ...

    return deals


async def true_score(deals: Demand, store: Store, key: str) -> float:
    """What the rank of a key's job should be, from everything that is stored."""
    look = await store.look(ByKey("deals", key), waiters_after=0)
    entries = present(read_entries(look.waiters), None if look.job is None else look.job.id).values()
    return score(crowd_of((deals.weights.points(entry.tier), entry.due) for entry in entries), look.at, deals.weights)


async def wrong_ranks(deals: Demand, store: Store) -> list[tuple[str | None, float, float]]:
    found = []
    for job in [*await store.browse("deals", "ready"), *await store.browse("deals", "delayed")]:
        should = await true_score(deals, store, job.key or "")
        if job.rank != should:
            found.append((job.key, job.rank, should))
    return found


async def test_the_rank_follows_every_join_and_leave() -> None:
    app = App("memory://")
    deals = declared(app)
    with app.testing() as trial:
        now = trial.clock.now()
        seen = []
        for id, tier, minutes in [("a", "free", 20), ("b", "pro", 25), ("c", "free", 2)]:
            await deals.request("k", Waiter(id, tier=tier, due=now + minutes * MINUTE))
            seen.append((await app.storage.look(ByKey("deals", "k"))).job.rank)  # type: ignore[union-attr]
        for id in ("c", "b"):
            await deals.withdraw("k", id)
            seen.append((await app.storage.look(ByKey("deals", "k"))).job.rank)  # type: ignore[union-attr]
    assert seen == [20 + 18 + 10, 20 + 16 + 3, 2 + 14 + 3, 20 + 16 + 3, 20 + 18 + 10]


async def test_passing_time_makes_a_job_more_urgent_and_changes_no_other() -> None:
    app = App("memory://")
    deals = declared(app)
    with app.testing() as trial:
        now = trial.clock.now()
        await deals.request("soon", Waiter("a", due=now + 10 * MINUTE))
        await deals.request("late", Waiter("a", due=now + 300 * MINUTE))
        await deals.request("now", Waiter("a"))
        store = await app.connections.get()
        trial.advance(minutes=4)
        metrics = await deals._ranking.sweep(store, 5.0)
        assert metrics is not None and metrics.reranked == 1
        assert await wrong_ranks(deals, store) == []
        trial.advance(5)
        metrics = await deals._ranking.sweep(store, 5.0)
        assert metrics is not None and metrics.reranked == 1, "5 more seconds: 5 minutes are left, not 6"
        trial.advance(5)
        metrics = await deals._ranking.sweep(store, 5.0)
        assert metrics is not None and metrics.reranked == 0


async def test_the_metrics_of_the_waiting_jobs_can_be_read() -> None:
    app = App("memory://")
    deals = declared(app)
    with app.testing() as trial:
        store = await app.connections.get()
        empty = await read_waiting(store, "deals")
        assert (empty.depth, empty.bands) == (0, {"urgent": 0, "normal": 0, "low": 0, "prefetch": 0})
        for n in range(5):
            await deals.request("crowd", Waiter(f"w{n}", tier="business"))
        trial.advance(10)
        await deals.request("one", Waiter("a", due=trial.clock.now() + 60 * MINUTE))
        await deals.request("two", Waiter("a"))
        trial.advance(20)
        await deals.upkeep_once(store)
        metrics = await read_waiting(store, "deals")
    assert metrics.bands == {"urgent": 1, "normal": 1, "low": 1, "prefetch": 0}
    assert (metrics.depth, metrics.oldest_age, metrics.mean_wait) == (3, 30.0, pytest.approx(70 / 3))


async def test_only_one_worker_sweeps_at_a_time() -> None:
    app = App("memory://")
    deals = declared(app)
    with app.testing() as trial:
        store = await app.connections.get()
        assert await deals._ranking.sweep(store, 5.0) is not None
        assert await deals._ranking.sweep(store, 5.0) is None
        trial.advance(5)
        assert await deals._ranking.sweep(store, 5.0) is not None


async def test_the_sweep_reranks_a_job_whose_joining_process_died_before_it_could() -> None:
    app = App("memory://")
    deals = declared(app)
    with app.testing() as trial:
        store = await app.connections.get()
        await deals.request("k", Waiter("a"))
        await deals.upkeep_once(store)
        await store.enqueue([deals._fetch_job("k", Entry(JOINS, "b", "business"), 0.0)])  # and then the process dies
        assert await wrong_ranks(deals, store) != []
        trial.advance(60)
        await deals.upkeep_once(store)
        assert await wrong_ranks(deals, store) == []


async def test_the_sweep_knows_of_a_waiter_that_joined_and_is_due_sooner() -> None:
    """Otherwise it would take the job for one whose score does not change for hours."""
    app = App("memory://")
    deals = declared(app)
    with app.testing() as trial:
        store = await app.connections.get()
        await deals.request("k", Waiter("a", due=trial.clock.now() + 300 * MINUTE))
        await deals.upkeep_once(store)
        await deals.request("k", Waiter("b", due=trial.clock.now() + 5 * MINUTE + 10_000))
        assert await wrong_ranks(deals, store) == []
        trial.advance(20)
        assert await wrong_ranks(deals, store) != []
        await deals.upkeep_once(store)
        assert await wrong_ranks(deals, store) == []


async def test_a_waiter_that_joined_during_a_run_counts_after_the_retry() -> None:
    app = App("memory://")
    deals = declared(app)
    with app.testing() as trial:
        store = await app.connections.get()
        await deals.request("k", Waiter("a"))
        (job,) = await store.take("deals", 1)
        await deals.request("k", Waiter("b", tier="business"))
        await store.settle([Retry(job.lease, delay=60)])
        await deals.upkeep_once(store)
        assert await wrong_ranks(deals, store) == []
        trial.advance(60)
        assert (await store.take("deals", 1))[0].rank == 16.0


async def test_an_entry_that_another_task_read_before_its_writer_was_answered_counts_once() -> None:
    """Otherwise the log would seem longer than it is: the next entry would never be read, and its job removed."""
    app = App("memory://")
    deals = declared(app)
    with app.testing():
        store = await app.connections.get()
        entry = Entry(JOINS, "a", "free")
        (answer,) = await store.enqueue([deals._fetch_job("k", entry, 28.0)])
        assert await deals._ranking.look(store, "k") is not None
        await deals._ranking.joined(store, "k", entry, answer, 0)
        (other,) = await store.enqueue([deals._fetch_job("k", Entry(JOINS, "b", "free"), 28.0)])
        log = await deals._ranking.look(store, "k")
        assert log is not None and (log.seen, log.crowd.count) == (other.waiters, 2)
        await deals.withdraw("k", "a")
        assert (await store.look(ByKey("deals", "k"))).job is not None


class Jittery(MemoryStorage):
    """A store whose answers come in any order: each call waits a few turns of the loop before and after."""

    turns: list[int]

    async def _wait(self) -> None:
        for _ in range(self.turns.pop() if self.turns else 0):
            await asyncio.sleep(0)

    async def look(self, target: Target, *, waiters_after: int | None = None, ahead: bool = False) -> Look:
        await self._wait()
        found = await super().look(target, waiters_after=waiters_after, ahead=ahead)
        await self._wait()
        return found

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        answers = await super().enqueue(jobs)
        await self._wait()  # others may see what was stored before this caller is answered
        return answers

    async def change(self, changes: Sequence[Change]) -> int:
        await self._wait()
        applied = await super().change(changes)
        await self._wait()
        return applied


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from(TIERS), st.integers(0, 40), st.booleans()), min_size=2, max_size=12),
    st.lists(st.integers(0, 6), min_size=40, max_size=120),
)
def test_joins_and_leaves_that_overlap_never_leave_a_rank_that_ignores_a_waiter(
    waiters: list[tuple[str, int, bool]], turns: list[int]
) -> None:
    """Two processes (two demands, each with its own logs) join and leave one key at once, in any interleaving."""

    async def run() -> None:
        clock = ManualClock()
        store = Jittery(clock)
        store.turns = list(turns)
        sides = []
        for _ in range(2):
            app = App("memory://", clock=clock)
            app.connections._shared = store
            sides.append(declared(app))

        async def come(n: int, tier: str, minutes: int, leaves: bool) -> None:
            deals = sides[n % 2]
            await deals.request("k", Waiter(f"w{n}", tier=tier, due=clock.now() + minutes * MINUTE))
            if leaves:
                await deals.withdraw("k", f"w{n}")

        await asyncio.gather(*(come(n, *waiter) for n, waiter in enumerate(waiters)))
        assert await wrong_ranks(sides[0], store) == []
        stay = {f"w{n}" for n, (_, _, leaves) in enumerate(waiters) if not leaves}
        look = await store.look(ByKey("deals", "k"), waiters_after=0)
        left = present(read_entries(look.waiters), None if look.job is None else look.job.id)
        assert stay == set(left), "a waiter that did not leave still waits"
        for side in sides:
            log = await side._ranking.look(store, "k")
            assert log is None or (log.seen, log.crowd.count) == (len(look.waiters), len(stay))
        await store.close()

    asyncio.run(run())


STEPS = st.one_of(
    st.tuples(st.just("join"), st.integers(0, 5), st.sampled_from(TIERS), st.integers(-5, 45)),
    st.tuples(st.just("leave"), st.integers(0, 5), st.integers(0, 3), st.none()),
    st.tuples(st.just("pass"), st.integers(1, 300), st.none(), st.none()),
    st.tuples(st.just("take"), st.none(), st.none(), st.none()),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(STEPS, max_size=40), st.integers(1, 20))
def test_the_job_that_is_taken_has_the_lowest_score_of_all_ready_jobs(
    steps: list[tuple[object, ...]], max_cost: int
) -> None:
    """At any moment, up to the upkeep interval: the sweep has run since time last passed."""

    async def run() -> None:
        app = App("memory://")
        deals = declared(app)
        with app.testing() as trial:
            store = await app.connections.get()
            for n, (what, one, two, three) in enumerate(steps):
                if what == "join":
                    due = trial.clock.now() + three * MINUTE  # type: ignore[operator]
                    await deals.request(f"k{one}", Waiter(f"w{n % 4}", tier=two, due=due))  # type: ignore[arg-type]
                elif what == "leave":
                    await deals.withdraw(f"k{one}", f"w{two}")
                elif what == "pass":
                    trial.advance(float(one))  # type: ignore[arg-type]
                    await deals._ranking._sweep(store)
                else:
                    waiting = {
                        job.id: await true_score(deals, store, job.key or "")
                        for job in await store.browse("deals", "ready")
                    }
                    for job in await store.take("deals", 1, max_cost=max_cost):
                        assert waiting[job.id] == min(waiting.values())
                        assert job.cost <= max_cost

    asyncio.run(run())


@settings(deadline=None, max_examples=60)
@given(st.lists(STEPS, max_size=40))
def test_a_sweep_that_reads_nothing_would_have_found_nothing(steps: list[tuple[object, ...]]) -> None:
    """After every sweep all ranks are right, whether it read the jobs or concluded that nothing has changed."""

    async def run() -> None:
        app = App("memory://")
        deals, other = declared(app), declared(twin := App("memory://"))
        with app.testing() as trial:
            twin.connections = app.connections
            store = await app.connections.get()
            for n, (what, one, two, three) in enumerate(steps):
                side = (deals, other)[n % 2]
                if what == "join":
                    due = trial.clock.now() + three * MINUTE  # type: ignore[operator]
                    await side.request(f"k{one}", Waiter(f"w{n % 4}", tier=two, due=due))  # type: ignore[arg-type]
                elif what == "leave":
                    await side.withdraw(f"k{one}", f"w{two}")
                elif what == "pass":
                    trial.advance(max(5.0, float(one)))  # type: ignore[arg-type]
                    await (deals, other)[n % 2 - 1].counters.flush(store)
                    await side.upkeep_once(store)
                    assert await wrong_ranks(deals, store) == []
                else:
                    for job in await store.take("deals", 1):
                        await store.settle([Retry(job.lease, delay=1.0)])

    asyncio.run(run())
