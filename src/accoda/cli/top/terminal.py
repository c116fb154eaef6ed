"""Keys, one at a time, as a terminal sends them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from accoda.errors import InvalidInput

_SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page-up",
    "\x1b[6~": "page-down",
    "\x1b[H": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1b[4~": "end",
}
_SINGLE = {"\x1b": "escape", "\r": "enter", "\n": "enter", "\x7f": "backspace", "\x08": "backspace", "\x03": "ctrl-c"}


def keys_of(text: str) -> list[str]:
    """The keys in what a terminal sent at once; a sequence that means nothing to us is passed over.

    >>> keys_of("j\\x1b[B\\r\\x1b[13;2~q"), keys_of("\\x1b")
    (['j', 'down', 'enter', 'q'], ['escape'])
    """
    keys: list[str] = []
    while text:
        if len(text) > 1 and text[0] == "\x1b" and text[1] in "[O":
            end = next((i for i, char in enumerate(text[2:], 3) if "@" <= char <= "~"), len(text))
            known = _SEQUENCES.get(text[:end])
            keys += [known] if known else []
        else:
            end = 1
            keys.append(_SINGLE.get(text[0], text[0]))
        text = text[end:]
    return keys


@contextmanager
def keyboard() -> Iterator[asyncio.Queue[str]]:
    """The keys that are pressed from now on, unseen; afterwards the terminal is as it was."""
    try:
        import termios
        import tty
    except ModuleNotFoundError:
        raise InvalidInput("terminal", "keys cannot be read on this system; use: accoda top --once") from None
    loop, file = asyncio.get_running_loop(), sys.stdin.fileno()
    pressed: asyncio.Queue[str] = asyncio.Queue()

    def read() -> None:
        try:
            sent = os.read(file, 1024)
        except OSError:
            sent = b""
        if not sent:
            loop.remove_reader(file)
            pressed.put_nowait("ctrl-c")
        for key in keys_of(sent.decode(errors="replace")):
            pressed.put_nowait(key)

    before = termios.tcgetattr(file)
    tty.setcbreak(file)
    loop.add_reader(file, read)
    try:
        yield pressed
    finally:
        loop.remove_reader(file)
        termios.tcsetattr(file, termios.TCSADRAIN, before)
