"""The forms in which a value may stand in a text, and where a text has them. Pure.

Escapes are decoded in the text rather than encoded in the value: `\\u00e9`, `\\xc3\\xa9`, `%C3%A9` and `é` are the same
bytes in the *plain* form of a text, however often they were escaped and whatever is escaped beside them. Only base64
and hex, which hide where characters begin, are made of the value.

Long values are looked for in the *dense* form, which has no blanks, line ends, `+`, `-`, `_`, `/` and `|` either: so a
card number is found with other separators, a key in wrapped lines (in the traceback of a group they begin with `|`),
and the two alphabets of base64 are one.
"""

from __future__ import annotations

import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from itertools import pairwise

TOKEN = 3
"""Bytes of the shortest value that is looked for, as a whole word only. Shorter ones are in every text."""
SHORTEST = 4
"""Bytes of the shortest value that is looked for inside words too."""
PIECE = 8
"""Bytes of the shortest piece of a value that is hidden, if it has a digit. Words and other common parts (`password`,
`https://`, `@example.com`) have none, tokens, keys and card numbers nearly always have."""
LONG_PIECE = 16
"""Bytes from which on a piece is hidden without a digit as well: few words are that long."""

_ESCAPE = (
    rb"\\+u(d[89ab][0-9a-f]{2})\\+u(d[c-f][0-9a-f]{2})"  # JSON has two escapes for a character beyond U+FFFF
    rb"|\\+(?:(?-i:U)(00(?:0[0-9a-f]|10)[0-9a-f]{4})|u([0-9a-f]{4})|x([0-9a-f]{2})|([nrtbfav]))"
    rb"|%(?:25)*([0-9a-f]{2})"  # %25 is the percent sign of a text that was quoted twice
    rb"|(\\+)|(\xef\xbf\xbd)"  # U+FFFD: a NUL that a storage could not keep
)
_escapes = re.compile(_ESCAPE, re.IGNORECASE)
_atoms = re.compile(_ESCAPE + rb"|[\xc0-\xff][\x80-\xbf]*|[\x00-\xff]", re.IGNORECASE)
_CONTROLS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b"a": b"\a", b"v": b"\v"}
_BACKSLASH = 0x5C
_SEPARATORS = bytes([*range(33), *b"+-_/|\x7f"])
_line_ends = re.compile(r"(?:\\+[nr]|[\r\n])+")


class Forms:
    """All forms of some values, ready to be looked for."""

    def __init__(self, values: list[str | bytes]) -> None:
        self.words: set[bytes] = set()
        """Plain forms that count as whole words only."""
        self.short: set[bytes] = set()
        """Plain forms that count anywhere."""
        self.long: set[bytes] = set()
        """Dense forms, of which pieces count too."""
        for value in with_lines(values):
            self._add(value)
        self.grams = {form[at : at + PIECE] for form in self.long for at in range(len(form) - PIECE + 1)}

    def _add(self, value: str | bytes) -> None:
        data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
        if len(data) < TOKEN:
            return
        for form in _written(value):
            if len(dense := _dense(form)) >= PIECE:
                self.long.add(dense)
            else:
                (self.short if len(data) >= SHORTEST else self.words).add(form)
        for code in _encoded(data):
            if len(dense := _dense(code)) >= PIECE:
                self.long.add(dense)
            else:
                self.words.add(code)
        self.long.update(form for form in map(_dense, _inside_base64(data)) if len(form) >= PIECE)

    def marks(self, raw: bytes, cut: bool) -> bytearray | None:
        """Which bytes of the plain form of a text are secret; None: none.

        `cut`: the text may begin or end within a secret."""
        plain = plain_form(raw)
        dense = _dense(plain)
        short = [*_places(plain, self.short), *_words(plain, self.words), *(_cut_off(plain, self.short) if cut else ())]
        long = [*_places(dense, self.long), *self._pieces(dense), *(_cut_off(dense, self.long) if cut else ())]
        if not short and not long:
            return None
        marks = bytearray(len(plain))
        if long:
            kept = [at for at, byte in enumerate(plain) if byte not in _SEPARATORS]
            short += [(kept[start], kept[end - 1] + 1) for start, end in long]
        for start, end in short:
            marks[start:end] = b"\1" * (end - start)
        return marks

    def _pieces(self, dense: bytes) -> Iterator[tuple[int, int]]:
        """The places of pieces: where one gram of a value follows another, they are one piece."""
        grams = self.grams
        found = [at for at in range(len(dense) - PIECE + 1) if dense[at : at + PIECE] in grams] if grams else []
        breaks = [0, *(at for at, (one, next) in enumerate(pairwise(found), 1) if next - one > PIECE), len(found)]
        for first, after in pairwise(breaks):
            if first < after:
                start, end = found[first], found[after - 1] + PIECE
                if end - start >= LONG_PIECE or any(48 <= byte <= 57 for byte in dense[start:end]):
                    yield start, end


