"""What every storage must do with damaged records, for the test files of those that can be damaged."""

import random
from collections import Counter
from collections.abc import Awaitable, Callable

from accoda import Bury, Done, Job, NewJob
from accoda.storage.protocol import Store
from accoda.testing.damage import damage

Q = "q"
GOOD, BAD = 600, 3000
Advance = Callable[[float], Awaitable[None]]


async def work_off(store: Store) -> list[Job]:
    """Take and finish whatever there is."""
    done: list[Job] = []
    while await store.wait([Q], 0):
        head = (await store.peek(Q)).job
        jobs = await store.take(Q, 50)
        assert head is None or head.state == "ready"
        assert await store.settle([Done(job.lease) for job in jobs]) == []
        done += jobs
    return done


async def check_good_jobs_are_done(store: Store, advance: Advance, seed: int) -> Counter[str]:
    """Among thousands of damaged records. Gives how many jobs are in which state by the statistics at the end."""
    ids = [each.id for each in await store.enqueue([NewJob(Q, b"good") for _ in range(GOOD // 2)])]
    held = await store.take(Q, 50, lease=60)
    assert await damage(store, random.Random(seed), BAD, Q) > BAD // 2
    ids += [each.id for each in await store.enqueue([NewJob(Q, b"good") for _ in range(GOOD // 2)])]
    assert len(set(ids)) == GOOD
    assert await store.extend([job.lease for job in held], 60) == []
    assert await store.settle([Done(job.lease) for job in held]) == []
    good = held + [job for job in await work_off(store) if job.data == b"good"]
    await advance(100_000)  # the ends of leases, and start times
    good += [job for job in await work_off(store) if job.data == b"good"]
    assert sorted(job.id for job in good) == sorted(ids)
    for _ in range(BAD // 1000 + 3):
        stats = await store.stats()
    dead = [job for name in stats.queues for job in await store.browse(name, "dead", limit=10 * BAD)]
    unreadable = [job for job in dead if (job.reason or "").startswith("unreadable record: ")]
    assert len(unreadable) > BAD // 3
    assert all(job.data.startswith(b"bad-") for job in unreadable)
    assert len({job.reason for job in unreadable}) > 20
    assert [await store.find(job.id) for job in dead[:50]] == dead[:50]
    await revive_and_clear(store, [job.id for job in dead])
    stats = await store.stats()
    states = ("ready", "delayed", "taken", "dead")
    return Counter({state: sum(getattr(each, state) for each in stats.queues.values()) for state in states})


async def revive_and_clear(store: Store, dead: list[int]) -> None:
    """What was set aside is a dead job like any other."""
    assert await store.revive(dead[:100]) > 50
    assert await store.remove(dead[100:200]) == 100
    for job in await store.take(Q, 100):
        assert await store.settle([Bury(job.lease, "again")]) == []
    for name in (await store.stats()).queues:
        assert await store.purge(name, "dead", limit=5) <= 5
        await store.purge(name, "dead")
        await store.purge(name, "ready")


async def check_documents(store: Store) -> None:
    """Those that cannot be read are none, and can be written anew."""
    await store.write("good", b"1")
    await damage(store, random.Random(5), 400)
    assert "good" in [document.name for document in await store.documents("")]
    assert all(0 < document.version < 1 << 54 for document in await store.documents(""))
    for n in range(20):
        name = f"damaged/{n}"
        found = await store.read(name)
        version = await store.write(name, b"new", version=found.version if found else 0)
        assert (await store.read(name)) is not None
        assert await store.write(name, b"newer", version=version) == version + 1
    assert await store.write("new", b"x", version=0) < 1 << 54
