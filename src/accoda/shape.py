"""How deep and how large a msgpack value is, without building it. Pure; no I/O.

Nearly every payload is cleared by its length and by a count of the bytes that could open a list or a map, in a few
hundred nanoseconds. The others are walked, and the walk ends at the first limit that is passed: what it costs is
bounded by the limit on values, whatever the bytes say.
"""

from __future__ import annotations

from typing import Literal

Over = Literal["depth", "items", "keys"]

_LISTS = (*range(0x90, 0xA0), 0xDC, 0xDD)
_MAPS = (*range(0x80, 0x90), 0xDE, 0xDF)
# To translate by a table and count is several times faster than to delete the others.
_IS_OPENER = bytes(byte in _LISTS or byte in _MAPS for byte in range(256))
_IS_LIST = bytes(byte in _LISTS for byte in range(256))

_WHOLE = [0] * 256
"""The size of a value that needs no more than its first byte to be known; 0: see `_SIZED`, or it is a list or map."""
_SIZED = [(0, 0)] * 256
"""For texts, bytes and extensions: bytes of their length, and bytes beside length and content."""

for _byte in (*range(0x80), *range(0xE0, 0x100), 0xC0, 0xC1, 0xC2, 0xC3):
    _WHOLE[_byte] = 1
for _byte in range(0xA0, 0xC0):
    _WHOLE[_byte] = 1 + _byte - 0xA0
for _byte, _size in {0xCA: 5, 0xCB: 9, 0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9, 0xD0: 2, 0xD1: 3, 0xD2: 5, 0xD3: 9}.items():
    _WHOLE[_byte] = _size
for _power in range(5):  # extensions of 1, 2, 4, 8, 16 bytes
    _WHOLE[0xD4 + _power] = 2 + (1 << _power)
for _first, _beside in ((0xC4, 1), (0xC7, 2), (0xD9, 1)):
    for _power in range(3):
        _SIZED[_first + _power] = (1 << _power, _beside)


def over(data: bytes, depth: int, items: int, array_keys: int) -> Over | None:
    """The first limit that a value is over; None: it is within all of them, or no msgpack at all.

    >>> over(b"\\x91" * 10 + b"\\xc0", 64, 1000, 99)
    >>> over(b"\\x91" * 100 + b"\\xc0", 64, 1000, 99)
    'depth'
    """
    # A level, like a value, takes a byte at least; and each level has its own opening byte, as each key that is a list.
    # Of those more are allowed than of levels, so the count of levels is the one that matters.
    size = len(data)
    if size <= depth or (size <= items and data.translate(_IS_OPENER).count(b"\1") <= depth <= array_keys):
        return None
    return _walk(data, depth, items, array_keys)


def has_many_lists(data: bytes, limit: int) -> bool:
    """Whether there could be more lists in it than that; a text may look like one."""
    return len(data) > limit and data.translate(_IS_LIST).count(b"\1") > limit


def _walk(data: bytes, depth: int, items: int, array_keys: int) -> Over | None:
    size, at, seen = len(data), 0, 0
    left, is_map = 1, False  # values still to come in the list or map that is open, and which of the two it is
    outer: list[tuple[int, bool]] = []
    while at < size:
        while not left:
            if not outer:
                return None
            left, is_map = outer.pop()
        left -= 1
        seen += 1
        if seen > items:
            return "items"
        first = data[at]
        if step := _WHOLE[first]:
            at += step
            continue
        width, beside = _SIZED[first]
        if width:
            at += beside + width + int.from_bytes(data[at + 1 : at + 1 + width])
            continue
        # A list or a map. In a map an even number of values is to come before each key.
        if is_map and left % 2:
            array_keys -= 1
            if array_keys < 0:
                return "keys"
        outer.append((left, is_map))
        if len(outer) > depth:
            return "depth"
        is_map = first < 0x90 or first >= 0xDE
        if first < 0xA0:
            left = first & 0x0F
            at += 1
        else:
            width = 4 if first & 1 else 2
            left = int.from_bytes(data[at + 1 : at + 1 + width])
            at += 1 + width
        if is_map:
            left *= 2
    return None


def element_ends(data: bytes) -> list[int] | None:
    """Where each element of a list begins, and where the last one ends; None: it is no list. For saying what is wrong.

    The last of these may lie beyond the end of the data, which is cut off then; what follows it is not looked at.

    >>> element_ends(b"\\x93\\x01\\xa2ab\\xc4\\x09cut")
    [1, 2, 5, 16]
    """
    first = data[0] if data else 0
    if first not in _LISTS:
        return None
    at, count = (1, first & 0x0F) if first < 0xA0 else _opened(data, 0, first)
    ends = [at]
    while count and at < len(data):
        at = _end_of(data, at)
        ends.append(at)
        count -= 1
    return ends


def _end_of(data: bytes, at: int) -> int:
    """Where the value that begins there ends, if it ends within the data."""
    left = 1
    while left and at < len(data):
        left -= 1
        first = data[at]
        width, beside = _SIZED[first]
        if step := _WHOLE[first]:
            at += step
        elif width:
            at += beside + width + int.from_bytes(data[at + 1 : at + 1 + width])
        elif first < 0xA0:
            left += (first & 0x0F) * (2 if first < 0x90 else 1)
            at += 1
        else:
            at, count = _opened(data, at, first)
            left += count * (2 if first >= 0xDE else 1)
    return at + left  # what is missing takes a byte at least


def _opened(data: bytes, at: int, first: int) -> tuple[int, int]:
    """Behind the head of a long list or map, and how many elements it says to have."""
    width = 4 if first & 1 else 2
    return at + 1 + width, int.from_bytes(data[at + 1 : at + 1 + width])
