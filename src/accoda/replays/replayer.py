"""The duty that does the steps of replays."""

from __future__ import annotations

from accoda.errands import Stepper
from accoda.replays.steps import REPLAYS, Step, advance, pause_after


class Replayer(Stepper[Step]):
    """The duty of `accoda.replays`."""

    def __init__(self) -> None:
        super().__init__(REPLAYS, advance, pause_after)
