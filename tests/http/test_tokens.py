"""Tokens: made, kept as a hash, recognised, revoked; and as a running service knows them."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from accoda.cli.commands import accoda
from accoda.clock import ManualClock
from accoda.errors import InvalidInput, StorageUnavailable
from accoda.http.problems import ProblemError
from accoda.http.security import tokens
from accoda.http.security.identity import ANONYMOUS, LOCAL, SCOPES, Identity, check_scope, implied
from accoda.http.security.token_cache import COARSE, KNOWN_FOR, TokenCache
from accoda.model import Document
from accoda.storage.open import open_storage
from accoda.storage.protocol import Store

NOW = 1_700_000_000_000
DAY = 86_400_000


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with await open_storage("memory://") as store:
        yield store


class Time:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def made(store: Store, *scopes: str, expires_at: int | None = None) -> tuple[tokens.Token, str]:
    return await tokens.create(store, "ci", scopes or ("read",), now=NOW, expires_at=expires_at)


async def known(store: Store) -> dict[str, tokens.Token]:
    return tokens.read(await store.documents(tokens.PREFIX))


async def test_a_token_is_recognised_by_its_whole_text_alone(store: Store) -> None:
    token, text = await made(store)
    assert re.fullmatch(r"acc_[0-9a-f]{10}_[0-9A-Za-z]{43}", text)
    book = await known(store)
    assert tokens.recognise(book, text.encode(), NOW) == token
    other = (await made(store))[1]
    mixed = f"acc_{token.id}_{other.rpartition('_')[2]}"
    wrong = [
        "",
        "acc",
        "acc_",
        "acc__",
        f"acc_{token.id}",
        f"acc_{token.id}_",
        text[:-1],
        text + "x",
        "x" + text,
        mixed,
    ]
    for bad in [*wrong, text.replace("acc_", "ACC_"), text.upper(), "acc_\xff_\xff", token.hash.hex()]:
        assert tokens.recognise(book, bad.encode("latin-1"), NOW) is None, bad


async def test_neither_the_secret_nor_a_part_of_it_is_stored(store: Store) -> None:
    _, text = await made(store)
    secret = text.rpartition("_")[2].encode()
    kept = b"".join(document.value for document in await store.documents(""))
    assert secret not in kept
    assert secret[:8] not in kept


async def test_an_unknown_id_costs_a_hash_and_a_comparison_like_a_wrong_secret(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, text = await made(store)
    book = await known(store)
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def seen(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return real(left, right)

    monkeypatch.setattr(hmac, "compare_digest", seen)
    for shown in (text, f"acc_{token.id}_wrong", "acc_0000000000_wrong", "nonsense", ""):
        tokens.recognise(book, shown.encode(), NOW)
    assert compared == [(32, 32)] * 5


async def test_an_expired_token_is_none(store: Store) -> None:
    _, text = await made(store, expires_at=NOW + DAY)
    book = await known(store)
    assert tokens.recognise(book, text.encode(), NOW + DAY - 1) is not None
    assert tokens.recognise(book, text.encode(), NOW + DAY) is None


async def test_a_token_that_cannot_be_used_is_not_made(store: Store) -> None:
    for name, scopes, expires_at, field in (
        ("", ("read",), None, "name"),
        ("a\nb", ("read",), None, "name"),
        ("x" * 101, ("read",), None, "name"),
        ("ci", (), None, "scope"),
        ("ci", ("root",), None, "scope"),
        ("ci", ("read",), NOW, "expires"),
    ):
        with pytest.raises(InvalidInput) as caught:
            await tokens.create(store, name, scopes, now=NOW, expires_at=expires_at)
        assert caught.value.field == field
    assert await tokens.list_all(store) == []


async def test_a_revoked_token_is_gone_and_a_second_revoke_says_so(store: Store) -> None:
    token, _ = await made(store)
    assert await tokens.revoke(store, token.id)
    assert not await tokens.revoke(store, token.id)
    assert not await tokens.revoke(store, "../settings")
    assert await tokens.list_all(store) == []


async def test_documents_that_are_no_tokens_open_nothing() -> None:
    good = tokens.Token(id="0123456789", name="x", scopes=("admin",), hash=bytes(32), created_at=0)
    elsewhere = tokens._encoder.encode(good)
    short = tokens._encoder.encode(tokens.Token(id="a", name="x", scopes=("admin",), hash=b"", created_at=0))
    documents = [Document("tokens/b", elsewhere, 1), Document("tokens/a", short, 1), Document("tokens/c", b"\xc1", 1)]
    assert tokens.read(documents) == {}


def test_admin_implies_all_and_no_other_scope_implies_another() -> None:
    assert implied(["admin"]) == frozenset(SCOPES)
    for scope in ("read", "enqueue", "work"):
        identity = Identity("x", implied([scope]), "id")
        assert [each for each in SCOPES if identity.may(each)] == [scope]
    assert all(LOCAL.may(scope) for scope in SCOPES)
    assert not any(ANONYMOUS.may(scope) for scope in SCOPES)


def test_a_caller_without_a_token_gets_401_and_one_without_the_scope_403() -> None:
    check_scope(ANONYMOUS, None)
    check_scope(LOCAL, "admin")
    with pytest.raises(ProblemError) as caught:
        check_scope(ANONYMOUS, "read")
    assert caught.value.problem.status == 401
    with pytest.raises(ProblemError) as caught:
        check_scope(Identity("x", frozenset({"read"}), "id"), "enqueue")
    assert caught.value.problem.status == 403
    assert caught.value.problem.scope == "enqueue"


# -- the book of a running service


async def test_a_revoked_token_is_refused_within_five_seconds(store: Store) -> None:
    token, text = await made(store)
    time = Time()
    book = TokenCache(store, ManualClock(NOW), time)
    await book.refresh()
    assert book.recognise(text.encode()) == token.identity
    await tokens.revoke(store, token.id)
    time.now += KNOWN_FOR
    await book.refresh()
    assert book.recognise(text.encode()) is None
    await book.close()


async def test_a_token_that_expires_is_refused_though_it_was_recognised_before(store: Store) -> None:
    _, text = await made(store, expires_at=NOW + 1000)
    clock = ManualClock(NOW)
    book = TokenCache(store, clock, Time())
    await book.refresh()
    assert book.recognise(text.encode()) is not None
    clock.advance(1.0)
    assert book.recognise(text.encode()) is None
    await book.close()


async def test_the_tokens_are_read_once_for_all_requests_that_need_them_and_hold_up_no_others(store: Store) -> None:
    reads = 0

    class Counting:
        async def documents(self, prefix: str) -> list[Document]:
            nonlocal reads
            reads += 1
            await asyncio.sleep(0)
            return await store.documents(prefix)

    time = Time()
    book = TokenCache(Counting(), ManualClock(NOW), time)  # type: ignore[arg-type]
    await asyncio.gather(*(book.refresh() for _ in range(50)))
    assert reads == 1
    time.now += 3.0
    assert not book.is_fresh(time.now)
    await book.refresh()  # does not wait
    assert not book.is_fresh(time.now)
    await book._reading  # type: ignore[misc]
    assert book.is_fresh(time.now)
    assert reads == 2


async def test_a_client_that_goes_away_does_not_end_the_read_that_others_wait_for(store: Store) -> None:
    go_on = asyncio.Event()

    class Slow:
        async def documents(self, prefix: str) -> list[Document]:
            await go_on.wait()
            return await store.documents(prefix)

    time = Time()
    book = TokenCache(Slow(), ManualClock(NOW), time)  # type: ignore[arg-type]
    first, second = (asyncio.ensure_future(book.refresh()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await second
    assert book.is_fresh(time.now)


async def test_tokens_that_took_longer_to_read_than_they_are_good_for_are_not_used(store: Store) -> None:
    time = Time()

    class Slow:
        async def documents(self, prefix: str) -> list[Document]:
            found = await store.documents(prefix)
            time.now += KNOWN_FOR
            return found

    with pytest.raises(StorageUnavailable):
        await TokenCache(Slow(), ManualClock(NOW), time).refresh()  # type: ignore[arg-type]


async def test_nothing_is_known_of_tokens_while_the_store_is_away(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "accoda.http")
    away = False

    class Flaky:
        async def documents(self, prefix: str) -> list[Document]:
            if away:
                raise StorageUnavailable("away")
            return await store.documents(prefix)

    time = Time()
    book = TokenCache(Flaky(), ManualClock(NOW), time)  # type: ignore[arg-type]
    await book.refresh()
    away = True
    time.now += 3.0
    await book.refresh()  # what is known is not too old yet
    await asyncio.sleep(0)
    time.now += 3.0
    with pytest.raises(StorageUnavailable):
        await book.refresh()
    assert "the tokens cannot be read" in caplog.text


async def test_the_last_use_is_noted_coarsely_and_never_brings_a_revoked_token_back(store: Store) -> None:
    token, text = await made(store)
    clock, time = ManualClock(NOW), Time()
    book = TokenCache(store, clock, time)
    await book.refresh()

    async def used() -> int | None:
        book.recognise(text.encode())
        await asyncio.gather(*book._notes)
        return (await tokens.list_all(store))[0].used_at

    assert await used() == NOW
    clock.advance(60)
    time.now += 60
    await book.refresh()
    assert await used() == NOW
    clock.advance(COARSE / 1000)
    time.now += COARSE
    await book.refresh()
    assert await used() == clock.now()
    await tokens.revoke(store, token.id)
    await tokens.note_use(store, token.id, clock.now())
    assert await known(store) == {}
    await book.close()


# -- the command


def accoda_tokens(url: str, *words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(accoda, ["tokens", *words, "--url", url])
    return result.exit_code, result.stdout, result.stderr


def test_the_command_makes_lists_and_revokes_tokens_and_shows_a_secret_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    code, out, err = accoda_tokens(url, "create", "ci", "--scope", "enqueue", "--scope", "read", "--expires", "90d")
    assert code == 0
    text = out.strip()
    assert text.startswith("acc_")
    id = text.split("_")[1]
    assert f"accoda tokens revoke {id}" in err
    code, out, _ = accoda_tokens(url)
    assert code == 0
    assert id in out
    assert "read, enqueue" in out
    assert "in 89 d" in out
    assert text.rpartition("_")[2] not in out
    listed = json.loads(accoda_tokens(url, "list", "--json")[1])
    assert listed[0].keys() == {"id", "name", "scopes", "queues", "createdAt", "lastUsedAt", "expiresAt"}
    assert accoda_tokens(url, "revoke", id)[0] == 2  # no terminal to ask in
    code, out, err = accoda_tokens(url, "revoke", id, "--yes")
    assert (code, "revoked" in out, "last one" in err) == (0, True, True)
    assert accoda_tokens(url, "revoke", id, "--yes")[0] == 1


@pytest.mark.parametrize(
    "words",
    [("create", "ci"), ("create", "ci", "--scope", "root"), ("create", "ci", "--scope", "read", "--expires", "x")],
)
def test_a_wrong_use_of_the_command_makes_no_token(tmp_path: Path, words: tuple[str, ...]) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    code, out, err = accoda_tokens(url, *words)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
