"""Masks what differs from run to run and from machine to machine, before two pages are compared.

The page shows one real run. Helps and the commands that are not named here are compared to the letter.
"""

import re
from collections.abc import Callable, Iterator

Mask = Callable[[list[str]], list[str]]

BLANKS = re.compile(r" {2,}")
NUMBERS = re.compile(r"\d[\d.,:]*")
BARS = re.compile(r"[█·]+")
TOKEN = re.compile(r"\bacc_\w+")
TOKEN_ID = re.compile(r"\b[0-9a-f]{10}\b")
KEY = re.compile(r"whsec_\S+")
WORKER = re.compile(r"\S+-\d+-[0-9a-f]{6}\b")
ROW = re.compile(r"(ok|note|warning|problem) +(.*?)(  |$)")
COUNTS = re.compile(r"(\d+ (problem|warning|note)s?(, )?)+\.|All is well\.")

OF_THE_MACHINE = ("disk", "file system")
"""Findings of the doctor about this machine; how many there are in sum depends on them."""


def masked(page: str) -> list[str]:
    """The lines of a page, without what may differ."""
    told: list[str] = []
    for chapter, lines in _parts(page):
        typed = lines[1] if len(lines) > 1 else ""
        shown = lines if typed.endswith("--help") or chapter not in MASKS else MASKS[chapter](lines)
        told += shown
    return told


def _parts(page: str) -> Iterator[tuple[str, list[str]]]:
    """Each block of a console, and each stretch between two, with the command that the chapter is about."""
    chapter, part = "", list[str]()
    for line in page.splitlines():
        if line == "```console":
            yield "", part
            part = []
        part.append(line)
        if line.startswith("### accoda "):
            chapter = line.removeprefix("### accoda ")
        if line == "```":
            yield chapter, part
            part = []
    yield "", part


def _figures(lines: list[str]) -> list[str]:
    """Rates, times, ports and sizes; a bar is as long as its rate, and blanks are as many as the rate leaves."""
    alike = (NUMBERS.sub("N", BARS.sub("BAR", WORKER.sub("WORKER", line))) for line in lines)
    return [BLANKS.sub(" ", line).strip() for line in alike]


def _secrets(lines: list[str]) -> list[str]:
    return [TOKEN_ID.sub("ID", TOKEN.sub("TOKEN", KEY.sub("KEY", line))) for line in lines]


def _doctor(lines: list[str]) -> list[str]:
    kept, keep = list[str](), True
    for line in lines:
        row = ROW.match(line)
        keep = row[2] not in OF_THE_MACHINE if row else keep or not line.startswith(" ")
        if keep and not COUNTS.fullmatch(line):
            kept.append(line)
    return _figures(kept)


MASKS: dict[str, Mask] = {
    "doctor": _doctor,
    "serve": _figures,
    "tokens": _secrets,
    "webhooks": _secrets,
    "worker": _figures,
}
