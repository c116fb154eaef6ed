"""The files of a new PostgreSQL: made once in a process and copied for each server, which takes a tenth of the time."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import NamedTuple

USER = "accoda"
DATABASE = "accoda"


class Programs(NamedTuple):
    """What makes them, and as which user; None: the present one."""

    initdb: str
    postgres: str
    user: str | None


_made: dict[Programs, Path] = {}
_making = threading.Lock()  # servers are also started in threads: the second waits for the files of the first


def make_data(target: Path, programs: Programs) -> None:
    """Fill a new folder with an empty cluster that has one user and one database."""
    with _making:
        if programs not in _made:
            _made[programs] = _make(programs)
    subprocess.run(["cp", "-Rp", str(_made[programs]), str(target)], check=True)


def _make(programs: Programs) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="accoda-"))
    folder.chmod(0o755)
    atexit.register(_remove, folder, os.getpid())
    data, log = folder / "data", folder / "log"
    data.mkdir()
    if programs.user is not None:
        shutil.chown(data, programs.user)
    options = ["-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
    _run([programs.initdb, "-D", str(data), *options], programs.user, log)
    # Without a running server: one backend that reads commands from its input.
    command = [programs.postgres, "--single", "-D", str(data), "-F", "postgres"]
    _run(command, programs.user, log, f"CREATE DATABASE {DATABASE};\n".encode())
    return data


def _run(command: list[str], user: str | None, log: Path, words: bytes = b"") -> None:
    with log.open("ab") as output:
        done = subprocess.run(command, input=words, stdout=output, stderr=output, cwd=log.parent, user=user)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{log.read_text(errors='replace')[-2000:]}")


def _remove(folder: Path, maker: int) -> None:
    if os.getpid() == maker:  # not a fork of it, which ends sooner
        shutil.rmtree(folder, ignore_errors=True)
