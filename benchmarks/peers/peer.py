"""One entry of the comparison: an adapter on a storage in a setting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

OURS = "accoda"
RAW = "raw"


@dataclass(frozen=True)
class Peer:
    """One row. `setting` is what the table prints, and it must say all that `options` does."""

    name: str
    storage: str
    title: str
    setting: str
    jobs: int  # what one worker process drains in about three seconds on a quiet machine
    options: dict[str, Any] = field(default_factory=dict)
    durable: bool = True  # SQLite: a power cut takes back nothing that was acknowledged
    safe: bool = True  # survives kill -9 of its worker: what it had in hand is run again by itself
    loses: str = ""  # where it is not safe or not durable: in a few words, what is lost when
    python: bool = True  # False: another language, which the verdict looks at apart
    measures: tuple[str, ...] = ()  # those that are this entry's own; empty: all
    script: str = "drain"  # which of the adapter's scripts is run

    @property
    def adapter(self) -> str:
        """The name of the adapter and of its environment: `taskiq` for `taskiq-list`."""
        return self.name.partition("-")[0]

    @property
    def ours(self) -> bool:
        return self.adapter == OURS

    @property
    def is_ceiling(self) -> bool:
        """Not a queue but the engine under Accoda, driven as fast as it goes."""
        return self.adapter == RAW
