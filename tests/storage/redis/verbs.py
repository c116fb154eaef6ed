"""A call of every verb, so that each script runs."""

from __future__ import annotations

import asyncio

from accoda import Bury, Done, NewJob, Retry
from accoda.model import ById, ByKey, Head, NotCrashed, Remove, Rerank, Revive, StartNow
from accoda.storage.protocol import Store

Q = "q"


async def use_every_verb(store: Store) -> None:
    ids = [answer.id for answer in await store.enqueue([NewJob(Q, key="k", waiter=b"w"), NewJob(Q), NewJob(Q)])]
    await store.change([Rerank(ids[0], -1.0), StartNow(ids[1]), Remove((await store.enqueue([NewJob(Q)]))[0].id, 0, Q)])
    await store.look(ByKey(Q, "k"), waiters_after=0)
    await store.look(Head(Q), ahead=True)
    one, two, three = await store.take(Q, 3)
    await store.extend([one.lease], 60)
    await store.settle([Done(one.lease, then=[NewJob("next")]), Bury(two.lease, "x"), Retry(three.lease)])
    await store.change([Revive(two.id), NotCrashed(three.id)])
    await store.wait([Q], 0)
    await store.stats()
    await store.look(ById(two.id), ahead=True)
    await store.browse(Q, "ready")
    await store.pause(Q, None)
    await store.pause(Q, 0)
    await store.purge(Q, "ready")
    await store.write("doc", b"")
    await store.read("doc")
    await store.documents("")
    await store.enqueue([NewJob(Q)])
    taking = asyncio.create_task(store.take(Q, 20))
    await asyncio.sleep(0)
    taking.cancel()
    await asyncio.gather(taking, return_exceptions=True)
    await store.stats()
