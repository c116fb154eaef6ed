"""`accoda webhooks`."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from standardwebhooks import Webhook
from webhook_calls import Calls, Receiver

from accoda.cli.commands import accoda
from accoda.cli.draw import Surroundings
from accoda.clock import ManualClock
from accoda.storage.open import open_storage


class Shell:
    """A store in a file with some calls in it, and the command line over it."""

    def __init__(self, calls: Calls, url: str) -> None:
        self.calls = calls
        self.url = url

    async def run(self, *words: str, ends: int = 0) -> Result:
        """`accoda webhooks …`, in a thread, so that a receiver of this test can answer it."""
        around = Surroundings(self.calls.clock, 80, False)
        command = ["webhooks", *words, "--url", self.url]
        result: Result = await asyncio.to_thread(
            CliRunner().invoke, accoda, command, obj=around, prog_name="accoda", env={"NO_COLOR": "1"}
        )
        assert result.exit_code == ends, result.output
        return result

    async def json(self, *words: str, ends: int = 0) -> Any:
        return msgspec.json.decode((await self.run(*words, "--json", ends=ends)).stdout)


@pytest.fixture
async def shell(tmp_path: Path) -> AsyncIterator[Shell]:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    clock = ManualClock(time.time_ns() // 1_000_000)
    async with await open_storage(url, clock=clock) as store:
        yield Shell(Calls(store, clock), url)


async def test_the_log_is_a_table_of_80_columns(shell: Shell, receiver: Receiver) -> None:
    calls = shell.calls
    assert (await shell.run()).output == "No calls.\n"
    await calls.add(receiver.url)
    await calls.add(receiver.url + "x" * 100)
    await calls.loop().run_once(calls.store)
    receiver.answer = 503
    await calls.add(receiver.url, reason="no such user")
    await calls.loop().run_once(calls.store)
    lines = (await shell.run()).output.splitlines()
    assert lines[0].split() == ["id", "state", "status", "tries", "event", "url", "when"]
    assert [line.split()[:5] for line in lines[1:]] == [
        ["3", "delayed", "503", "1", "job.dead"],
        ["2", "done", "204", "1", "job.done"],
        ["1", "done", "204", "1", "job.done"],
    ]
    assert all(len(line) <= 80 for line in lines) and re.search(r"  in [456](\.\d)? s$", lines[1])
    assert [one["id"] for one in await shell.json("--state", "done")] == [2, 1]
    assert "--before 3" in (await shell.run("list", "--limit", "1")).output
    assert [one["id"] for one in await shell.json("list", "--before", "3", "--limit", "1")] == [2]


async def test_a_call_is_shown_with_its_message(shell: Shell) -> None:
    id = await shell.calls.add("https://example.com/", reason="no such user")
    shown = (await shell.run("show", str(id))).output
    assert shown.startswith("Call 1\n") and "https://example.com/" in shown and '"reason": "no such user"' in shown
    told = await shell.json("show", str(id))
    assert told["delivery"]["state"] == "ready" and told["message"]["type"] == "job.dead"
    told = " ".join((await shell.run("show", "99", ends=1)).output.split())
    assert "there is no webhook call '99'; delivered ones are remembered for a week" in told and "keep_for" not in told


async def test_a_call_is_sent_again(shell: Shell, receiver: Receiver) -> None:
    calls = shell.calls
    receiver.answer = 410
    id = await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    assert (await shell.run("redeliver", str(id))).output == "Call 1 is sent again.\n"
    assert "about to be" in (await shell.run("redeliver", str(id), ends=1)).output
    receiver.answer = 200
    await calls.loop().run_once(calls.store)
    assert await shell.json("redeliver", str(id)) == {"id": 2}


async def test_the_key_is_shown_and_rotated_only_when_asked(shell: Shell) -> None:
    key = (await shell.run("secret")).stdout.strip()
    assert key.startswith("whsec_")
    assert "--yes" in (await shell.run("secret", "--rotate", ends=2)).output
    assert (await shell.run("secret")).stdout.strip() == key
    told = await shell.json("secret", "--rotate", "--yes")
    assert told["key"] != key and [old["key"] for old in told["previous"]] == [key]
    after = await shell.run("secret")
    assert after.stdout.strip() == told["key"] and "An old key signs too, until" in after.stderr


async def test_a_test_message_is_signed_and_sent_through_the_guard(
    shell: Shell, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = await shell.run("test", receiver.url, ends=1)
    assert "Not delivered: 127.0.0.1 is refused" in refused.stderr and not receiver.got
    assert "port 22" in (await shell.run("test", "http://example.com:22/", ends=2)).output
    monkeypatch.setenv("ACCODA_WEBHOOK_ALLOW", "127.0.0.1")
    assert (await shell.run("test", receiver.url)).output.startswith("Delivered: HTTP 204 in ")
    [message] = receiver.got
    key = (await shell.run("secret")).stdout.strip()
    assert Webhook(key).verify(message.body, message.headers)["type"] == "webhook.test"
    receiver.answer = 500
    told = await shell.json("test", receiver.url, ends=1)
    assert (told["delivered"], told["status"]) == (False, 500)


async def test_a_wrong_list_of_what_is_allowed_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCODA_WEBHOOK_ALLOW", "10.0.0.300")
    shown = (await shell.run("test", "http://example.com/", ends=2)).output
    assert "ACCODA_WEBHOOK_ALLOW: '10.0.0.300' is no network" in shown
