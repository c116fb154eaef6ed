"""The verbs as Lua, one file each, put together with the parts that their headers name.

A header tells what the verb does, its keys, its arguments and its answer; a test holds it to its caller.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files

from msgspec import Struct

_FIELD = re.compile(r"^-- (keys|arguments|answer|uses): +(.*)$", re.MULTILINE)


class Script(Struct, frozen=True):
    """A verb: its text for the server, and the name under which the server remembers it."""

    name: str
    source: bytes
    sha: bytes
    header: dict[str, str]


@cache
def script(name: str) -> Script:
    """The script of a verb."""
    text = _read(f"{name}.lua")
    header = dict(_FIELD.findall(text))
    parts = [_read(f"parts/{part}.lua") for part in header["uses"].split()]
    source = _without_comments("".join([*parts, text])).encode()
    return Script(name, source, sha1(source).hexdigest().encode(), header)


def all_scripts() -> list[str]:
    """The names of all verbs."""
    folder = files("accoda.storage.redis") / "lua"
    return sorted(entry.name[:-4] for entry in folder.iterdir() if entry.name.endswith(".lua"))


def _read(path: str) -> str:
    return (files("accoda.storage.redis") / "lua" / path).read_text(encoding="utf-8")


def _without_comments(text: str) -> str:
    """Whole lines of comment are for readers; the server need not keep them."""
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--")) + "\n"
