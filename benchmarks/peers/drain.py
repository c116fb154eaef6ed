"""One measurement: an adapter fills a fresh store, then drains it in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.catalogue import Peer
from benchmarks.peers.environments import python_of

ADAPTERS = Path(__file__).parent / "adapters"
FILL_PATIENCE = 120.0
WORK_PATIENCE = 60.0


class DrainFailed(Exception):
    """An adapter ended without an answer, or gave none in time; says what it wrote last."""


@dataclass(frozen=True)
class Drained:
    """What an adapter reports: how many jobs ran, and when the first and the last did."""

    count: int
    first: float
    last: float

    @property
    def rate(self) -> float:
        """Jobs a second. The first job starts the clock, so start-up and imports count for nobody."""
        return self.count / (self.last - self.first)


def drain(peer: Peer, url: str, count: int, settled: Callable[[], None]) -> Drained:
    """Fill, let the server put itself in order, and work."""
    order = json.dumps({"url": url, "count": count, "options": peer.options})
    command = [python_of(peer.adapter), str(ADAPTERS / f"drain_{peer.adapter}.py")]
    with tempfile.TemporaryFile() as errors:
        try:
            done = subprocess.run(
                [*command, "fill", order], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                timeout=FILL_PATIENCE, env=clean_environment(),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise DrainFailed(f"enqueueing {count:,} jobs took more than {FILL_PATIENCE:.0f} s") from None
        if done.returncode:
            raise DrainFailed(f"enqueueing failed: {_tail(errors.fileno())}")
        settled()
        return _work([*command, "work", order], errors.fileno())


def _work(command: list[str], errors: int) -> Drained:
    """Start the worker, wait for its line, end it with all its children."""
    worker = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
        start_new_session=True, env=clean_environment(),
    )  # fmt: skip
    assert worker.stdout is not None
    try:
        line = _first_report(worker.stdout.fileno())
    except TimeoutError:
        raise DrainFailed(f"did not finish in {WORK_PATIENCE:.0f} s: {_tail(errors)}") from None
    except EOFError:
        raise DrainFailed(f"the worker ended early: {_tail(errors)}") from None
    finally:
        # Its session is its own: the group holds the worker and whatever it forked, and nothing else.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        worker.stdout.close()
    return Drained(**json.loads(line))


def _first_report(source: int) -> bytes:
    """The first line that is a JSON object; a worker may print other things before it."""
    end = time.monotonic() + WORK_PATIENCE
    seen = b""
    while (left := end - time.monotonic()) > 0:
        if not select.select([source], [], [], left)[0]:
            break
        part = os.read(source, 65536)
        if not part:
            raise EOFError
        *lines, seen = (seen + part).split(b"\n")
        for line in lines:
            if line.startswith(b"{"):
                return line
    raise TimeoutError


def clean_environment() -> dict[str, str]:
    """What an adapter sees: not the modules of this folder, nor the environment that runs the benchmark."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    return {name: value for name, value in os.environ.items() if name not in hidden}


def _tail(file: int) -> str:
    """The last line that says something of what an adapter wrote."""
    text = os.pread(file, 1_000_000, 0).decode(errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it wrote nothing"
