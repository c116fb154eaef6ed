"""The event loops that Accoda makes itself: uvloop's, where it is installed (`accoda[speed]`)."""

from __future__ import annotations

import asyncio


def fast_loop() -> asyncio.AbstractEventLoop:
    """A new event loop, the fastest there is."""
    try:
        import uvloop
    except ImportError:  # not installed, or not for this machine
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
