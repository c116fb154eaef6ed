"""The duty that does the steps of bulk changes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from accoda.bulk.steps import BULKS, Bulk, advance
from accoda.errands import LEASE, Stepper

if TYPE_CHECKING:
    from accoda.app import App


class Bulker(Stepper[Bulk]):
    """The duty of `accoda.bulk`. The app knows what its handlers say of payloads, levels and secrets."""

    def __init__(self, app: App, *, lease: float = LEASE) -> None:
        super().__init__(BULKS, partial(advance, app), _at_once, lease=lease)


def _at_once(step: Bulk) -> float:
    return 0.0
