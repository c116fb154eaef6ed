"""`python -m proof.fuzz`: hostile bytes for every decoder, with a table at the end. Exit 1: one crashed."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable

from proof.fuzz.everything import all_targets
from proof.fuzz.run import fuzz


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.fuzz", description=__doc__)
    parser.add_argument("--decodes", type=int, default=1_000_000, help="inputs in sum (1,000,000)")
    parser.add_argument("--seed", type=int, default=None, help="the same seed gives the same inputs; default: the time")
    parser.add_argument("--only", default="", help="only decoders whose name contains this")
    given = parser.parse_args()
    seed = time.time_ns() % 1_000_000 if given.seed is None else given.seed
    targets = [target for target in all_targets() if given.only in target.name]
    if not targets:
        parser.error(f"no decoder is called {given.only!r}; there are {', '.join(t.name for t in all_targets())}")
    logging.disable(logging.CRITICAL)
    report = fuzz(targets, given.decodes, seed, _progress(given.decodes))
    sys.stderr.write("\n")
    sys.stdout.write(f"{report}\n")
    return 1 if report.crashes else 0


def _progress(wanted: int) -> Callable[[int], None]:
    told = time.monotonic()

    def tell(done: int) -> None:
        nonlocal told
        if time.monotonic() - told >= 2.0:
            told = time.monotonic()
            sys.stderr.write(f"\r{done:,} of {wanted:,} decodes")
            sys.stderr.flush()

    return tell


if __name__ == "__main__":
    sys.exit(main())
