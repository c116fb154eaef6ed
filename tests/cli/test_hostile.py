"""Every command on a terminal, over a store full of escapes: none of them reaches the terminal."""

import asyncio
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from hostile_store import HOSTILE, SEEN, fill

from accoda.cli.commands import accoda

PATIENCE = 150.0
CHILD = Path(__file__).with_name("hostile_child.py")
KEYS = "w?q/{dead}\rqpn/{ready}\rqjq"
"""What is typed into `accoda top`: its pages, jobs, a question."""
RICH = re.compile(r"\x1b\[(?:\?25[lh]|\?1049[lh]|H|2K|\d*A|[01257](?:;[1257])*m)|\r")
"""What rich itself controls the terminal with, in bars and in `accoda top`. Nothing hostile is among it."""

COMMANDS: dict[str, list[str]] = {
    "enqueue": [
        "enqueue waits {{}} --wait",
        "enqueue emails --lines --file lines.jsonl",
        "enqueue emails --lines --file bad.jsonl",
        "enqueue H {{}}",
        "enqueue emails H",
        "enqueue emails {{}} --key H --name H",
        "enqueue emails {{}} --app hostile_import",
        "enqueue odd {{}} --app hostile_app:H",
    ],
    "jobs": ["jobs --all", "jobs --json", "jobs --state dead", "jobs --cursor H", "jobs --queue H"],
    "job show": ["job {dead}", "job {done}", "job {taken}", "job {dead} --json", "job H", "job {dead} H"],
    "job cancel": ["job {ready} cancel", "job {dead} cancel"],
    "job retry": ["job {dead} retry", "job {dead} retry --json", "job {taken} retry"],
    "job delete": ["job {dead} delete"],
    "job priority": ["job {ready} priority LOW --json", "job {ready} priority H"],
    "job result": ["job {done} result", "job {dead} result", "job {taken} result"],
    "job follow": ["job {dead} follow", "job {done} follow", "job {dead} follow --json"],
    "why": ["why {dead}", "why {ready}", "why {delayed}", "why {taken}", "why {paused}", "why {dead} --json",
            "why hostile/next", "why hostile/H", "why H/next"],
    "flows list": ["flows", "flows --json", "flows --name H", "flows --cursor H", "flows --state H"],
    "flows retry": ["flows retry H", "flows retry hostile"],
    "flows cancel": ["flows cancel H", "flows cancel hostile"],
    "flows close": ["flows close H", "flows close hostile"],
    "flow": ["flow hostile", "flow hostile --all", "flow hostile --json", "flow H"],
    "dead list": ["dead", "dead --json"],
    "dead groups": ["dead groups", "dead groups --json"],
    "dead replay": ["dead replay --dry-run", "dead replay"],
    "dead delete": ["dead delete", "dead delete --fingerprint H"],
    "queues list": ["queues --all", "queues --json"],
    "queues show": ["queues paused", "queues H"],
    "queues pause": ["queues emails pause --note H", "queues emails pause --for H"],
    "queues resume": ["queues paused resume"],
    "queues purge": ["queues emails purge --state dead"],
    "lanes": ["lanes emails", "lanes H", "lanes emails --lane H --limit 1"],
    "budgets list": ["budgets", "budgets --json"],
    "budgets show": ["budgets keepa", "budgets H"],
    "budgets log": ["budgets keepa log", "budgets H log", "budgets keepa log --json"],
    "demands list": ["demands", "demands --json"],
    "demands show": ["demands deals", "demands H"],
    "demands request": ["demands deals request H H", "demands H request a b", "demands deals request a b --data H"],
    "demands leave": ["demands deals leave H H", "demands H leave a b"],
    "demands waiters": ["demands deals waiters books", "demands deals waiters H"],
    "schedules list": ["schedules", "schedules --json"],
    "schedules show": ["schedules show daily", "schedules show H"],
    "schedules add": ["schedules add other --cron H", "schedules add H --every 1h"],
    "schedules pause": ["schedules pause daily", "schedules pause daily --json"],
    "schedules resume": ["schedules resume daily"],
    "schedules trigger": ["schedules trigger daily"],
    "schedules delete": ["schedules delete daily", "schedules delete H"],
    "schedules apply": ["schedules apply schedules.toml", "schedules apply H"],
    "schedules check": ["schedules check H"],
    "webhooks list": ["webhooks", "webhooks --json"],
    "webhooks show": ["webhooks show {buried call}", "webhooks show {made call}", "webhooks show {made call} --json"],
    "webhooks redeliver": ["webhooks redeliver {buried call}", "webhooks redeliver {ready}"],
    "webhooks secret": ["webhooks secret --rotate"],
    "webhooks test": ["webhooks test H", "webhooks test RECEIVER"],
    "worker": [
        "worker hostile_app:app --burst --no-system-jobs",
        "worker hostile_app:app --burst --log-format json",
        "worker hostile_import",
        "worker hostile_app:app -q H",
    ],
    "serve": ["serve --no-auth", "serve H"],
    "top": ["top", "top --once", "top --json"],
    "workers list": ["workers", "workers --json"],
    "workers drain": ["workers drain w1", "workers drain H"],
    "workers undrain": ["workers undrain w1"],
    "doctor": ["doctor", "doctor --json", "doctor --url H"],
    "migrate": ["migrate sqlite:///other.db", "migrate H"],
    "settings": [
        "settings --settings settings.toml",
        "settings --settings settings.toml --json",
        "settings --service H",
    ],
    "tokens list": ["tokens", "tokens --json"],
    "tokens create": ["tokens create good --scope read", "tokens create H --scope read"],
    "tokens revoke": ["tokens revoke 0123456789", "tokens revoke H"],
    "completion": ["completion bash", "completion H"],
    "generate": ["generate good.yaml --out made", "generate bad.yaml --out made", "generate good.yaml --out H"],
    "contract check": ["contract check bad.yaml", "contract check bad.yaml --json", "contract check H"],
    "contract diff": ["contract diff good.yaml bad.yaml", "contract diff H bad.yaml"],
    "contract export": ["contract export hostile_app:app", "contract export hostile_import"],
    "contract schema": ["contract schema"],
}  # fmt: skip
"""How each command is run. H is the hostile text, {dead} the id of a dead job."""
SHOWS_NOTHING_OF_OTHERS = {
    "job cancel", "job delete", "queues list", "queues resume", "queues purge", "schedules resume", "schedules trigger",
    "demands list", "workers undrain", "webhooks secret", "webhooks redeliver", "contract schema",
}  # fmt: skip


