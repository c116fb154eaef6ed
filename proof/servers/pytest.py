"""How tests ask for a server."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

from proof.servers.process import ServerMissing

S = TypeVar("S")


def need(start: Callable[[], S]) -> S:
    """Start a server. One that is not installed skips the test at home and fails it in CI."""
    try:
        return start()
    except ServerMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))
