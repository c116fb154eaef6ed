"""A worker whose own clock is wrong: whatever it asks Python for the time, the answer is off."""

from __future__ import annotations

import time


def shift(seconds: float) -> None:
    """From now on `time.time` and `time.time_ns` are off by so many seconds. The monotonic clock stays right."""
    real = time.time_ns
    off = int(seconds * 1e9)
    time.time_ns = lambda: real() + off
    time.time = lambda: (real() + off) / 1e9
