"""Imports point downwards, TYPE_CHECKING and imports inside functions included, and nowhere in a circle."""

import ast
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "accoda"

LAYERS = {
    "model": "errors limits clock model names shape times fingerprint",
    "storage": "storage",
    "meaning": "priority retry payload misfit pydantic_models envelope masking enqueue handler_options queue_access "
    "budget demand schedules webhooks flows lanes transactions",
    "runtime": "runtime connections settings",
    "operations": "operations",
    "app": "app sync app_testing",
    "interfaces": "cli service dashboard http asgi django contract testing pytest_plugin __main__",
}
"""From the lowest to the highest. Each word is a module or package of `accoda`."""

LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names.split()}
ORDER = list(LAYERS)


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imported(name: str, path: Path) -> Iterator[tuple[int, str]]:
    """The modules of ours that a module imports anywhere in its text, each with the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            # `from accoda.budget import books` may mean a module or a name in one.
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            assert not isinstance(node, ast.ImportFrom) or not node.level, f"{path}: a relative import"
            continue
        for target in names:
            found = target if target in modules() else target.rpartition(".")[0]
            if found in modules() and found != name and target.partition(".")[0] == "accoda":
                yield node.lineno, found


@cache
def graph() -> dict[str, dict[str, int]]:
    """Which module imports which, and in which line."""
    return {name: {target: line for line, target in imported(name, path)} for name, path in modules().items()}


def part(module: str) -> str:
    """The module or package right below `accoda` in which a module is."""
    return module.split(".")[1] if "." in module else module


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected parts of a graph that have more than one node (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in edges.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            members = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(members) > 1:
                found.append(sorted(members))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def test_every_module_has_a_layer() -> None:
    parts = {part(name) for name in modules()} - {"accoda"}
    assert parts == set(LAYER_OF), "add what is new to LAYERS, and take out what is gone"


@pytest.mark.parametrize("name", sorted(LAYER_OF))
def test_imports_point_downwards(name: str) -> None:
    mine = ORDER.index(LAYER_OF[name])
    upwards = [
        f"{module}:{line} imports {target}"
        for module, targets in graph().items()
        if part(module) == name
        for target, line in targets.items()
        if target == "accoda" or ORDER.index(LAYER_OF[part(target)]) > mine
    ]
    # The interfaces and the app may import the public names.
    assert [one for one in upwards if mine < ORDER.index("app") or not one.endswith("imports accoda")] == []


def test_no_module_imports_itself_by_a_detour() -> None:
    assert circles({name: set(targets) - {"accoda"} for name, targets in graph().items()}) == []


def test_no_package_imports_itself_by_a_detour() -> None:
    edges: dict[str, set[str]] = {}
    for name, targets in graph().items():
        edges.setdefault(part(name), set()).update(part(target) for target in targets if target != "accoda")
    for name, parts in edges.items():
        parts.discard(name)
    assert circles(edges) == []


def test_the_layers_of_the_architecture_page_are_these() -> None:
    page = (SOURCE.parents[1] / "docs" / "architecture.md").read_text()
    named = [line.split()[0] for line in page.splitlines() if line.split()[:1] and line.split()[0] in LAYERS]
    top_down = [layer for layer, _ in groupby(named)]
    assert [layer for layer in top_down if layer in ORDER][: len(ORDER)] == ORDER[::-1]
