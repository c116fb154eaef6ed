"""The files of `static/`, each also under a name with a part of its hash, which browsers may keep for ever."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib import resources

from msgspec import Struct

KINDS = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
FOREVER = "public, max-age=31536000, immutable"
ASK = "no-cache"


class File(Struct, frozen=True):
    """A file as it is sent."""

    body: bytes
    kind: str
    etag: str
    cache: str


@cache
def files() -> dict[str, File]:
    """Every file by each of its names."""
    found = {}
    for path in resources.files("accoda.dashboard").joinpath("static").iterdir():
        stem, _, ending = path.name.rpartition(".")
        if ending not in KINDS:
            continue
        body = path.read_bytes()
        mark = sha256(body).hexdigest()[:12]
        found[path.name] = File(body, KINDS[ending], f'"{mark}"', ASK)
        found[f"{stem}.{mark}.{ending}"] = File(body, KINDS[ending], f'"{mark}"', FOREVER)
    return found


@cache
def address(name: str) -> str:
    """Where a page finds a file: by the name that changes with its content."""
    stem, _, ending = name.rpartition(".")
    return f"/static/{stem}.{files()[name].etag.strip(chr(34))}.{ending}"
