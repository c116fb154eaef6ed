"""`python -m benchmarks.why`: how good the estimates of `accoda why` are, in mixed queues with real workers on SQLite.

Jobs of four queues come by chance and in bursts: quick and slow ones, single ones and batches, with priorities, delays
and a budget. Jobs that wait are asked for at random moments; when they start is compared with what was said.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from benchmarks.why.report import save, summary
from benchmarks.why.run import measure


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.why", description=__doc__)
    parser.add_argument("--seconds", type=float, default=70.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-save", action="store_true", help="print only")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asked = asyncio.run(measure(Path(folder), given.seconds, given.seed))
    if not asked:
        raise SystemExit("no job that was asked for has started; is the machine very busy?")
    text = summary(asked)
    print(text)
    if not given.no_save:
        save(asked, text)


if __name__ == "__main__":
    main()
