"""Text from outside, made safe for one line. Pure functions."""

from __future__ import annotations

import re

_NOT_ASCII = re.compile("[^\x00-\x7e]")


def one_line(text: str) -> str:
    r"""The text with every character that is not printable written as an escape.

    >>> one_line("no\nsuch \x1b[31muser")
    'no\\nsuch \\x1b[31muser'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def safe_json(text: str) -> str:
    """The same JSON, without characters that a terminal obeys or an editor takes for the end of a line.

    JSON itself escapes what is below a blank. The others stand in strings only, so an escape says the same.
    """
    return text if text.isprintable() else _NOT_ASCII.sub(_json_escape, text)


def first_line(text: str, longest: int = 200) -> str:
    """The first line that says something, of bounded length.

    >>> first_line("ValueError: no such user\\n  at line 3")
    'ValueError: no such user'
    """
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= longest else line[: longest - 1] + "…"


def plural(count: int, word: str) -> str:
    """
    >>> plural(1, "job"), plural(12000, "job"), plural(2, "batch")
    ('1 job', '12,000 jobs', '2 batches')
    """
    ending = "" if count == 1 else "es" if word.endswith("ch") else "s"
    return f"{count:,} {word}{ending}"


def short(seconds: float) -> str:
    """A length of time with the digits that matter.

    >>> short(0.00001), short(0.0004), short(0.1234), short(12.34), short(123.4)
    ('0.0001 s', '0.0004 s', '0.12 s', '12 s', '123 s')
    """
    seconds = max(seconds, 0.0001)  # what takes less is not worth more digits
    return f"{seconds:.0f} s" if seconds >= 10 else f"{float(f'{seconds:.2g}'):g} s"


def _json_escape(found: re.Match[str]) -> str:
    char = found[0]
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass")  # two of them beyond U+FFFF
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
