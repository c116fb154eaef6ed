"""`python -m benchmarks.check [STORAGE ...] [--save]`: has Accoda become slower than the committed figures say?

A figure is Accoda's rate divided by that of a yardstick, a small fixed queue on the same engine, both measured in turns
in the same run; so it does not depend on how fast the machine is, and little on its load. A figure that is
more than 20 % below the committed one is looked at again, twice; only if it stays there is it a regression: exit 1.
With `--save` the figures of this run become the committed ones.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence

from proof.servers.process import ServerMissing

from benchmarks.check.cases import NAMES, measure
from benchmarks.check.verdict import COMMITTED, Figure, committed, is_slower, save, text

LOOKS = 3
ROUNDS = 7


async def look(storage: str, wanted: Sequence[str] | None = None, rounds: int = ROUNDS) -> list[Figure]:
    """Figures of a storage: all, or those of the given cases."""
    return [figure async for figure in measure(storage, wanted, rounds)]


async def check(storage: str, before: dict[str, float]) -> list[Figure]:
    """The figures of a storage; those that seem slower are the best of three looks."""
    found = {figure.name: figure for figure in await look(storage)}
    for number in range(2, LOOKS + 1):
        slow = [name for name, figure in found.items() if is_slower(figure, before)]
        if not slow:
            break
        tell(f"{storage}: look {number} at {', '.join(slow)}")
        for figure in await look(storage, slow, 2 * ROUNDS):
            found[figure.name] = max(figure, found[figure.name], key=lambda each: each.ratio)
    return list(found.values())


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check", description=__doc__)
    parser.add_argument("storages", nargs="*", help=f"of {', '.join(NAMES)} (all)")
    parser.add_argument("--save", action="store_true", help=f"write {COMMITTED.name}")
    given = parser.parse_args()
    if unknown := set(given.storages) - set(NAMES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    before = {} if given.save else committed()
    found: list[Figure] = []
    missing: list[str] = []
    for storage in given.storages or NAMES:
        tell(f"{storage}: Accoda and the yardstick take turns")
        try:
            found += asyncio.run(check(storage, before))
        except ServerMissing as reason:
            missing.append(f"{storage}: not measured: {reason}")
    print("\n".join([text(found, before), *missing]))
    if given.save:
        save(found)
        return 0
    return 1 if any(is_slower(figure, before) for figure in found) else 0


if __name__ == "__main__":
    sys.exit(main())
