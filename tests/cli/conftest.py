"""Lets the tests of this folder share `cli_world` and `cli_page`."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from cli_world import World, build, visit


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store in which every kind of job is. It is copied for each test."""
    folder = tmp_path_factory.mktemp("shop")
    build(folder)
    return folder


@pytest.fixture
def world(prepared: Path, tmp_path: Path) -> Iterator[World]:
    with visit(prepared, tmp_path / "shop") as world:
        yield world
