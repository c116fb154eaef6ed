"""How long `accoda serve` takes for the pages that look at a queue, over a connection that stays open."""

from __future__ import annotations

import http.client
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE = 60.0


def pages(queue: str) -> dict[str, str]:
    return {
        "overview": "/",
        "queue": f"/queues/{queue}",
        "jobs": "/jobs",
        "jobs of the queue": f"/jobs?queue={queue}&state=ready",
    }


@contextmanager
def serving(url: str) -> Iterator[int]:
    """The command, on a free port."""
    command = [sys.executable, "-m", "accoda", "serve", "--port", "0", "--url", url, "--log-format", "human"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            yield _port(process)
        finally:
            process.terminate()


def _port(process: subprocess.Popen[str]) -> int:
    """What it says when it listens."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if match := re.search(r"http://[^\s:]+:(\d+)", line):
            return int(match[1])
    raise RuntimeError("accoda serve did not start:\n" + "".join(said[-20:]))


def look(url: str, queue: str, looks: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each page: the median of several looks, and the slowest. The first is not counted."""
    found = {}
    with serving(url) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        for name, page in pages(queue).items():
            times = [_ask(connection, page) for _ in range(looks + 1)][1:]
            found[name] = {"median": statistics.median(times), "worst": max(times)}
        connection.close()
    return found


def _ask(connection: http.client.HTTPConnection, page: str) -> float:
    begun = time.perf_counter()
    connection.request("GET", page)
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{page}: {answer.status}")
    return (time.perf_counter() - begun) * 1000
