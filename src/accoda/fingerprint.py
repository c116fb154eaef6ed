"""What failures have in common: a reason without its numbers, ids, quoted texts and addresses."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256

LOOKED_AT = 2000
"""Characters of a reason that count. A traceback's end is cut off before the regular expressions see it."""

# One pass for each, in this order: what is quoted first, since anything may stand in quotes. Each is linear: no two
# parts of a pattern can match the same text, so there is nothing to try again.
_RULES = tuple(
    (re.compile(pattern), stands_for)
    for pattern, stands_for in (
        (r"(?<!\w)'[^'\n]*'(?!\w)|(?<!\w)\"[^\"\n]*\"(?!\w)|`[^`\n]*`|«[^»\n]*»|“[^”\n]*”", "<text>"),
        (r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s<>]+", "<url>"),
        (r"[\w.+-]{1,64}@[\w.-]{1,255}", "<address>"),
        (r"(?<![\w/])(?:/[\w.@~+-]+){2,}", "<path>"),
        (r"\b[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b", "<id>"),
        (r"\b0[xX][0-9A-Fa-f]+\b", "<id>"),
        (r"\[?(?:[0-9A-Fa-f]{1,4}:){2,7}:?[0-9A-Fa-f:.]*\]?(?::\d+)?", "<address>"),
        (r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b", "<address>"),
        (r"\b(?=[0-9A-Za-z_-]{0,64}\d)[0-9A-Za-z_-]{12,}\b", "<id>"),
        (r"[-+]?\d+(?:[.,:_-]\d+)*", "<n>"),
        (r"\s+", " "),
    )
)
_GIVEN_UP = re.compile(r"^failed(?: \d+ times, the last time with|:) ")


def gist(reason: str) -> str:
    """What is left of a reason when all that differs from job to job is taken out.

    >>> gist("TimeoutError: no answer from 10.0.0.7:443 after 30.5 s (request 'a91f')")
    'TimeoutError: no answer from <address> after <n> s (request <text>)'
    """
    text = _GIVEN_UP.sub("", reason[:LOOKED_AT])
    for pattern, stands_for in _RULES:
        text = pattern.sub(stands_for, text)
    return text.strip()


@lru_cache(maxsize=4096)
def fingerprint(reason: str) -> str:
    """12 hex digits that jobs which failed of the same cause share.

    >>> fingerprint("no user 7") == fingerprint("no user 8") != fingerprint("no order 8")
    True
    """
    return sha256(gist(reason).encode("utf-8", "replace")).hexdigest()[:12]
