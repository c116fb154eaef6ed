"""What a chart says."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def words_of(text: str) -> list[str]:
    return ["".join(each.itertext()) for each in ElementTree.fromstring(text).iter(f"{SVG}text")]


def words_in_both(folder: Path, name: str) -> list[list[str]]:
    """Those of the light and of the dark chart, of which the page of that name shows one."""
    assert f"{name}-light.svg" in (folder / f"{name}.md").read_text()
    return [words_of((folder / f"{name}-{theme}.svg").read_text()) for theme in ("light", "dark")]
