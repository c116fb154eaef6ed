"""How long `accoda --help` takes beside Python itself: `python -m benchmarks.cli_start`.

The runs of each are interleaved, so that whatever else the machine does falls on all of them alike.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from statistics import median

RUNS = 15
START = "from accoda.cli import main; main()"
ALLOWED = 150.0
"""Milliseconds that `accoda --help` may take more than Python."""

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "python -c 'import click'": ["-c", "import click"],
    "accoda --help": ["-c", START, "--help"],
    "accoda jobs --help": ["-c", START, "jobs", "--help"],
    "completion of `accoda que`": ["-c", START],
    "import accoda": ["-c", "import accoda"],
    "from accoda import App": ["-c", "from accoda import App"],
}
COMPLETION = {"_ACCODA_COMPLETE": "bash_complete", "COMP_WORDS": "accoda que", "COMP_CWORD": "1"}


def milliseconds(name: str) -> float:
    """One run in a process of its own."""
    environ = os.environ | (COMPLETION if name.startswith("completion") else {})
    begun = time.perf_counter()
    subprocess.run([sys.executable, *COMMANDS[name]], env=environ, capture_output=True, check=True)
    return (time.perf_counter() - begun) * 1000


def main() -> None:
    for name in COMMANDS:  # what is compiled, and what the disk has to find, is so once
        milliseconds(name)
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name in COMMANDS:
            times[name].append(milliseconds(name))
    base = median(times["python -c pass"])
    print(f"median of {RUNS} runs each, interleaved")
    for name, taken in times.items():
        print(f"{name:<28} {median(taken):6.1f} ms   {median(taken) - base:+6.1f} ms")
    more = median(times["accoda --help"]) - base
    print(f"accoda --help takes {more:.0f} ms more than Python; {ALLOWED:.0f} are allowed")


if __name__ == "__main__":
    main()
