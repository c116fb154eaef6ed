"""Lets the tests of this folder share `webhook_world`, and see every connection that is begun."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from webhook_world import Receiver, Wire, World, open_world

from accoda.webhooks import connect

_wires: list[Wire] = []


def _listen(event: str, args: Any) -> None:
    """Python tells of every `connect` of a socket in this process. A hook stays for ever, so it is only set once."""
    if event == "socket.connect" and _wires and isinstance(args[1], tuple):
        _wires[-1].connects.append(str(args[1][0]))


sys.addaudithook(_listen)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """What happens at the lowest places: sockets that were asked for, and connections that were begun."""
    found = Wire(connect.open_socket)
    monkeypatch.setattr(connect, "open_socket", found.open_socket)
    _wires.append(found)
    yield found
    _wires.remove(found)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with open_world() as made:
        yield made


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as made:
        yield made