def plain_form(raw: bytes) -> bytes:
    """A text (in UTF-8) with its escapes decoded, in small letters. A `+` is a blank, as in a query string.

    >>> plain_form(rb"P\\u00e9%20x") == plain_form("pé x".encode())
    True
    """
    return _escapes.sub(_decoded, raw).lower().replace(b"+", b" ")


def atoms(raw: bytes) -> Iterator[tuple[bytes, int]]:
    """A text in characters and escapes, each with how many bytes it has in the plain form."""
    for match in _atoms.finditer(raw):
        yield match[0], len(match[0] if match.lastindex is None else _decoded(match))


def with_lines(values: list[str | bytes]) -> Iterator[str | bytes]:
    """The values, bytes that are text as text, and each line of those that have several."""
    for value in values:
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError:
                yield value
                continue
        yield value
        lines = [line.strip() for line in _line_ends.split(value)]
        if len(lines) > 1:
            yield from (line for line in lines if len(line) >= SHORTEST)


def spellings(value: str) -> set[str]:
    """The value in capitals and small letters. For ASCII letters the case never counts; others may become two."""
    return {value} if value.isascii() else {value, value.upper(), value.lower(), value.casefold(), value.title()}


def _written(value: str | bytes) -> set[bytes]:
    if isinstance(value, bytes):
        return {plain_form(value), plain_form(repr(value)[2:-1].encode())}
    # A backslash may be decoded with the letter after it, or have been encoded apart from it (`%5Cn`).
    texts = {text for one in spellings(value) for text in (one, repr(one)[1:-1], one.replace("\\", ""))}
    return {plain_form(text.encode("utf-8", "surrogatepass")) for text in texts}


def _encoded(data: bytes) -> set[bytes]:
    codes = (b64encode(data).rstrip(b"="), urlsafe_b64encode(data).rstrip(b"="), data.hex().encode())
    return {plain_form(code) for code in codes}


def _inside_base64(data: bytes) -> Iterator[bytes]:
    """The value inside a longer text in base64, where its first and last bits may share a character with others."""
    for before, first in ((0, 0), (1, 2), (2, 3)):
        code = b64encode(bytes(before) + data).rstrip(b"=")[first:].lower()
        yield code
        yield code[:-1]


def _dense(plain: bytes) -> bytes:
    return plain.translate(None, _SEPARATORS)


def _decoded(escape: re.Match[bytes]) -> bytes:
    high, low, wide, four, two, control, percent, _, nul = escape.groups()
    if high:
        point = 0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00
        return chr(point).encode()
    if wide or four:
        return chr(int(wide or four, 16)).encode("utf-8", "surrogatepass")
    if two or percent:
        byte = int(two or percent, 16)
        return b"" if byte == _BACKSLASH else bytes((byte,))
    if control:
        return _CONTROLS[control.lower()]
    return b"\0" if nul else b""  # backslashes by themselves say only how often the text was escaped


def _places(text: bytes, forms: set[bytes]) -> Iterator[tuple[int, int]]:
    for form in forms:
        at = text.find(form)
        while at >= 0:
            yield at, at + len(form)
            at = text.find(form, at + 1)


def _words(text: bytes, forms: set[bytes]) -> Iterator[tuple[int, int]]:
    for start, end in _places(text, forms):
        if not _is_letter(text[start - 1 : start]) and not _is_letter(text[end : end + 1]):
            yield start, end


def _cut_off(text: bytes, forms: set[bytes]) -> Iterator[tuple[int, int]]:
    """Where the text ends with the beginning of a form, or begins with its end."""
    for form in forms:
        for length in range(TOKEN, min(len(form), LONG_PIECE)):
            if text.endswith(form[:length]):
                yield len(text) - length, len(text)
            if text.startswith(form[-length:]):
                yield 0, length


def _is_letter(byte: bytes) -> bool:
    return byte.isalnum() or byte == b"_" or byte >= b"\x80"
