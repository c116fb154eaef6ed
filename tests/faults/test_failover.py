"""A Redis master is lost and a replica takes over, again and again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from proof.chaos.faults import Target, catalogue
from proof.chaos.faults.clients import Clients
from proof.chaos.faults.failover import FailOver

from accoda import open_storage
from accoda.errors import StorageUnavailable


@pytest.mark.parametrize("kind", ["redis-sentinel", "redis-cluster"])
async def test_clients_go_on_with_the_new_master_and_nothing_acknowledged_is_lost(
    targets: Callable[[str], Target], queue: str, kind: str
) -> None:
    target = targets(kind)
    assert target.group is not None
    group, before = target.group, set(target.group.current_masters())
    notes: list[str] = []
    heirs: list[bool] = []

    def note(kind: str, **fields: object) -> None:
        notes.append(kind)
        if kind == "fail-over":  # later on, a slow machine may well make another, back to the first master
            heirs.append(set(group.current_masters()) != before)

    target.note = note
    async with asyncio.timeout(90), await open_storage(target.url) as store:
        clients = Clients(store, queue=queue)
        async with clients.running():
            await FailOver(target).strike(random.Random(1))
            await clients.go_on()
        await clients.finish()
    assert notes == ["server down", "fail-over", "server up"]
    assert heirs == [True]
    assert all(isinstance(error, StorageUnavailable) for error in clients.errors), clients.errors


def test_their_own_addresses_lead_past_a_proxy_so_there_are_no_network_faults(
    targets: Callable[[str], Target],
) -> None:
    assert [fault.name for fault in catalogue(targets("redis-cluster"))] == ["fail-over", "replica kill"]
