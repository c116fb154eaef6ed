"""A seeded source of hostile bytes: junk, and good input that was damaged in the ways that find mistakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

# Openings of msgpack values whose length says far too much, and of those that few writers use.
BOMBS = (
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xdc\xff\xff",
    b"\xde\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x00",
    b"\xc7\x0c\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff",  # a moment beyond every calendar
    b"\xd4\x05\x00",
    b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",  # not a number
    b"\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00",  # infinity
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
    b"\xa2\xff\xfe",  # text that is no UTF-8
    b"\xc1",
)
_LEADS = bytes((*range(0x80, 0xE0), 0x00, 0x7F, 0xFF))
_DEEP = (b"\x91", b"\x81\xa1a", b"[", b'{"a":', b"*1\r\n", b"{")


class Source:
    """Gives one hostile input after another; the same seed gives the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self._ways: tuple[Callable[[bytes], bytes], ...] = (
            self._flip,
            self._flip,
            self._cut,
            self._swap,
            self._swap,
            self._splice_self,
            self._bomb,
            self._repeat,
        )

    def next(self, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
        """Junk now and then, else a good input with one to four damages."""
        random = self.random
        kind = random.random()
        if kind < 0.1 or not seeds:
            return random.randbytes(int(random.expovariate(1 / 60)))
        if kind < 0.1002:  # rare: it takes as long as a hundred others
            return random.choice(_DEEP) * random.choice((300, 5_000, 100_000)) + random.choice(seeds)
        data = random.choice(seeds)
        for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
            if tokens and random.random() < 0.4:
                data = self._put(data, random.choice(tokens))
            elif random.random() < 0.1:
                data = self._splice(data, random.choice(seeds))
            else:
                data = random.choice(self._ways)(data)
        return data

    def _place(self, data: bytes) -> int:
        return self.random.randrange(len(data)) if data else 0

    def _flip(self, data: bytes) -> bytes:
        if not data:
            return b"\x00"
        at = self._place(data)
        return data[:at] + bytes((data[at] ^ (1 << self.random.randrange(8)),)) + data[at + 1 :]

    def _cut(self, data: bytes) -> bytes:
        return data[: self._place(data)]

    def _swap(self, data: bytes) -> bytes:
        """Another type in the place of one."""
        at = self._place(data)
        return data[:at] + bytes((self.random.choice(_LEADS),)) + data[at + 1 :]

    def _bomb(self, data: bytes) -> bytes:
        return self._put(data, self.random.choice(BOMBS))

    def _put(self, data: bytes, piece: bytes) -> bytes:
        at = self._place(data)
        gone = self.random.choice((0, 0, 1, len(piece)))
        return data[:at] + piece + data[at + gone :]

    def _repeat(self, data: bytes) -> bytes:
        start = self._place(data)
        piece = data[start : start + self.random.randrange(1, 20)]
        return data[:start] + piece * self.random.choice((2, 3, 17)) + data[start:]

    def _splice_self(self, data: bytes) -> bytes:
        return self._splice(data, data)

    def _splice(self, data: bytes, other: bytes) -> bytes:
        return data[: self._place(data)] + other[self._place(other) :]