class Ran(NamedTuple):
    words: str
    code: str
    said: str


def leaves(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command of the tree by its path."""
    if not isinstance(command, click.Group):
        yield " ".join(path)
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*path, name))


def test_every_command_is_run_over_the_hostile_store() -> None:
    assert set(leaves(accoda)) == set(COMMANDS), "say above how a new command is run"


def typed(line: str, ids: dict[str, int]) -> list[str]:
    """The words of a line, with the ids and the hostile text in their places."""
    words = re.sub(r"\{([a-z ]+)\}", lambda found: str(ids[found[1]]), line).replace("{{}}", "{}").split(" ")
    return [re.sub(r"(?<![A-Za-z])H$", lambda _: HOSTILE.replace(" ", ""), word) for word in words]


def on_a_terminal(folder: Path, keys: str) -> str:
    """All that the child writes on its terminal. Questions are answered with yes, and `top` gets its keys."""
    master, slave = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("ACCODA_", "_ACCODA"))}
    environ |= {"NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "100", "LINES": "40", "PYTHONUTF8": "1"}
    environ |= {"ACCODA_WEBHOOK_ALLOW": "127.0.0.1", "ACCODA_URL": f"sqlite:///{folder}/work/accoda.db"}
    child = subprocess.Popen(
        [sys.executable, str(CHILD), str(folder)], stdin=slave, stdout=slave, stderr=slave, env=environ
    )
    os.close(slave)
    said, answered, until = b"", 0, time.monotonic() + PATIENCE
    try:
        while time.monotonic() < until:
            if not select.select([master], [], [], 1.0)[0]:
                continue
            try:
                said += os.read(master, 65536)
            except OSError:  # the last process on the terminal has gone
                break
            for asked, answer in ((b"[y/N]: ", "y\n"), (b"\x1b[?1049h", keys)):
                while (at := said.find(asked, answered)) >= 0:
                    answered = at + len(asked)
                    os.write(master, answer.encode())
        else:
            pytest.fail(f"it does not end: {said[-2000:].decode()!r}")
        assert child.wait(10) == 0, said[-3000:].decode()
    finally:
        child.kill()
        child.wait()
        os.close(master)
    return said.decode()


def unsafe(text: str, path: str) -> set[str]:
    """What a terminal would obey."""
    rich = path in ("top", "enqueue", "queues purge", "dead replay", "dead delete")
    text = (RICH.sub("", text) if rich else text).replace("\r\n", "\n")
    return {
        repr(text[at : at + 12])
        for at, char in enumerate(text)
        if char != "\n" and unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")
    }


@pytest.mark.timeout(300)
def test_no_command_passes_an_escape_to_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    ids = asyncio.run(fill(tmp_path / "store"))
    lines = [(path, line) for path, lines in COMMANDS.items() for line in lines]
    (tmp_path / "commands.json").write_text(json.dumps([typed(line, ids) for _, line in lines]))
    said = on_a_terminal(tmp_path, KEYS.format_map(ids))
    ends = re.split(r"\r?\n<<(\d+) (.*?)>>\r?\n", said)
    ran = [Ran(line, code, text) for (_, line), text, code in zip(lines, ends[::3], ends[2::3], strict=False)]
    assert len(ran) == len(lines), said[-3000:]
    bad = [
        (one.words, unsafe(one.said, path), one.said[-1500:])
        for (path, _), one in zip(lines, ran, strict=True)
        if unsafe(one.said, path)
    ]
    assert bad == []
    shown = {path for (path, _), one in zip(lines, ran, strict=True) if SEEN in one.said}
    assert set(COMMANDS) - shown == SHOWS_NOTHING_OF_OTHERS
    assert not [one for one in ran if re.search("(?m)^Traceback", one.said) or one.code == "did not exit"]
