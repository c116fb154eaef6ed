"""docs/cli.md is what the commands print, in 80 columns."""

import re
from difflib import unified_diff
from itertools import islice
from pathlib import Path

import pytest
from cli_masks import masked
from cli_page import PAGE, REGENERATE, page, undocumented

from accoda.cli.draw import columns_of

WHOLE = {
    "a record of a log": re.compile(r"\d\d:\d\d:\d\d (DEBUG|INFO|WARN|ERROR) "),
    "a traceback in a log": re.compile(r"    \| "),
    "JSON": re.compile(r'\s*["{[]'),
    "one word": re.compile(r"\s*\S+$"),
    "the script of a shell": re.compile(r" +(IFS|response)="),
}
"""What no line end may be put into."""


@pytest.fixture(scope="module")
def text(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(prepared, tmp_path_factory.mktemp("page"))


def test_the_page_is_what_the_commands_print(text: str) -> None:
    changed = "\n".join(islice(unified_diff(masked(PAGE.read_text()), masked(text), "page", "now", n=1), 40))
    assert not changed, f"docs/cli.md is out of date; run: {REGENERATE}\n{changed}"


def test_everything_printed_fits_80_columns(text: str) -> None:
    printed = "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL)).splitlines()
    long = [line for line in printed if columns_of(line) > 80 and not line.startswith("$ ")]
    assert [line for line in long if not any(kind.match(line) for kind in WHOLE.values())] == []


def test_nothing_printed_is_a_traceback_or_a_colour(text: str) -> None:
    assert not re.search("(?m)^Traceback", text), "those in the log of a worker are its handler's, and indented"
    assert "\x1b" not in text and "\t" not in text


def test_every_command_has_an_example() -> None:
    assert undocumented() == []
