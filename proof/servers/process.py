"""What all test servers share: a process in a folder of its own that can be stopped, killed and started again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from proof.servers.disk import Disk

START_PATIENCE = 30.0


class ServerMissing(Exception):
    """The program is not installed. Tests skip then; with CI=true they fail."""


def find_program(name: str, *folders: str) -> str:
    """The path of a server's program, looked for on PATH and then in `folders`."""
    found = shutil.which(name) or next((path for f in folders if (path := shutil.which(name, path=f))), None)
    if found is None:
        raise ServerMissing(f"{name} is not installed; `make servers` installs it where it may")
    return found


def free_port() -> int:
    """A free loopback port that no other caller of this function gets before `leave_port` or the end of this process.

    Not one that the kernel would choose: it might give the same to an outgoing connection while a server is down, and
    the server could not come back. Random, but not by the random numbers that tests seed.
    """
    chance = random.SystemRandom()
    while True:
        port = chance.randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            if _claim(port):
                probe.bind(("127.0.0.1", port))
                return port


def leave_port(port: int) -> None:
    """Others may have it. A second time does no harm."""
    if (claim := _claims.pop(port, None)) is not None:
        os.close(claim)


_claims: dict[int, int] = {}  # file descriptors; those of no server but a test's are left to our end


def _claim(port: int) -> bool:
    """Whether no other process of ours has the port. A server that is down, or not yet up, does not show by itself."""
    if sys.platform != "linux":
        return True
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0accoda-port-{port}")  # a name without a file: the kernel forgets it with the process
    except OSError:
        claim.close()
        return False
    _claims[port] = claim.detach()
    return True


class Process:
    """One server process. Subclasses say how to start it and when it is up; `folder` is removed in the end.

    `user` is the account to run as when we are root, for servers that refuse to be root. With `disk`, its files are on
    a disk that fails on command.
    """

    user: str | None = None

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk = disk
        self.folder = Path(tempfile.mkdtemp(prefix="accoda-"))
        self.folder.chmod(0o755)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._backups: list[Path] = []

    def command(self) -> Sequence[str]:
        """The command line; it must stay in the foreground."""
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        if self.disk is None:
            return os.environ
        return {**os.environ, **self.disk.environment(self.folder)}

    def is_up(self) -> bool:
        """Whether it answers. Called again and again after a start."""
        raise NotImplementedError

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs. One that ended by itself is not, until it is started again."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def start(self) -> Self:
        """Start it (again), in the same folder and on the same port, and return when it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=dict(self.environment()),
                user=self.user if os.geteuid() == 0 else None,
                start_new_session=True,  # a Ctrl-C in the terminal is for the tests, which then stop us
            )
        wait_until(self.is_up, self._explain)
        return self

    def recover(self) -> None:
        """Return when it answers again after a trouble of its own: start it if it ended itself, wait otherwise."""
        wait_until(lambda: not self.is_alive or self.is_up(), self._explain)
        if not self.is_alive:
            self._end(signal.SIGKILL)  # its children, if it left any
            self.start()

    def stop(self) -> None:
        """End it politely."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would: with SIGKILL, children included."""
        self._end(signal.SIGKILL)

    def copy(self) -> Path:
        """Stop it, copy all that it has on disk, and start it again: a backup for `put_back`."""
        self.stop()
        folder = Path(tempfile.mkdtemp(prefix="accoda-backup-"))
        self._backups.append(folder)
        backup = folder / "files"
        subprocess.run(["cp", "-a", str(self.folder), str(backup)], check=True)  # with owners and times
        self.start()
        return backup

    def put_back(self, backup: Path) -> None:
        """Kill it and start it again with the files of a backup: whatever came since is forgotten."""
        self.kill()
        shutil.rmtree(self.folder)
        subprocess.run(["cp", "-a", str(backup), str(self.folder)], check=True)
        self.start()

    def close(self) -> None:
        """Stop it and remove its folder. A second time does no harm."""
        self.stop()
        leave_port(self.port)
        for folder in (self.folder, *self._backups):
            shutil.rmtree(folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if how == signal.SIGKILL:
            with suppress(ProcessLookupError):  # it ended by itself, with its children
                os.killpg(process.pid, how)
        else:
            process.send_signal(how)
        try:
            process.wait(START_PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _explain(self) -> str:
        tail = self.log.read_text(errors="replace")[-2000:] if self.log.exists() else ""
        return f"{type(self).__name__} did not start:\n{tail}"


def wait_until(true: Callable[[], bool], explain: Callable[[], str]) -> None:
    """Ask every 10 ms, for at most 30 s."""
    end = time.monotonic() + START_PATIENCE
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(explain())
        time.sleep(0.01)
