"""`accoda serve`: starts where it may, says where it is, and ends when it is told."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from raw_http import read_answer, request, serving, talk

from accoda.cli.commands import accoda
from accoda.cli.common import shown_url
from accoda.cli.serve import serve

JOBS = "/api/v1/jobs"


def accoda_serve(*words: str) -> tuple[int, str]:
    """A start that fails: its exit code, and what it says."""
    result = CliRunner().invoke(accoda, ["serve", *words])
    assert result.stdout == ""
    return result.exit_code, result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_0(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--url", f"sqlite:///{tmp_path / 'jobs.db'}") as served:
        assert talk(served.port, request("POST", JOBS, b'{"queue": "emails"}')).status == 201
        served.process.send_signal(number)
        assert served.process.wait(10) == 0
        assert served.process.stdout is not None
        assert served.process.stdout.read() == ""  # one line was all
    assert "Traceback" not in served.log.read_text()


def test_open_requests_hold_it_for_no_more_than_five_seconds(tmp_path: Path) -> None:
    with serving(tmp_path, "--url", "memory://", "--no-system-jobs") as served:
        assert "memory://" in served.log.read_text()  # a note that its jobs end with it
        with socket.create_connection(("127.0.0.1", served.port)) as slow:
            slow.sendall(request("POST", JOBS, b"", Content_Length="100"))
            talk(served.port, request("GET", "/health/live"))  # the slow one came before it
            began = time.monotonic()
            served.process.terminate()
            assert served.process.wait(10) == 0
            assert time.monotonic() - began < 7  # five, on a machine that does other things too
            answer = read_answer(slow)
    assert (answer.status, answer.open) == (503, False)
    assert "not known" in answer.detail


def test_an_app_is_served_with_its_handlers(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from accoda import App\n"
        "app = App('memory://')\n"
        "@app.handler('cards', secret=('number',))\n"
        "async def charge(card: dict) -> None: ...\n"
    )
    with serving(tmp_path, "shop:app", "--no-system-jobs") as served:
        made = talk(
            served.port, request("POST", JOBS, b'{"queue": "cards", "payload": {"number": "4111111111111111"}}')
        )
        shown = talk(served.port, request("GET", made.headers["location"]))
        assert (made.status, shown.status) == (201, 200)
        assert b"4111" not in shown.body


def test_a_port_in_use_is_said_in_a_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = accoda_serve("--url", f"sqlite:///{tmp_path / 'jobs.db'}", "--port", str(port))
    assert code == 1
    assert said == f"Error: port {port} of 127.0.0.1 is in use; choose another one with --port, or 0 for any\n"


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (
            ("--host", "x" * 70, "--no-auth"),  # no name at all, so it is not looked up
            2,
            "no address or name of this machine",
        ),
        (("--host", "203.0.113.7", "--no-auth"), 2, "no address of this machine"),
        (("--port", "70000"), 2, "--port"),
        (("--rate", "0"), 2, "rate"),
        (("--rate", "nan"), 2, "rate"),
        (("--max-body", "much"), 2, "max-body"),
        (("--max-body", "10"), 2, "max-body"),
        (("--allow-host", "http://jobs.example.com"), 2, "allow-host"),
        (("--allow-origin", "*"), 2, "allow-origin"),
        (("no.such.module:app",), 1, "no module"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(tmp_path: Path, words: tuple[str, ...], code: int, text: str) -> None:
    found, said = accoda_serve("--url", f"sqlite:///{tmp_path / 'jobs.db'}", *words)
    lines = [line for line in said.splitlines() if "--no-auth: every client" not in line]
    assert (found, len(lines)) == (code, 1), said
    assert text in lines[0]


def test_a_store_that_cannot_be_used_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("this is no database, however long it is\n" * 100)
    code, said = accoda_serve("--url", f"sqlite:///{tmp_path / 'notes.txt'}")
    assert (code, said.count("\n")) == (3, 1), said


def test_another_address_without_a_token_is_refused_with_the_commands_to_type(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    code, said = accoda_serve("--host", "0.0.0.0", "--url", url)
    assert code == 2
    assert f"accoda tokens create NAME --scope admin --url {url}" in said
    assert f"accoda serve --host 0.0.0.0 --url {url}" in said
    assert "--no-auth" in said


def test_another_address_with_a_token_is_served_to_callers_that_show_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    made = CliRunner().invoke(accoda, ["tokens", "create", "ops", "--scope", "read", "--url", url])
    with serving(tmp_path, "--host", "0.0.0.0", "--url", url, "--no-system-jobs") as served:
        assert talk(served.port, request("GET", JOBS)).status == 401
        shown: dict[str, Any] = {"Authorization": f"Bearer {made.stdout.strip()}"}
        assert talk(served.port, request("GET", JOBS, host="127.0.0.1", **shown)).status == 200
        assert talk(served.port, request("GET", JOBS, host="jobs.example.com", **shown)).status == 421


def test_without_authentication_a_warning_is_logged_at_each_start(tmp_path: Path) -> None:
    with serving(
        tmp_path, "--host", "0.0.0.0", "--no-auth", "--url", "memory://", "--allow-host", "jobs.test"
    ) as served:
        assert talk(served.port, request("GET", JOBS, host="jobs.test:80")).status == 200
        assert "WARN  http    --no-auth: every client that reaches 0.0.0.0 may do everything" in served.log.read_text()


def test_a_missing_extra_is_said_in_a_line() -> None:
    code = "import sys; sys.modules['starlette'] = None; from accoda.cli import main; sys.argv[1:] = ['serve']; main()"
    environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    ended = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "pip install 'accoda[http]'" in ended.stderr


def test_passwords_of_a_store_are_not_shown() -> None:
    assert shown_url("redis://anna:hush@db:6379/0") == "redis://anna:•••@db:6379/0"
    assert "hush" not in shown_url("postgresql://db/jobs?user=anna&password=hush&sslpassword=hush")


def test_every_option_is_in_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
    assert [option for parameter in serve.params for option in parameter.opts if f"`{option}`" not in page] == ["app"]
