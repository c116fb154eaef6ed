"""`Mask`: the secrets of jobs, and a text or a result without them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from accoda.envelope import HIDDEN, has_names, named
from accoda.limits import TEXT
from accoda.masking.forms import SHORTEST, TOKEN, Forms, atoms, spellings, with_lines
from accoda.payload import Codec

MOST = 16_384
"""Characters in the secret fields of a job. To look for more would take too long, so every text is hidden whole."""


class Mask:
    """Hides the values of secret fields. It is made for each job, and does its work only when it is given a text."""

    def __init__(self, *jobs: _JobSecrets) -> None:
        self._jobs = jobs

    @classmethod
    def of(cls, *values: object) -> Mask:
        """The mask of what stands in the secret fields of one job.

        >>> Mask.of("4111 1111", 123).text("card 4111-1111 with 123 refused")
        'card ••• with ••• refused'
        """
        found = [leaf for value in values for leaf in _leaves(value)]
        return cls(_JobSecrets(found)) if found else NO_MASK

    @classmethod
    def union(cls, masks: Iterable[Mask]) -> Mask:
        """The mask of several jobs."""
        return cls(*(job for mask in masks for job in mask._jobs))

    @property
    def empty(self) -> bool:
        """Whether it has nothing to hide."""
        return not self._jobs

    def text(self, text: str) -> str:
        """A text that came out of a run, with the secrets in it replaced."""
        for job in self._jobs:
            text = job.masked(text)
        return text

    def value(self, value: Any) -> Any:
        """A value as JSON has it, with the secrets in its texts, keys and numbers replaced."""
        if not self._jobs or value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (int, float)):
            return value if self.text(str(value)) == str(value) else HIDDEN
        if isinstance(value, dict):
            return {self.value(key): self.value(one) for key, one in value.items()}
        return [self.value(one) for one in value] if isinstance(value, (list, tuple)) else value


NO_MASK = Mask()
"""Of a job without secrets."""


def mask_of(payload: bytes, names: Sequence[str], codec: Codec[Any] | None = None) -> Mask:
    """The mask of a stored payload, in which the fields of these names are secret.

    Where its fields have no names, any value may be the secret one. Raises `UnreadablePayload`.
    """
    if not names or not payload:
        return NO_MASK
    value = named_values(payload, names, codec)
    return Mask.of(*secret_values(value, names)) if has_names(value) else Mask.of(value)


def named_values(payload: bytes, names: Sequence[str], codec: Codec[Any] | None) -> Any:
    """The values in a stored payload: as they are stored or, where the handler's type tells the names of secret fields
    that are stored without, as the handler sees them."""
    value = _anything.decode(payload)
    if codec is None:
        return value
    try:
        typed = named(codec.decode(payload))
    except Exception:  # it does not fit the handler's type
        return value
    more = len(secret_values(typed, names)) > len(secret_values(value, names))
    return typed if more or not has_names(value) else value


def secret_values(value: Any, names: Sequence[str]) -> list[Any]:
    """What stands in the secret fields of a payload.

    >>> secret_values({"card": "4111 1111", "to": {"name": "Anna"}}, ["card"])
    ['4111 1111']
    """
    return [found for path in names for found in _at(value, path.split("."))]


class _JobSecrets:
    """The values of one job's secret fields."""

    def __init__(self, values: list[str | bytes]) -> None:
        self._values = values

    @cached_property
    def _literal(self) -> re.Pattern[str] | None:
        """The values as they are: what an escape before or after one may have changed in the forms."""
        texts = {text for value in with_lines(self._values) if isinstance(value, str) for text in spellings(value)}
        known = sorted((text for text in texts if len(text.encode(*_UTF8)) >= TOKEN), key=len, reverse=True)
        patterns = [
            re.escape(text) if len(text.encode(*_UTF8)) >= SHORTEST else rf"(?<!\w){re.escape(text)}(?!\w)"
            for text in known
        ]
        return re.compile("|".join(patterns), re.IGNORECASE) if patterns else None

    @cached_property
    def _forms(self) -> Forms:
        return Forms(self._values)

    @cached_property
    def _too_long(self) -> bool:
        return sum(map(len, self._values)) > MOST

    def masked(self, text: str) -> str:
        if len(text) < TOKEN and text.isascii():
            return text
        if self._too_long:
            return HIDDEN
        cut = len(text) >= TEXT  # then `clean` may have cut it, in the middle of a secret
        if self._literal is not None:
            text = self._literal.sub(HIDDEN, text)
        raw = text.encode(*_UTF8)
        marks = self._forms.marks(raw, cut)
        return text if marks is None else b"".join(_covered(raw, marks)).decode(*_UTF8)


def _covered(raw: bytes, marks: bytearray) -> Iterator[bytes]:
    """The text, with one `•••` for each run of what is marked."""
    at, inside = 0, False
    for atom, length in atoms(raw):
        marked = any(marks[at : at + length]) if length else inside and bool(marks[at : at + 1].strip(b"\0"))
        at += length
        if marked and not inside:
            yield HIDDEN.encode()
        elif not marked:
            yield atom
        inside = marked


def _at(value: Any, path: Sequence[str]) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for one in value:
            yield from _at(one, path)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key == path[0] or (not isinstance(key, str) and str(key) == path[0]):  # JSON has text keys only
                if len(path) == 1:
                    yield inner
                else:
                    yield from _at(inner, path[1:])


def _leaves(value: Any) -> Iterator[str | bytes]:
    if isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _leaves(one)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        yield bytes(value)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


_anything: Codec[Any] = Codec(Any)
_UTF8 = ("utf-8", "surrogatepass")
