"""Text from outside, made safe for one line. Pure functions."""

from __future__ import annotations

import re

# What a terminal obeys or an editor takes for the end of a line, beyond what JSON itself escapes.
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u2028\u2029]")


def one_line(text: str) -> str:
    r"""The text with every character that is not printable written as an escape.

    >>> one_line("no\nsuch \x1b[31muser")
    'no\\nsuch \\x1b[31muser'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def safe_json(text: str) -> str:
    """The same JSON, without characters that move a cursor. They stand in strings only, so an escape says the same."""
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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

    >>> short(0.0004), short(0.1234), short(12.34), short(123.4)
    ('0.0004 s', '0.12 s', '12 s', '123 s')
    """
    return f"{seconds:.0f} s" if seconds >= 10 else f"{float(f'{seconds:.2g}'):g} s"
