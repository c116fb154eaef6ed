"""Requests that wait in long polls, and their end when the service stops."""

from __future__ import annotations

import asyncio


class LongPolls:
    """Futures that are done when the service stops. A poll that begins afterwards does not wait at all."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()
        self.leaving = False

    def open(self) -> None:
        """The service runs (again): polls may wait."""
        self.leaving = False

    def enter(self) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.leaving:
            future.set_result(None)
        else:
            self._waiting.add(future)
        return future

    def leave(self, future: asyncio.Future[None]) -> None:
        self._waiting.discard(future)
        if not future.done():
            future.cancel()

    def close(self) -> None:
        """End all polls. Called on the service's own loop; a second call does no harm."""
        self.leaving = True
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def __len__(self) -> int:
        return len(self._waiting)
