"""Lets the tests of this folder share `webhook_calls`, and observe every connection."""

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from webhook_calls import Calls, Receiver, Wire, open_calls

from accoda.webhooks import sender

_wires: list[Wire] = []


def _listen(event: str, args: Any) -> None:
    """An audit hook sees every `connect` of a socket in this process. It cannot be removed, so it is set once."""
    if event == "socket.connect" and _wires and isinstance(args[1], tuple):
        _wires[-1].connects.append(str(args[1][0]))


sys.addaudithook(_listen)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """The sockets that were asked for and the connections that were attempted."""
    found = Wire(sender.open_socket)
    monkeypatch.setattr(sender, "open_socket", found.open_socket)
    _wires.append(found)
    yield found
    _wires.remove(found)


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    async with open_calls() as made:
        yield made


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver() as made:
        yield made
