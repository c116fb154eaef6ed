"""The page about schedules is true."""

import doctest
import importlib
import re
from pathlib import Path
from shlex import split
from typing import Any

import pytest
from click.testing import CliRunner
from schedule_env import START
from test_cron import between

from accoda import App
from accoda.cli.commands import accoda
from accoda.cli.draw import Surroundings
from accoda.clock import ManualClock
from accoda.handler_options import HandlerOptions
from accoda.schedules import ScheduledOptions, read_toml
from accoda.schedules.model import names_on_the_wire

PAGE = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text()


def examples() -> dict[str, Any]:
    scope: dict[str, Any] = {"__name__": "example"}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "schedules.md", "exec"), scope)
    return scope


def test_the_declarations_work() -> None:
    app: App = examples()["app"]
    assert set(app.schedules) == {"sweep", "report", "reports-weekly", "reports-monthly"}
    assert app.schedules["report"].tz == "Europe/Rome" and app.handlers["report"].options.max_attempts == 3


def test_the_example_test_passes() -> None:
    examples()["test_the_sweep_runs_every_five_minutes"]()


async def test_the_calls_print_what_their_comments_say(capsys: pytest.CaptureFixture[str]) -> None:
    scope = examples()
    async with scope["app"].testing():
        await scope["manage"]()
    assert capsys.readouterr().out.splitlines() == re.findall(r"    print\(.*\)  # (.*)\n", PAGE)


def test_the_file_can_be_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "schedules.toml").write_text(text)
    assert [schedule.name for schedule in read_toml(tmp_path / "schedules.toml")] == ["nightly", "sweep"]


def test_the_command_prints_what_the_page_shows() -> None:
    ((typed, said),) = re.findall(r"```console\n\$ accoda (.*?)\n(.*?)```", PAGE, re.DOTALL)
    words = split(typed)
    assert CliRunner().invoke(accoda, words, obj=Surroundings(ManualClock(START), 80, False)).stdout == said


def test_every_option_is_in_the_page() -> None:
    ours = ScheduledOptions.__annotations__.keys() - HandlerOptions.__annotations__.keys()
    for name in {*names_on_the_wire(), *ours} - {"source"}:
        assert f"`{name}`" in PAGE, name


@pytest.mark.parametrize(
    ("expression", "march", "october"),
    [  # moments in UTC: in March 02:00 is 01:00 UTC and is 03:00 at once; in October 02:00 is 00:00 and again 01:00 UTC
        ("30 2 * * *", ["29 01:00"], ["25 00:30"]),
        ("0,30 2 * * *", ["29 01:00"], ["25 00:00", "25 00:30"]),
        ("0 3 * * *", ["29 01:00"], ["25 02:00"]),
        ("0 * * * *", ["29 00:00", "29 01:00", "29 02:00"], ["25 00:00", "25 01:00", "25 02:00"]),
        ("*/15 2 * * *", [], [f"25 0{hour}:{minute}" for hour in (0, 1) for minute in ("00", "15", "30", "45")]),
        ("0 */2 * * *", ["29 02:00"], ["25 00:00", "25 01:00"]),
    ],
)
def test_the_table_of_clock_changes_is_true(expression: str, march: list[str], october: list[str]) -> None:
    assert f"| `{expression}` |" in PAGE
    assert between(expression, "Europe/Rome", "2026-03-29T00:00", "2026-03-29T03:00") == march
    assert between(expression, "Europe/Rome", "2026-10-25T00:00", "2026-10-25T02:30") == october


@pytest.mark.parametrize("module", ["model", "secrets", "ticks", "words"])
def test_the_doctests_pass(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"accoda.schedules.{module}"), optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0 and found.failed == 0
