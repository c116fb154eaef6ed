"""What the OpenAPI document says of texts: it refuses nothing that the service takes, and the plainest of what it does
not take."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from accoda.errors import InvalidInput
from accoda.http.openapi import document
from accoda.http.resources.common import WEBHOOK_URL
from accoda.http.table import operations
from accoda.operations.moments import SHAPE, read
from accoda.webhooks.urls import read_url


@pytest.fixture(scope="module")
def openapi() -> dict[str, Any]:
    return document(operations(), secured=False)


@pytest.mark.parametrize(
    "url",
    ["https://example.com", "HTTP://a.b:8443/x?y=1", "https://[2001:db8::1]:8443/", "https://faß.de/x", "https://a?b"],
)
def test_a_webhook_url_that_is_taken_fits(url: str) -> None:
    read_url(url)
    assert re.search(str(WEBHOOK_URL["pattern"]), url)


@pytest.mark.parametrize(
    "url", ["", "ftp://a", "https://", "https://u@a/", "https:///a", "https://a/#f", "https://a b/"]
)
def test_a_webhook_url_that_no_service_takes_does_not_fit(url: str) -> None:
    with pytest.raises(InvalidInput):
        read_url(url)
    assert not re.search(str(WEBHOOK_URL["pattern"]), url)


def test_moments_begin_with_1970() -> None:
    for moment in (
        "1970-01-01T00:00:00Z",
        "1999-12-31T23:59:59+01:00",
        "2030-01-01T09:00:00.5Z",
        "9999-12-31T00:00:00Z",
    ):
        assert read("at", moment) >= 0 and re.search(SHAPE["pattern"], moment)
    for moment in ("1969-12-31T23:59:59Z", "0088-10-27T14:21:39Z"):
        with pytest.raises(InvalidInput):
            read("at", moment)
        assert not re.search(SHAPE["pattern"], moment)


def schemas_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every map in a document."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from schemas_in(inner)


@pytest.mark.parametrize("format", ["date-time", "webhook-url", "cron", "idempotency-key"])
def test_the_document_says_the_shape_wherever_one_may_be_sent(openapi: dict[str, Any], format: str) -> None:
    found = [each for each in schemas_in(openapi) if each.get("format") == format]
    assert found and all("pattern" in each for each in found)
