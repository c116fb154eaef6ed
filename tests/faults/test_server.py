"""The server is killed or restarted while clients are in the middle of their calls."""

from __future__ import annotations

import asyncio
import random

import pytest
from proof.chaos.faults import Target, catalogue
from proof.chaos.faults.clients import Clients

from accoda.errors import StorageUnavailable
from accoda.storage.protocol import Store


@pytest.mark.parametrize("name", ["server kill", "server restart"])
async def test_clients_go_on_by_themselves_and_nothing_acknowledged_is_lost(
    target: Target, store: Store, name: str, queue: str
) -> None:
    (fault,) = (each for each in catalogue(target) if each.name == name)
    clients = Clients(store, queue=queue)
    async with asyncio.timeout(60):
        async with clients.running():
            await fault.strike(random.Random(1))
            await clients.go_on()
        await clients.finish()
    assert all(isinstance(error, StorageUnavailable) for error in clients.errors), clients.errors


async def test_each_strike_notes_which_server_went_and_came(target: Target) -> None:
    notes: list[tuple[str, object]] = []
    target.note = lambda kind, **fields: notes.append((kind, fields["server"]))
    try:
        (fault,) = (each for each in catalogue(target) if each.name == "server restart")
        await fault.strike(random.Random(1))
    finally:
        target.note = lambda kind, **fields: None
    assert notes == [("server down", target.kind), ("server up", target.kind)]
