"""Lets the tests of this folder share `dash`, and gives them a dashboard to look at."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from proof.service import ServiceRunner

from accoda import App
from accoda.http.options import ServiceOptions

sys.path.insert(0, str(Path(__file__).parent))

from dash import Dash  # only once it can be found


@pytest.fixture
def dash() -> Iterator[Dash]:
    """A dashboard that asks for no token."""
    with ServiceRunner(App("memory://")) as service:
        yield Dash(service)


@pytest.fixture
def dashes() -> Iterator[dict[str, Dash]]:
    """One service behind its guard, looked at by who may only read, and by who may change things."""
    from accoda.http.security import Security, tokens

    app = App("memory://")

    async def make() -> dict[str, str]:
        made = {scope: await tokens.create(app.storage, scope, [scope], now=0) for scope in ("read", "admin")}
        return {scope: text for scope, (_, text) in made.items()}

    texts = asyncio.run(make())
    with ServiceRunner(app, ServiceOptions(system_jobs=False, policy=Security(rate=1e6))) as service:
        yield {scope: Dash(service, text) for scope, text in texts.items()}
