"""The table of other backends' tests: the cases of ours that it names exist."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
SUITE = HERE.parents[1] / "src" / "accoda" / "django" / "testing" / "conformance.py"


def test_every_case_that_the_table_names_exists() -> None:
    there = {
        name for file in (SUITE, *HERE.glob("test_*.py")) for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    rows = re.findall(r"^\| .*?`test_.*? \| (.*) \|$", (HERE / "README.md").read_text(), re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(test_\w+)`", row)}
    assert len(named) > 40
    assert named - there == set()
