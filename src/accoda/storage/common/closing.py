"""`async with storage:` for every storage, in terms of its `close`."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    async def close(self) -> None:
        """Let go of everything."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
