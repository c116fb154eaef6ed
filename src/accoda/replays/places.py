"""Where somebody who goes through many jobs has come to."""

from __future__ import annotations

from msgspec import Struct

from accoda.model import STATES, State


class Place(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """After the job `id` in a queue and a state. `id` 0: before the first one."""

    queue: str
    state: State = STATES[0]
    id: int = 0
