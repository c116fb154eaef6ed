"""Why a payload does not fit its type, in plain words with the name of the field. Pure."""

from __future__ import annotations

import re

_WORDS = {
    "object": "a dict of fields",
    "array": "a list",
    "str": "text",
    "int": "an integer",
    "float": "a number",
    "bool": "True or False",
    "bytes": "bytes",
    "null": "None",
}


def in_words(error: Exception) -> str:
    """What msgspec's error says, as a person would.

    >>> in_words(ValueError("Expected `str`, got `null` - at `$.to`"))
    'to must be text, not None'
    >>> in_words(ValueError("Expected `int | null`, got `object` - at `$.lines[...].sum`"))
    'lines[…].sum must be an integer or None, not a dict of fields'
    >>> in_words(ValueError("Object missing required field `to`"))
    'to is missing'
    >>> in_words(ValueError("Expected `int` >= 0 - at `$.age`"))
    'age must be an integer >= 0'
    """
    text, _, place = str(error).rpartition(" - at `") if " - at `" in str(error) else (str(error), "", "")
    path = place.rstrip("`").removeprefix("$").removeprefix(".").replace("[...]", "[…]")
    field = _FIELD.fullmatch(text)
    if field is not None:
        name = f"{path}.{field[2]}" if path else field[2]
        return f"{name} is missing" if field[1] == "missing required" else f"{name} is no field of it"
    if text.startswith("Expected "):
        expected, _, found = text.removeprefix("Expected ").partition(", got ")
        text = f"must be {_plain(expected)}" + (f", not {_plain(found)}" if found else "")
        return f"{path or 'it'} {text}"
    return f"{path}: {text}" if path else text


def _plain(text: str) -> str:
    return _TYPES.sub(lambda found: " or ".join(_WORDS.get(one, one) for one in found[1].split(" | ")), text)


_FIELD = re.compile("Object (missing required|contains unknown) field `(.*)`")
_TYPES = re.compile("`([^`]*)`")
