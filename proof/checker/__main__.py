"""`python -m proof.checker FILES…` prints the verdict on the log in these files."""

from __future__ import annotations

import sys

from proof.checker.call_log import load
from proof.checker.checking import check


def main(paths: list[str]) -> int:
    """0: no violation; 1: some; 2: nothing to look at."""
    if not paths:
        sys.stderr.write("usage: python -m proof.checker FILES…\n")
        return 2
    try:
        log = load(paths)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    verdict = check(log)
    sys.stdout.write(f"{verdict}\n")
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
