"""`python -m accoda.testing.history FILES…` prints the verdict on the history in these files."""

from __future__ import annotations

import sys

from accoda.testing.history.checking import check
from accoda.testing.history.history import load


def main(paths: list[str]) -> int:
    """0: no violation; 1: some; 2: nothing to look at."""
    if not paths:
        sys.stderr.write("usage: python -m accoda.testing.history FILES…\n")
        return 2
    try:
        history = load(paths)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    verdict = check(history)
    sys.stdout.write(f"{verdict}\n")
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
