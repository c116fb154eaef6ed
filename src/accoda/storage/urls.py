"""What the openers of all storages share: options in a URL's query string."""

from __future__ import annotations

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
