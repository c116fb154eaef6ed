"""Documents: versions, compare and set, time to live, prefixes."""

from __future__ import annotations

import pytest

from accoda.errors import VersionConflict
from accoda.model import Document
from accoda.storage.protocol import Store
from accoda.testing.conformance.base import Suite, close_to, need_exact
from accoda.testing.store_fixture import StoreFixture

NAMES = [
    "a",
    "a%",
    "a%b",
    "a*",
    "a/",
    "a/b",
    "a?",
    "a[b]",
    "a\\",
    "a_",
    "a_b",
    "ab",
    "á",
    "A",
    "A/b",
    "日本/1",
    "🎺",
    "z" * 512,
]
PREFIXES = [
    "",
    "a",
    "a%",
    "a_",
    "a*",
    "a?",
    "a[",
    "a\\",
    "a/",
    "A",
    "á",
    "日",
    "🎺",
    "z",
    "zz",
    "b",
    "'",
]


class TestDocuments(Suite):
    async def test_one_that_was_never_written_is_none(self, store: Store) -> None:
        assert await store.read("doc") is None
        assert await store.documents("") == []

    async def test_versions_grow_by_each_write(self, store: Store) -> None:
        assert await store.write("doc", b"1") == 1
        assert await store.write("doc", b"2") == 2
        assert await store.read("doc") == Document("doc", b"2", 2)

    async def test_a_write_with_the_current_version_is_accepted(self, store: Store) -> None:
        version = await store.write("doc", b"1", version=0)
        assert await store.write("doc", b"2", version=version) == version + 1

    @pytest.mark.parametrize("version", [0, 1, 3, 99])
    async def test_a_write_with_another_version_is_refused(self, store: Store, version: int) -> None:
        await store.write("doc", b"1")
        await store.write("doc", b"2")
        with pytest.raises(VersionConflict) as caught:
            await store.write("doc", b"3", version=version)
        assert (caught.value.name, caught.value.expected, caught.value.found) == ("doc", version, 2)
        assert await store.read("doc") == Document("doc", b"2", 2)

    async def test_a_version_of_what_does_not_exist_is_refused(self, store: Store) -> None:
        with pytest.raises(VersionConflict) as caught:
            await store.write("doc", b"1", version=1)
        assert caught.value.found == 0
        assert await store.read("doc") is None

    async def test_only_one_of_many_writers_with_the_same_version_wins(self, store: Store) -> None:
        version = await store.write("doc", b"0")
        won = 0
        for n in range(5):
            try:
                await store.write("doc", str(n).encode(), version=version)
                won += 1
            except VersionConflict:
                continue
        assert won == 1
        assert await store.read("doc") == Document("doc", b"0", version + 1)

    async def test_they_are_apart_from_queues_and_keys(self, store: Store) -> None:
        await store.write("q", b"1")
        assert (await store.stats()).queues == {}


class TestTimeToLive(Suite):
    async def test_a_document_is_gone_when_its_time_is_over(self, store: Store, fixture: StoreFixture) -> None:
        await store.write("doc", b"1", ttl=10)
        document = await store.read("doc")
        assert document is not None
        assert close_to(fixture, document.expires_at, await fixture.now() + 10_000)
        await fixture.advance(9)
        assert await store.read("doc") == document
        await fixture.advance(1)
        assert await store.read("doc") is None
        assert await store.documents("") == []

    async def test_it_is_gone_at_the_exact_millisecond(self, store: Store, fixture: StoreFixture) -> None:
        need_exact(fixture)
        await store.write("doc", b"1", ttl=1.001)
        await fixture.advance(1)
        assert await store.read("doc") is not None
        await fixture.advance(0.001)
        assert await store.read("doc") is None

    async def test_versions_go_on_after_it(self, store: Store, fixture: StoreFixture) -> None:
        old = await store.write("doc", b"1", ttl=10)
        await fixture.advance(10)
        with pytest.raises(VersionConflict) as caught:
            await store.write("doc", b"2", version=old)
        assert caught.value.found == 0
        new = await store.write("doc", b"2", version=0)
        assert new > old
        with pytest.raises(VersionConflict):
            await store.write("doc", b"3", version=old)

    async def test_versions_go_on_for_a_day_after_its_end(self, store: Store, fixture: StoreFixture) -> None:
        need_exact(fixture)
        old = await store.write("doc", b"1", ttl=10)
        for _ in range(3):
            await fixture.advance(8 * 3600)
            await store.write("other", b"", ttl=10)
        assert await store.write("doc", b"2", version=0) > old

    async def test_a_time_of_zero_removes(self, store: Store) -> None:
        version = await store.write("doc", b"1")
        await store.write("doc", b"", version=version, ttl=0)
        assert await store.read("doc") is None
        assert await store.documents("") == []
        assert await store.write("doc", b"2", version=0) > version

    async def test_removing_checks_the_version_too(self, store: Store) -> None:
        await store.write("doc", b"1")
        with pytest.raises(VersionConflict):
            await store.write("doc", b"", version=5, ttl=0)
        assert await store.read("doc") == Document("doc", b"1", 1)

    async def test_each_write_sets_it_anew(self, store: Store, fixture: StoreFixture) -> None:
        await store.write("doc", b"1", ttl=10)
        await fixture.advance(8)
        await store.write("doc", b"2", ttl=10)
        await fixture.advance(8)
        assert await store.read("doc") is not None
        await store.write("doc", b"3")
        await fixture.advance(1_000)
        document = await store.read("doc")
        assert document is not None
        assert (document.value, document.expires_at) == (b"3", None)

    async def test_only_that_document_is_gone(self, store: Store, fixture: StoreFixture) -> None:
        await store.write("short", b"1", ttl=10)
        await store.write("long", b"2", ttl=20)
        await store.write("lasting", b"3")
        await fixture.advance(10)
        assert [document.name for document in await store.documents("")] == ["lasting", "long"]


class TestPrefix(Suite):
    @pytest.mark.parametrize("prefix", PREFIXES, ids=ascii)
    async def test_lists_exactly_the_names_that_start_with_it_by_name(self, store: Store, prefix: str) -> None:
        for name in reversed(NAMES):
            await store.write(name, name.encode())
        expected = sorted(name for name in NAMES if name.startswith(prefix))
        found = await store.documents(prefix)
        assert [document.name for document in found] == expected
        assert [document.value for document in found] == [name.encode() for name in expected]
