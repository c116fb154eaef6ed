"""The signing keys."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from accoda.errors import StorageError
from accoda.storage.open import open_storage
from accoda.storage.protocol import Store
from accoda.webhooks.keys import BOTH_FOR, DOCUMENT, OLD_KEYS, headers, rotate, show

NOW = time.time_ns() // 1_000_000


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[list[Store]]:
    """Several handles on one store, as several processes have them."""
    made = [await open_storage(f"sqlite:///{tmp_path / 'jobs.db'}") for _ in range(4)]
    yield made
    for store in made:
        await store.close()


async def test_processes_that_need_keys_first_at_the_same_moment_agree(stores: list[Store]) -> None:
    found = await asyncio.gather(*(show(store, NOW) for store in stores * 3))
    assert len(set(found)) == 1
    assert found[0].current.startswith("whsec_") and await show(stores[0], NOW + 1) == found[0]


async def test_rotations_at_the_same_moment_lose_no_key(stores: list[Store]) -> None:
    first = await show(stores[0], NOW)
    made = await asyncio.gather(*(rotate(store, NOW) for store in stores))
    last = await show(stores[0], NOW)
    assert len(last.signing(NOW)) == 5
    assert set(last.signing(NOW)) == {first.current, *(keys.current for keys in made)}


async def test_after_a_rotation_both_keys_sign_for_a_day(stores: list[Store]) -> None:
    old = await show(stores[0], NOW)
    new = await rotate(stores[0], NOW)
    assert new.current != old.current
    assert new.signing(NOW + BOTH_FOR - 1) == (new.current, old.current)
    assert new.signing(NOW + BOTH_FOR) == (new.current,)
    # Signed now, not at NOW: the library refuses messages that are five minutes old, and the run may have taken longer.
    signed = headers(new, "msg_1", b'{"a":1}', time.time_ns() // 1_000_000)
    for key in (old.current, new.current):
        assert Webhook(key).verify(b'{"a":1}', signed) == {"a": 1}
    with pytest.raises(WebhookVerificationError):
        Webhook("whsec_" + "A" * 43 + "=").verify(b'{"a":1}', signed)
    with pytest.raises(WebhookVerificationError):
        Webhook(new.current).verify(b'{"a":2}', signed)


async def test_old_keys_do_not_pile_up(stores: list[Store]) -> None:
    for n in range(8):
        keys = await rotate(stores[0], NOW + n)
    assert len(keys.previous) == OLD_KEYS
    later = await rotate(stores[0], NOW + BOTH_FOR + 100)
    assert len(later.previous) == 1


async def test_a_document_that_cannot_be_read_is_never_overwritten(stores: list[Store]) -> None:
    await stores[0].write(DOCUMENT, b'{"of": "the future"}')
    for action in (show, rotate):
        with pytest.raises(StorageError, match="newer Accoda"):
            await action(stores[0], NOW)


async def test_the_headers_are_those_of_standard_webhooks(stores: list[Store]) -> None:
    keys = await show(stores[0], NOW)
    signed = headers(keys, "msg_1", b"{}", NOW)
    assert signed["webhook-id"] == "msg_1" and signed["webhook-timestamp"] == str(NOW // 1000)
    at = datetime.fromtimestamp(NOW // 1000, UTC)
    assert signed["webhook-signature"] == Webhook(keys.current).sign("msg_1", at, "{}")
