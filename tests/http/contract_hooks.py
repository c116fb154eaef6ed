"""What schemathesis cannot know: texts that have a meaning beyond their form. Loaded by `schemathesis.toml`."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import uuid4

import schemathesis
from hypothesis import strategies as st

from accoda.model import STATES
from accoda.operations.search import SearchCursor

schemathesis.openapi.format("cron", st.sampled_from(["0 7 * * MON-FRI", "*/5 * * * *", "30 0 0 1 * *", "@daily"]))
schemathesis.openapi.format("time-zone", st.sampled_from(["UTC", "Europe/Rome", "America/New_York"]))
schemathesis.openapi.format(
    "webhook-url", st.sampled_from(["https://example.com/hooks", "http://hooks.example.org:8443/a?b=1"])
)
schemathesis.openapi.format(
    "cursor",
    st.builds(
        lambda queue, state, id: SearchCursor(queue, state, float(id), id).token(),
        st.sampled_from(["emails", "reports"]),
        st.sampled_from(STATES),
        st.integers(0, 100),
    ),
)
schemathesis.openapi.format("idempotency-key", st.uuids().map(str))
schemathesis.openapi.format("lane", st.text(min_size=1, max_size=128).filter(str.isprintable))
# Moments before 1970 are refused, which no pattern says well.
schemathesis.openapi.format(
    "date-time",
    st.builds(
        lambda at, hours: at.replace(tzinfo=UTC).astimezone(timezone(timedelta(hours=hours))).isoformat(),
        st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)),
        st.integers(-12, 14),
    ),
)


@schemathesis.hook
def before_call(context, case, kwargs):
    """A key that was used with another body is refused, as it must be: so each request has one of its own."""
    key = (case.headers or {}).get("Idempotency-Key")
    if isinstance(key, str) and 0 < len(key) < 200:
        case.headers["Idempotency-Key"] = f"{key}-{uuid4().hex}"


@schemathesis.hook
def filter_body(context, body):
    """Integers of more than 64 bits are refused, and no schema can tell 1e25 from the same number in digits."""
    return _fits(body)


def _fits(value):
    if isinstance(value, dict):
        return all(_fits(each) for each in value.values())
    if isinstance(value, list):
        return all(_fits(each) for each in value)
    return not isinstance(value, int) or -(1 << 63) <= value < 1 << 64
