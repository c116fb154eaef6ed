"""Limits that a test changes are what they were after it."""

from collections.abc import Iterator

import pytest

from accoda.limits import as_told, set_limits


@pytest.fixture(autouse=True)
def same_limits_afterwards() -> Iterator[None]:
    before = as_told()
    yield
    set_limits(**before)
