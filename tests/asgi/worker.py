"""A worker in a process of its own."""

import sys
from collections.abc import Mapping, Sequence

import httpx2
from proof.servers.process import Process


class WorkerProcess(Process):
    """`accoda worker package.module:app`."""

    def __init__(self, app: str, environment: Mapping[str, str]) -> None:
        super().__init__()
        self._app = app
        self._environment = environment

    def environment(self) -> Mapping[str, str]:
        return self._environment

    def command(self) -> Sequence[str]:
        how = ("--metrics-port", str(self.port), "--grace", "1")
        return (sys.executable, "-m", "accoda", "worker", self._app, *how)

    def is_up(self) -> bool:
        try:
            return httpx2.get(f"http://127.0.0.1:{self.port}/health/ready").status_code == 200
        except httpx2.TransportError:
            return False
