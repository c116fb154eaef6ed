"""What every bare engine can do.

"Fenced" means: a take marks the jobs with a lease that ends and gives all their fields; a settle removes only those
whose lease is still the one that was handed out. The statistics are kept, too. Servers are driven by the scripts or
functions that Accoda itself uses, through the leanest client: one call at a time, no records made of the answers.
"""

from __future__ import annotations

from typing import Any, Protocol

PAYLOAD = b"x" * 50
Leases = list[tuple[Any, ...]]  # tokens, as the engine has them


class Raw(Protocol):
    async def enqueue(self, count: int) -> None: ...

    async def take(self, count: int) -> Leases: ...

    async def settle(self, leases: Leases) -> None: ...

    async def close(self) -> None: ...
