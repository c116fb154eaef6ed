"""The page about webhooks is true."""

import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from standardwebhooks import WebhookVerificationError
from webhook_calls import Calls, Message, Receiver

from accoda import App
from accoda.cli.webhooks import webhooks
from accoda.model import JobInfo
from accoda.webhooks import dispatcher, sender
from accoda.webhooks.call import ANSWER, BODY, KEEP_FOR, REASON, Facts, _Data
from accoda.webhooks.decide import JITTER, LONGEST_RETRY_AFTER, TRIES, pause
from accoda.webhooks.dispatcher import DispatchLimits
from accoda.webhooks.keys import rotate, show
from accoda.webhooks.log import deliveries

PAGE = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def python() -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "example"}
    for code in blocks("python"):
        exec(compile(code, "webhooks.md", "exec"), scope)
    return scope


async def delivered(calls: Calls, receiver: Receiver) -> tuple[Message, str]:
    """A message that came, and the key that was shown before it did."""
    key = (await show(calls.store, calls.clock.now())).current
    await calls.add(receiver.url, name="Ré", result=msgspec.msgpack.encode("né ✓"))
    await calls.loop().run_once(calls.store)
    return receiver.got[-1], key


async def test_the_receiver_in_python_accepts_what_is_ours_and_nothing_else(calls: Calls, receiver: Receiver) -> None:
    message, key = await delivered(calls, receiver)
    receive = python()["receive"]
    assert receive(message.body, message.headers, key) == message.json
    with pytest.raises(WebhookVerificationError):
        receive(message.body + b" ", message.headers, key)


def node(folder: Path, message: Message, key: str) -> subprocess.CompletedProcess[str]:
    (folder / "receive.mjs").write_text(blocks("js")[0])
    (folder / "message.json").write_bytes(msgspec.json.encode([message.body.decode(), message.headers, key]))
    code = (
        'import { readFileSync } from "node:fs"; import { receive } from "./receive.mjs";'
        'console.log(JSON.stringify(receive(...JSON.parse(readFileSync("message.json", "utf8")))));'
    )
    (folder / "run.mjs").write_text(code)
    return subprocess.run(["node", "run.mjs"], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


async def test_the_receiver_in_javascript_accepts_what_is_ours_and_nothing_else(
    calls: Calls, receiver: Receiver, tmp_path: Path
) -> None:
    message, key = await delivered(calls, receiver)
    good = node(tmp_path, message, key)
    assert good.returncode == 0, good.stderr
    assert msgspec.json.decode(good.stdout) == message.json
    await rotate(calls.store, calls.clock.now())
    twice, _ = await delivered(calls, receiver)
    assert " " in twice.headers["webhook-signature"] and node(tmp_path, twice, key).returncode == 0
    forged = Message(message.headers, message.body.replace(b"done", b"dead"), message.path)
    assert "not signed by us" in node(tmp_path, forged, key).stderr
    old = Message({**message.headers, "webhook-timestamp": "1700000000"}, message.body, message.path)
    assert "too old" in node(tmp_path, old, key).stderr
    assert len(blocks("js")[0].strip().splitlines()) <= 16


async def test_the_examples_in_python_run(calls: Calls, receiver: Receiver) -> None:
    scope = python()
    app: App = scope["app"]
    async with app.testing():
        await scope["order"]()
        found: list[JobInfo] = await app.storage.browse("reports", "ready")
        assert len(found) == 2


async def test_dead_calls_are_sent_again_as_the_page_says(
    calls: Calls, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver.answer = 410
    await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    scope = python()

    class Shop:
        storage = calls.store

    scope["app"] = Shop
    assert await scope["send_dead_ones_again"]() == 1
    assert receiver.url in capsys.readouterr().out
    assert [call.state for call in await deliveries(calls.store)] == ["ready"]


def test_the_message_of_the_page_has_the_fields_of_a_message() -> None:
    shown = msgspec.json.decode(blocks("json")[0])
    assert set(shown) == {"type", "timestamp", "data"}
    fields = {msgspec.structs.fields(_Data)[i].encode_name for i in range(len(_Data.__struct_fields__))}
    assert set(shown["data"]) == fields - {"reason", "notes"}
    for field in fields - {"state", "createdAt", "endedAt"}:
        assert f"`data.{field}`" in PAGE, field
    assert set(Facts.__struct_fields__) >= {"payload", "result", "reason", "secret"}


def test_the_pauses_of_the_page_are_those_of_the_code() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| pause"))
    said = [cell.strip() for cell in row.strip("|").split("|")[1:]]
    units = {"s": 1, "min": 60, "h": 3600}
    for tries, text in enumerate(said[:-1], 1):
        number, unit = text.split()
        assert abs(int(number) * units[unit] - pause(tries)) <= 0.1 * pause(tries), text
    assert len(said) == TRIES and said[-1] == "dead" and "tried ten times" in PAGE
    assert JITTER == 0.2 and "up to 20 %" in PAGE and LONGEST_RETRY_AFTER == 3600


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    options, limits = dispatcher.SenderOptions(), DispatchLimits()
    assert (options.connect, options.total, limits.at_once, limits.per_host, limits.lease) == (5, 15, 20, 4, 60)
    assert (sender.READ, sender.READ_FOR, ANSWER, BODY, REASON) == (64 << 10, 5, 500, 256 << 10, 2000)
    assert KEEP_FOR == 7 * 86_400
    table = PAGE.split("## Limits")[1].split("## ")[0]
    for text in (
        "| 5 s |",
        "| 15 s |",
        "| 20 |",
        "| 4:",
        "64 KiB",
        "at most 5 s",
        "| 500 char",
        "256 KiB",
        "2,000 char",
    ):
        assert text in table, text


def test_every_command_is_in_the_page() -> None:
    for name in webhooks.commands:
        assert name == "list" or f"accoda webhooks {name}" in PAGE, name
