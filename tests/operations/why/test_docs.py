"""The page about `why` is true."""

import re
import sys
from pathlib import Path
from shlex import split
from typing import Any, get_args

import pytest

from accoda.operations.why.records import Name

sys.path.insert(0, str(Path(__file__).parents[2] / "cli"))

from cli_world import build, visit

FILE = Path(__file__).parents[3] / "docs" / "why.md"
PAGE = FILE.read_text()


async def test_the_calls_print_what_their_comments_say(capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, Any] = {"__name__": "example"}
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "why.md", "exec"), scope)
    async with scope["app"].testing():
        await scope["ask"]()
    assert capsys.readouterr().out.splitlines() == re.findall(r"    print\(.*\)  # (.*)\n", PAGE)


def typed_and_said(prepared: Path, folder: Path) -> str:
    """The page's commands, with what they print now."""
    (block,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    with visit(prepared, folder, 80) as world:
        lines = []
        for typed in re.findall(r"^\$ accoda (.*)$", block, re.MULTILINE):
            said = world.run(*split(typed)).output
            lines.append(f"$ accoda {typed}\n" + re.sub(r"paused by \S+@\S+", "paused by anna@shop-1", said))
    return "".join(lines)


def test_the_commands_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "anna")
    monkeypatch.setattr("socket.gethostname", lambda: "shop-1")
    (tmp_path / "prepared").mkdir()
    build(tmp_path / "prepared")
    (block,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    assert typed_and_said(tmp_path / "prepared", tmp_path / "shop") == block


def test_every_gate_is_in_the_page() -> None:
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(get_args(Name))
