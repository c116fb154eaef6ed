"""Bearer tokens: made, listed, revoked, and recognised. `acc_{id}_{secret}`.

A token is a document `tokens/{id}`. The id is public: it stands in lists and logs. The secret is shown once, when it is
made; what is stored is its SHA-256.

Why a plain SHA-256, with no salt and no slow hash: both are for secrets that people think of. A salt makes equal
passwords differ and tables of common ones useless; a slow hash makes each guess dear. This secret is 32 random bytes.
No two are equal, no table holds one in 2^256, and no number of guesses is large enough to matter, so neither would add
anything, while a slow hash would let any client keep the service busy with nonsense.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping
from hashlib import sha256

import msgspec
from msgspec import Struct

from accoda.errors import InvalidInput, VersionConflict
from accoda.http.security.identity import Identity, check_scopes, implied
from accoda.model import Document, check_queue, clean
from accoda.names import is_system
from accoda.storage.protocol import Storage

PREFIX = "tokens/"
USES = "token-uses/"
NAME_LENGTH = 100
MOST_QUEUES = 100
ID_LENGTH = 10
SECRET_LENGTH = 43  # 62^43 > 2^256
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Token(Struct, frozen=True, kw_only=True):
    """What is known of a token. `hash` is of its secret; moments are milliseconds since the epoch.

    `queues` are those that it is limited to; none: it is for all of them.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    hash: bytes
    created_at: int
    queues: tuple[str, ...] = ()
    expires_at: int | None = None
    used_at: int | None = None

    def expired(self, now: int) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    @property
    def identity(self) -> Identity:
        return Identity(self.name, implied(self.scopes), self.id, frozenset(self.queues) or None)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Token)
_DECOY = bytes(32)
"""Compared with where there is no such id. It is the hash of no known text."""


async def create(
    store: Storage,
    name: str,
    scopes: Iterable[str],
    *,
    now: int,
    queues: Iterable[str] = (),
    expires_at: int | None = None,
) -> tuple[Token, str]:
    """Make a token; give its record and its text, which is never shown again. No `queues`: it is for all of them."""
    if type(name) is not str or not 0 < len(name) <= NAME_LENGTH or not name.isprintable() or clean(name) != name:
        raise InvalidInput("name", f"must be 1 to {NAME_LENGTH} printable characters, not {name!r:.60}")
    wanted, limited_to = check_scopes(scopes), _check_queues(queues)
    if expires_at is not None and expires_at <= now:
        raise InvalidInput("expires", "must lie in the future")
    while True:
        id, secret = secrets.token_hex(ID_LENGTH // 2), _new_secret()
        token = Token(
            id=id,
            name=name,
            scopes=wanted,
            hash=_hash(secret.encode()),
            created_at=now,
            queues=limited_to,
            expires_at=expires_at,
        )
        try:
            # Version 0: never in the place of another token, however unlikely the same id is.
            await store.write(PREFIX + id, _encoder.encode(token), version=0)
        except VersionConflict:
            continue
        return token, f"acc_{id}_{secret}"


async def list_all(store: Storage) -> list[Token]:
    """All tokens, expired ones too, oldest first, with the moment of their last use (give or take ten minutes)."""
    uses = {document.name[len(USES) :]: document.value for document in await store.documents(USES)}
    found = read(await store.documents(PREFIX)).values()
    known = [msgspec.structs.replace(token, used_at=_moment(uses.get(token.id))) for token in found]
    return sorted(known, key=lambda token: (token.created_at, token.id))


async def revoke(store: Storage, id: str) -> bool:
    """End a token. Services that run stop accepting it within five seconds. False: there was none."""
    if not _is_id(id):
        return False
    there = await store.read(PREFIX + id) is not None
    await store.write(PREFIX + id, b"", ttl=0)
    await store.write(USES + id, b"", ttl=0)
    return there


async def note_use(store: Storage, id: str, now: int) -> None:
    """Remember that a token was used. A document of its own: no note of a use can bring back a token that was revoked
    at the same moment, and none changes what the token may do."""
    await store.write(USES + id, _encoder.encode(now))


def read(documents: Iterable[Document]) -> dict[str, Token]:
    """The tokens in these documents by id. One that cannot be read is none: it opens nothing."""
    found = {}
    for document in documents:
        try:
            token = _decoder.decode(document.value)
        except (ValueError, RecursionError):
            continue
        if document.name == PREFIX + token.id and len(token.hash) == len(_DECOY):
            found[token.id] = token
    return found


def recognise(tokens: Mapping[str, Token], text: bytes, now: int) -> Token | None:
    """The valid token that this text is; None: it is malformed, unknown, wrong or expired.

    Whatever it is, one hash and one comparison of 32 bytes are made, so that the time tells neither which ids there
    are nor how much of a secret was right.
    """
    prefix, _, rest = text.partition(b"_")
    id, _, secret = rest.partition(b"_")
    token = tokens.get(id.decode("latin-1"))
    good = hmac.compare_digest(_hash(secret), token.hash if token is not None else _DECOY)
    if not good or token is None or prefix != b"acc" or token.expired(now):
        return None
    return token


def _check_queues(queues: Iterable[str]) -> tuple[str, ...]:
    """The queues of a new token, each once, by name."""
    wanted = sorted(set(queues))
    if len(wanted) > MOST_QUEUES:
        raise InvalidInput("queue", f"a token may be limited to at most {MOST_QUEUES} queues, not {len(wanted)}")
    for queue in wanted:
        check_queue(queue)
        if is_system(queue):
            raise InvalidInput("queue", f"{queue!r} is a system queue; a token is limited to queues of your own")
    return tuple(wanted)


def _hash(secret: bytes) -> bytes:
    return sha256(secret).digest()


def _new_secret() -> str:
    number, digits = int.from_bytes(secrets.token_bytes(32), "big"), []
    for _ in range(SECRET_LENGTH):
        number, digit = divmod(number, 62)
        digits.append(_DIGITS[digit])
    return "".join(digits)


def _is_id(text: str) -> bool:
    return len(text) == ID_LENGTH and all(char in "0123456789abcdef" for char in text)


def _moment(value: bytes | None) -> int | None:
    try:
        return None if value is None else msgspec.msgpack.decode(value, type=int)
    except ValueError:
        return None
