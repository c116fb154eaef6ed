"""Checks a webhook's URL without resolving its name. Pure.

This is the only parser, and it is strict: whatever two parsers might understand differently (a backslash, a user before
the host, blanks) is refused, so that the host that is checked is the host that is called.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from urllib.parse import quote

from msgspec import Struct

from accoda.envelope import URL_LENGTH
from accoda.errors import InvalidInput

FIELD = "webhookUrl"
DEFAULT_PORTS = {"http": 80, "https": 443}
FIRST_FREE = 1024
"""Ports below it belong to system services; of those only 80 and 443 may be called."""
# Services that read lines, and so could mistake a part of a message for a command.
OTHER_SERVICES = frozenset({2049, 3659, 4045, 5060, 5061, 6000, 6379, 6566, 6667, 6697, 10080, 11211})

_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(#?)", re.IGNORECASE | re.DOTALL)
_PLACE = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_UNFIT = re.compile(r"[\x00-\x20\x7f-\xa0\\\u1680\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]")
_SAFE = "!$%&'()*+,/:;=?@[]~-._"


class ParsedUrl(Struct, frozen=True):
    """Where a URL leads. `host` is in lower case and ASCII, without brackets; `target` is the path and the query."""

    scheme: str
    host: str
    port: int
    target: str


def read_url(url: object) -> ParsedUrl:
    """The parts of a URL, or `InvalidInput` that says what is wrong with it.

    >>> read_url("https://Hooks.example.com/in?a=1")
    ParsedUrl(scheme='https', host='hooks.example.com', port=443, target='/in?a=1')
    """
    if type(url) is not str or not url:
        raise _wrong("must be a URL such as https://example.com/hooks")
    if len(url) > URL_LENGTH:
        raise _wrong(f"has {len(url):,} characters, and at most {URL_LENGTH:,} are allowed")
    if found := _UNFIT.search(url):
        raise _wrong(f"has a character that no URL may have, U+{ord(found[0]):04X} at {found.start() + 1}; encode it")
    parts = _URL.fullmatch(url) or _URL.match(url)
    if parts is None:
        raise _wrong("must start with https:// or http://")
    if parts[4]:
        raise _wrong("must not have a fragment (#…): it would never be sent")
    if "@" in parts[2]:
        raise _wrong("must not have a user or password before the host; put a token into the path or the query")
    scheme = parts[1].lower()
    host, port = _host_and_port(parts[2], scheme)
    target = parts[3] if parts[3].startswith("/") else f"/{parts[3]}"
    return ParsedUrl(scheme, host, port, quote(target, safe=_SAFE))


def _host_and_port(text: str, scheme: str) -> tuple[str, int]:
    found = _PLACE.fullmatch(text)
    if found is None or not found[1]:
        raise _wrong("needs a host, and after it at most a port: https://example.com:8443/hooks")
    port = int(found[2]) if found[2] else DEFAULT_PORTS[scheme]
    if not _allowed(port):
        raise _wrong(f"port {port} is not allowed: use 80, 443 or one from {FIRST_FREE} on that no other service has")
    if found[1].startswith("["):
        return _ipv6(found[1][1:-1]), port
    return _name(found[1]), port


def _allowed(port: int) -> bool:
    return port in (80, 443) or (FIRST_FREE <= port <= 65535 and port not in OTHER_SERVICES)


def _ipv6(text: str) -> str:
    try:
        if "%" in text:
            raise AddressValueError("it names an interface")
        return str(IPv6Address(text))
    except AddressValueError as error:
        raise _wrong(f"has no IPv6 address between the brackets: {error}") from None


def _name(text: str) -> str:
    """A name as in DNS. Numbers pass as names here: what they mean is up to the resolver."""
    name = (text if text.isascii() else _ascii(text)).lower()
    bare = name.removesuffix(".")
    if len(bare) > 253 or not all(_LABEL.fullmatch(label) for label in bare.split(".")):
        raise _wrong(f"{text!r:.80} is not a host name")
    return name


def _ascii(text: str) -> str:
    """An international name in the form of DNS.

    By IDNA 2008, which comes with the extra. Python's own codec only knows the rules of 2003, by which faß.de would
    become fass.de, a different domain.
    """
    try:
        import idna
    except ModuleNotFoundError:
        raise _wrong(f"write {text!r:.80} in its form for DNS (xn--…), or pip install 'accoda[webhooks]'") from None
    try:
        return idna.encode(text, uts46=True).decode()
    except idna.IDNAError as error:
        raise _wrong(f"{text!r:.80} is not a host name: {error}") from None


def _wrong(problem: str) -> InvalidInput:
    return InvalidInput(FIELD, problem)
