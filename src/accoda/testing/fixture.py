"""A pytest fixture for an app in testing mode.

# conftest.py
from accoda.testing.fixture import app_fixture
from shop.jobs import app

jobs = app_fixture(app)

# test_shop.py
def test_it(jobs):
    app.sync.enqueue("emails", Email("anna"))
    app.sync.run_until_idle()
    assert jobs.payloads("emails") == [Email("anna")]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from accoda.app import App
from accoda.app_testing import Trial


def app_fixture(app: App, **options: Any) -> Any:
    """A fixture that runs each test with `app` in memory, and gives the `Trial`. `options` are pytest's (`autouse`)."""

    @pytest.fixture(**options)  # type: ignore[untyped-decorator]  # pytest types it by its options, which vary here
    def trial() -> Iterator[Trial]:
        with app.testing() as started:
            yield started

    return trial
