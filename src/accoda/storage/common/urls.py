"""What every store's URL has in common: options in its query string, and passwords that must not be shown."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, parse_qsl

from accoda.errors import InvalidInput


def options(parts: SplitResult, **known: tuple[str, ...]) -> dict[str, str]:
    """Each option with its value; `known` gives the allowed values, the first being the default."""
    chosen = {name: values[0] for name, values in known.items()}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            listed = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            raise InvalidInput("url", f"{parts.scheme}:// has no option {name!r}; {listed}")
        if value not in known[name]:
            raise InvalidInput("url", f"option {name} must be {' or '.join(known[name])}, not {value!r}")
        chosen[name] = value
    return chosen


def shown_url(url: str) -> str:
    """A store's URL that may be printed: without its passwords, wherever they stand in it.

    >>> shown_url("redis://user:secret@host/0")
    'redis://user:•••@host/0'
    >>> shown_url("postgresql://host/db?sslpassword=secret&Password=x&pool=3")
    'postgresql://host/db?sslpassword=•••&Password=•••&pool=3'
    """
    url = re.sub(r"(://[^/?#@:]*:)[^/?#]*@", r"\1•••@", url, count=1)
    return re.sub(r"(password=)[^&#]*", r"\1•••", url, flags=re.IGNORECASE)
