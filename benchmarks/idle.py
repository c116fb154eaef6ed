"""What an idle worker costs: one `accoda worker` process with 50 empty queues, on every storage.

    python -m benchmarks.idle [--seconds 20]

Prints the processor time that the worker, and the server, used while nothing happened, in per cent of one core.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proof.servers.postgres import PostgresServer
from proof.servers.process import ServerMissing
from proof.servers.redis import RedisServer
from proof.servers.tarantool import TarantoolServer

QUEUES = 50
APP = f"""
from accoda import App

app = App()
for number in range({QUEUES}):

    @app.handler(f"queue{{number}}")
    async def work(n: int) -> None: ...
"""
TICKS = os.sysconf("SC_CLK_TCK")


def used(pid: int) -> float:
    """Seconds of processor time of a process and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def urls(folder: Path) -> Iterator[list[tuple[str, str]]]:
    """Every storage that can be had here."""
    found, servers = [("sqlite", f"sqlite:///{folder}/idle.db")], []
    try:
        for name, make in (("redis", RedisServer), ("postgres", PostgresServer), ("tarantool", TarantoolServer)):
            try:
                server = make().start()
            except ServerMissing as missing:
                print(f"{name}: left out, {missing}")
                continue
            servers.append(server)
            found.append((name, server.url))
        yield found
    finally:
        for server in servers:
            server.stop()


def measure(url: str, folder: Path, seconds: float) -> float:
    command = [sys.executable, "-m", "accoda", "worker", "idle_jobs:app", "-c", "8"]
    worker = subprocess.Popen(
        command, cwd=folder, env={**os.environ, "ACCODA_URL": url}, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    try:
        time.sleep(4)  # start, the first look into every queue, the first word of the manager
        before = used(worker.pid)
        time.sleep(seconds)
        if worker.poll() is not None:
            raise SystemExit(f"the worker on {url} ended with {worker.returncode}")
        return (used(worker.pid) - before) / seconds
    finally:
        worker.terminate()
        worker.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "idle_jobs.py").write_text(APP)
        with urls(folder) as found:
            for storage, url in found:
                share = measure(url, folder, seconds)
                print(f"{storage:<10} {QUEUES} empty queues: {100 * share:5.2f} % of a core", flush=True)


if __name__ == "__main__":
    main()
