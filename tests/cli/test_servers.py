"""The commands on servers: each opens the store in a loop of its own, and leaves it."""

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from click.testing import CliRunner
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need
from proof.servers.redis import RedisServer

from accoda.cli.commands import accoda


@pytest.mark.parametrize("server", [RedisServer, PostgresServer])
def test_a_job_is_enqueued_looked_at_and_deleted(server: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(need(lambda: server().start())) as running:
        monkeypatch.setenv("ACCODA_URL", running.url)
        id = json.loads(told("enqueue", "calls", '{"n": 1}', "--delay", "1h", "--json"))["id"]
        assert json.loads(told("job", str(id), "--json"))["payload"] == {"n": 1}
        assert "in 59 min" in told("jobs", "--state", "delayed")
        assert told("queues", "calls", "pause") == "calls is paused.\n"
        assert "calls      0        1        0     0     0          paused" in told("queues")
        assert told("job", str(id), "delete", "--yes") == f"Job {id} is deleted.\n"
        assert told("jobs") == told("dead") == ""
        running.stop()
        monkeypatch.setattr("accoda.cli.common.PATIENCE", 0.2)
        assert CliRunner().invoke(accoda, ["jobs"]).exit_code == 3


def told(*words: str) -> str:
    result = CliRunner().invoke(accoda, words)
    assert result.exit_code == 0, result.output
    return result.stdout
