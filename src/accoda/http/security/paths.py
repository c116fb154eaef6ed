"""Which paths are looked at, at all. Pure.

What two parts of a chain could read differently is refused: a proxy that forbids `/api/v1/queues/x/purge` must not be
deceived by `/api/v1/queues/y/..%2fx/purge`. Names here need none of these forms.
"""

from __future__ import annotations

import re

PLAIN = re.compile(rb"(?:/[A-Za-z0-9_~-][A-Za-z0-9_.~:@!$&'()*+,;=-]*)*/?\Z").match
_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_SLASHES = re.compile(rb"%(?:2[Ff]|5[Cc])|\\")
_DOTS = re.compile(rb"(?:/|\A)(?:\.|%2[Ee]){1,2}(?:/|\Z)")


def problem_of_path(raw: bytes, longest: int) -> str | None:
    """What is wrong with a path as it came over the wire; None: nothing.

    >>> problem_of_path(b"/api/v1/queues/emails", 2048)
    >>> problem_of_path(b"/api/v1/queues/..%2Fx", 2048)
    'a slash or backslash may not be written as an escape'
    """
    if len(raw) > longest:
        return f"is longer than {longest:,} bytes"
    if PLAIN(raw):
        return None
    if b"//" in raw:
        return "has an empty part ('//')"
    if _SLASHES.search(raw):
        return "a slash or backslash may not be written as an escape"
    if _DOTS.search(raw):
        return "has a part '.' or '..'"
    if _ESCAPE.search(raw):
        return "has a percent sign that no two hex digits follow"
    return _problem_of_text(raw)


def _problem_of_text(raw: bytes) -> str | None:
    from urllib.parse import unquote_to_bytes

    decoded = unquote_to_bytes(raw)
    if any(byte < 0x20 or byte == 0x7F for byte in decoded):
        return "has a control character"
    try:
        decoded.decode()
    except UnicodeDecodeError:
        return "is not UTF-8"
    return None
