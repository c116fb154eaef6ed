"""The page for readers of the source documents: each row names a test, and the tests and pages that it names exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SUITE = "src/accoda/testing/conformance"
PAGE = (ROOT / "docs" / "seeds.md").read_text()
REFERENCE = re.compile(r"\[(suite: )?([\w/]+\.py)::(\w+)\]")
LINK = re.compile(r"\]\(([^)#]+)(#[^)]*)?\)")


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)}


def references(text: str) -> list[tuple[str, str]]:
    found = [(f"{SUITE}/{file}" if suite else file, name) for suite, file, name in REFERENCE.findall(text)]
    return list(dict.fromkeys(found))


def rows() -> list[list[str]]:
    """The cells of each row of each table, without its head."""
    lines = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| in the", "| ---"))]
    return [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]


@pytest.mark.parametrize(("file", "name"), references(PAGE))
def test_every_named_test_is_there(file: str, name: str) -> None:
    assert name in names_in(file)


def test_every_row_says_what_where_and_which_test() -> None:
    assert len(rows()) > 100
    assert [row for row in rows() if len(row) != 3 or not references(row[2])] == []


def test_every_linked_page_is_there_with_its_heading() -> None:
    found = LINK.findall(PAGE)
    assert found
    for target, anchor in found:
        file = ROOT / "docs" / target
        assert file.exists(), target
        if anchor:
            heads = re.findall(r"^#+ (.*)$", file.read_text(), re.MULTILINE)
            slugs = {"#" + re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor in slugs, f"{target}{anchor}"
