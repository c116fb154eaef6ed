"""What calls need beyond the core."""

from __future__ import annotations

from importlib.util import find_spec

from accoda.errors import MissingDriver

NEEDED = ("aiohttp", "standardwebhooks")


def need_extra() -> None:
    """Raise, with the name of the extra, unless it is installed. Imports nothing."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise MissingDriver(
            f"webhooks need {' and '.join(missing)}, which an extra brings: pip install 'accoda[webhooks]'"
        )
