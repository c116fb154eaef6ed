"""Pieces of Python source, laid out as `ruff format` lays them out in 120 columns. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

WIDTH = 120


def literal(value: object) -> str:
    """A value as code.

    >>> literal("it's"), literal('say "no"'), literal(b"x"), literal([1, "a"]), literal(2.0), literal(None)
    ('"it\\'s"', '\\'say "no"\\'', 'b"x"', '[1, "a"]', '2.0', 'None')
    """
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bytes):
        return "b" + _quoted("".join(map(chr, value)), ascii_only=True)
    if isinstance(value, list):
        return "[" + ", ".join(map(literal, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{literal(key)}: {literal(each)}" for key, each in value.items()) + "}"
    return repr(value)


def _quoted(text: str, *, ascii_only: bool = False) -> str:
    """Double quotes, unless single ones need fewer escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    inner = "".join(_escaped(letter, quote, ascii_only) for letter in text)
    return f"{quote}{inner}{quote}"


def _escaped(letter: str, quote: str, ascii_only: bool) -> str:
    if letter in (quote, "\\"):
        return "\\" + letter
    if ascii_only and ord(letter) > 126:
        return f"\\x{ord(letter):02x}"
    # `repr` of a letter that is no quote: itself, or its escape
    return letter if letter in "'\"" else repr(letter)[1:-1]


def docstring(text: str, indent: int = 0) -> list[str]:
    """A text in lines that fit, without anything that could end it or disturb a terminal."""
    pad = " " * indent
    words = "".join(letter if letter.isprintable() else " " for letter in " ".join(text.split()))
    words = words.replace("\\", "/").replace('"', "'")
    lines = wrap(words, WIDTH - indent - 6, break_on_hyphens=False) or ["…"]
    if len(lines) == 1:
        return [f'{pad}"""{lines[0]}"""']
    return [f'{pad}"""{lines[0]}', *(pad + line for line in lines[1:]), f'{pad}"""']


def call(before: str, arguments: Sequence[str], after: str = "", *, indent: int = 0, split: bool = False) -> list[str]:
    """`before(arguments)after` in one line if it fits and need not be split, or else a line for each argument."""
    pad = " " * indent
    line = f"{pad}{before}({', '.join(arguments)}){after}"
    if len(line) <= WIDTH and not split:
        return [line]
    return [f"{pad}{before}(", *(f"{pad}    {argument}," for argument in arguments), f"{pad}){after}"]


def nested(argument: str, value: object, indent: int) -> str:
    """`argument` of a call whose arguments are indented so far, with a dictionary that does not fit into the line in
    a line for each of its entries. It may have several lines."""
    if not isinstance(value, dict) or indent + len(argument) + len(literal(value)) + 1 <= WIDTH:
        return argument + literal(value)
    pad = " " * indent
    entries = [f"{pad}    {literal(key)}: {literal(each)},\n" for key, each in value.items()]
    return f"{argument}{{\n{''.join(entries)}{pad}}}"


def signature(name: str, parameters: Sequence[str], returns: str, *, indent: int = 0) -> list[str]:
    """The head of a function: in one line, with its parameters in a second one, or with a line for each."""
    pad = " " * indent
    inner = ", ".join(parameters)
    line = f"{pad}{name}({inner}) -> {returns}:"
    if len(line) <= WIDTH:
        return [line]
    if len(pad) + 4 + len(inner) <= WIDTH:
        return [f"{pad}{name}(", f"{pad}    {inner}", f"{pad}) -> {returns}:"]
    return call(name, parameters, f" -> {returns}:", indent=indent, split=True)


def condition(checks: Sequence[str], indent: int = 0) -> list[str]:
    """`if a and b:`, in lines that fit."""
    pad = " " * indent
    line = f"{pad}if {' and '.join(checks)}:"
    if len(line) <= WIDTH:
        return [line]
    first, *rest = checks
    return [f"{pad}if (", f"{pad}    {first}", *(f"{pad}    and {check}" for check in rest), f"{pad}):"]


def tuple_of(before: str, values: Sequence[str], indent: int = 0) -> list[str]:
    """`before(values)` as a tuple."""
    if len(values) == 1:
        return [f"{' ' * indent}{before}({values[0]},)"]
    return call(before, values, indent=indent)


def imports(module: str, names: Sequence[str]) -> list[str]:
    names = ordered(names)
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return [line]
    return [f"from {module} import (", *(f"    {name}," for name in names), ")"]


def ordered(names: Sequence[str]) -> list[str]:
    """The order of imports and `__all__`: constants, classes, then the rest, each alphabetically."""
    return sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), _natural(name.lower()), name))


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Numbers in names are compared as numbers: `a2` is before `a10`."""
    parts: list[tuple[int, int | str]] = []
    digits = ""
    for letter in name + "\0":
        if letter.isdigit():
            digits += letter
            continue
        if digits:
            parts.append((0, int(digits)))
            digits = ""
        parts.append((1, letter))
    return parts


def module(about: str, source: str, *blocks: Sequence[str]) -> str:
    """A file: its docstring, its imports, then blocks separated by two empty lines."""
    name = "".join(letter for letter in source if letter.isprintable() and letter not in '\\"`')
    head = [f'"""{about}', "", f"Written by `accoda generate` from {name}; change that, and generate again.", '"""', ""]
    first, *rest = ["\n".join(block) for block in blocks]
    return "\n".join([*head, first]) + "".join(f"\n\n\n{block}" for block in rest) + "\n"
