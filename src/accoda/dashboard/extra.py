"""The one place that says what to install when the extra `dashboard` is missing."""

from __future__ import annotations

from importlib.util import find_spec

ADVICE = "The dashboard needs Jinja2; install it with: pip install 'accoda[dashboard]'"


def is_installed() -> bool:
    """Whether the dashboard can be shown."""
    return find_spec("jinja2") is not None
