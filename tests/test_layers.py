"""Imports point downwards only: the table of docs/architecture.md, held to the code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import accoda

SOURCE = Path(accoda.__file__).parent
LAYERS = (
    {"errors", "limits", "clock", "model", "names", "shape"},
    {"storage"},
    {"priority", "retry", "payload", "envelope", "times", "enqueue", "fingerprint"}
    | {"budget", "schedules", "webhooks", "replays", "settings", "errands", "bulk", "search", "shown"},
    {"app", "sync", "connections", "trial", "runtime", "demand", "why", "history"},
    {"admin", "doctor"},
    {"cli", "http", "dashboard", "contract", "demo", "testing", "__main__"},
)
"""The parts of the package, the lowest layer first."""
HEIGHT = {part: height for height, layer in enumerate(LAYERS) for part in layer}
KNOWN = {("schedules/declare.py", "runtime")}
"""`@app.every` and `@app.cron` are part of the app; they stand beside what they declare."""


def imports_of(tree: ast.AST) -> Iterator[str]:
    """The parts of accoda that a module imports, wherever it does so, but for what only types need."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("accoda."):
            yield (node.module or "").split(".")[1]
        yield from imports_of(node)


def test_every_part_has_its_layer() -> None:
    parts = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert parts - {"__init__"} <= set(HEIGHT), "say in LAYERS where the new part belongs"


def test_no_module_imports_from_a_layer_above_its_own() -> None:
    upwards = {
        (str(path.relative_to(SOURCE)), part)
        for path in SOURCE.rglob("*.py")
        for part in imports_of(ast.parse(path.read_text()))
        if HEIGHT.get(part, 0) > HEIGHT.get(path.relative_to(SOURCE).with_suffix("").parts[0], len(LAYERS))
    }
    assert upwards == KNOWN
