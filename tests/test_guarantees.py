"""The page of promises names a test for each of them, and each of those tests is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SUITE = "src/accoda/testing/conformance"
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
REFERENCE = re.compile(r"\[(suite: )?([\w/]+\.py)::(\w+)\]")


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)}


def references(text: str) -> list[tuple[str, str]]:
    return [(f"{SUITE}/{file}" if suite else file, name) for suite, file, name in REFERENCE.findall(text)]


@pytest.mark.parametrize(("file", "name"), references(PAGE))
def test_every_named_test_is_there(file: str, name: str) -> None:
    assert name in names_in(file)


def test_every_promise_names_a_test() -> None:
    promises = PAGE.split("## An acknowledged enqueue")[1].split("## What it does not promise")[0]
    items = re.findall(r"^- .*?(?=^- |^#|^\*\*|\Z)", promises, re.MULTILINE | re.DOTALL)
    assert len(items) > 20
    assert [item for item in items if not references(item)] == []
