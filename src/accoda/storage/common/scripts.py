"""Loads the statements that live in files beside a storage, so that SQL is read as SQL.

A file holds statements, each under a line `-- name: what_it_does`; comments below that line belong to it.
"""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def load_queries(package: str, file: str) -> dict[str, str]:
    """The statements of `file` by name."""
    parts = _NAME.split((files(package) / file).read_text(encoding="utf-8"))
    return {name: text.strip() for name, text in zip(parts[1::2], parts[2::2], strict=True)}
