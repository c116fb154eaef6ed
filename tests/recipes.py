"""A page of docs/ with examples and, under `## Recipes`, complete programs: run as they are printed."""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"


class Page:
    """One page."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (DOCS / name).read_text()
        self._first, _, self._recipes = self.text.partition("## Recipes")

    def examples(self) -> dict[str, Any]:
        """The examples before the recipes, in one scope."""
        return self._run(*_blocks(self._first))

    def recipe(self, title: str) -> dict[str, Any]:
        """A recipe, alone: it is complete."""
        (code,) = _blocks(self._recipes.partition(f"### {title}\n")[2].partition("\n##")[0])
        return self._run(code)

    def _run(self, *blocks: str) -> dict[str, Any]:
        scope: dict[str, Any] = {"__name__": "example"}
        for code in blocks:
            exec(compile(code, self.name, "exec"), scope)
        return scope


def _blocks(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)
