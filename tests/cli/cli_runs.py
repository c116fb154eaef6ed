"""Commands of the page that run for a while, each in a process of its own, on the clock of the machine."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from urllib.request import ProxyHandler, build_opener

PATIENCE = 60.0
ACCODA = [sys.executable, "-m", "accoda"]
HOST = "shop-1"


class Run(NamedTuple):
    """What was typed, and what was printed."""

    typed: str
    said: str


def worker(folder: Path) -> list[Run]:
    """Three jobs, one of which cannot be done, and a worker that ends when nothing is left."""
    words = (
        "enqueue emails --lines --file few.jsonl --app mailing:app",
        "worker mailing:app --burst",
        "worker shop.py",
    )
    return [_typed(line, folder) for line in words]


def serve(folder: Path) -> list[Run]:
    """The service is asked once, and ended."""
    with _start(["serve", "--port", "0"], folder) as process:
        assert process.stdout is not None
        try:
            began = process.stdout.readline()
            found = re.search(r"http://\S+", began)
            assert found, began
            asked = f"{found[0]}/api/v1/queues/reports"
            with build_opener(ProxyHandler({})).open(asked, timeout=PATIENCE) as answer:
                body = answer.read().decode()
        finally:
            process.send_signal(signal.SIGTERM)
            rest = process.communicate(timeout=PATIENCE)[0]
    ended = f"{rest}{process.returncode}"
    return [
        Run("accoda serve --port 0 &", began),
        Run(f"curl -s {asked}", body),
        Run("kill %1; wait %1; echo $?", ended),
    ]


def _typed(line: str, folder: Path) -> Run:
    with _start(line.split(), folder) as process:
        said, _ = process.communicate(timeout=PATIENCE)
    return _run(f"accoda {line}", said.replace(str(folder.resolve()), "/srv/shop"), process.returncode)


def _run(typed: str, said: str, code: int) -> Run:
    """As it came, except for the names of the machine and of the folder."""
    said = re.sub(rf"\b{re.escape(socket.gethostname())}\b", HOST, said)
    return Run(typed, said.rstrip() + (f"\n(exit code {code})" if code else ""))


def _start(words: list[str], folder: Path) -> "subprocess.Popen[str]":
    known = {name: value for name, value in os.environ.items() if not name.startswith(("ACCODA_", "_ACCODA"))}
    known |= {"COLUMNS": "80", "NO_COLOR": "1", "TZ": "UTC", "PYTHONUTF8": "1"}
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([*ACCODA, *words], cwd=folder, env=known, text=True, **streams)  # type: ignore[call-overload,no-any-return]
