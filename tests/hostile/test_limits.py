"""Every limit holds at every way in, says what to do, and loses nothing."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accoda import App, Batch, Bury, Done, InvalidInput, JobFailed, NewJob, SettingsError, TooLarge, set_limits
from accoda import limits as limits_module
from accoda.limits import LIMITS, MOST, allowed
from accoda.payload import Codec, UnreadablePayload, encode
from accoda.settings import Settings
from accoda.storage.memory import MemoryStorage

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"


def test_the_examples_in_the_docstrings_hold() -> None:
    found = doctest.testmod(limits_module)
    assert found.attempted
    assert not found.failed


# -- ways in


def test_a_payload_over_the_limit_is_refused_with_the_way_out() -> None:
    assert NewJob("q", bytes(256 << 10)).data
    with pytest.raises(TooLarge) as caught:
        NewJob("q", bytes((256 << 10) + 1))
    error = caught.value
    assert (error.field, error.size, error.limit) == ("data", 262_145, 262_144)
    assert str(error) == (
        "data: has 262,145 bytes, and at most 262,144 are allowed; store the data elsewhere and enqueue a reference to "
        "it, or raise ACCODA_MAX_PAYLOAD"
    )
    assert isinstance(error, InvalidInput)


async def test_enqueue_names_the_payload_and_stores_nothing() -> None:
    async with App("memory://") as app:
        with pytest.raises(TooLarge, match="payload: has 300,005 bytes"):
            await app.enqueue("q", "x" * 300_000)
        assert (await app.storage.stats()).queues == {}


async def test_one_that_is_too_large_among_many_is_named_and_none_is_stored() -> None:
    async with App("memory://") as app:
        with pytest.raises(TooLarge) as caught:
            await app.enqueue_many("q", ["a", "b", "x" * 300_000, "d"])
        assert str(caught.value).startswith("payloads[2]: has 300,005 bytes, and at most 262,144 are allowed")
        assert str(caught.value).endswith("; none was enqueued")
        assert caught.value.size == 300_005
        with pytest.raises(InvalidInput, match=r"payloads\[1\]: cannot be stored"):
            await app.enqueue_many("q", ["a", object()])
        assert (await app.storage.stats()).queues == {}


def test_a_waiter_over_the_limit_is_refused() -> None:
    assert NewJob("q", key="k", on_duplicate="attach", waiter=bytes(64 << 10))
    with pytest.raises(TooLarge, match=r"waiter: has 65,537 bytes, and at most 65,536 .* or raise ACCODA_MAX_WAITER"):
        NewJob("q", key="k", on_duplicate="attach", waiter=bytes((64 << 10) + 1))


async def test_documents_and_calls_over_their_limits_are_refused() -> None:
    async with MemoryStorage() as store:
        with pytest.raises(TooLarge, match=r"value: has 1,048,577 bytes.*ACCODA_MAX_DOCUMENT"):
            await store.write("doc", bytes((1 << 20) + 1))
        assert await store.read("doc") is None
        with pytest.raises(TooLarge, match=r"jobs: has 100,001 jobs.*enqueue them in several calls"):
            await store.enqueue([NewJob("q")] * 100_001)
        assert (await store.stats()).queues == {}
        await store.enqueue([NewJob("q")])
        (job,) = await store.take("q", 1)
        with pytest.raises(TooLarge, match="result: has"):
            await store.settle([Done(job.lease, result=bytes(MOST.result + 1))])
        for end in (Done(job.lease, [NewJob("q")] * 100_001), Bury(job.lease, "x", [NewJob("q")] * 100_001)):
            with pytest.raises(TooLarge, match=r"then: has 100,001 jobs"):
                await store.settle([end])
        assert (await store.stats()).queues["q"].taken == (await store.stats()).queues["q"].total == 1


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (nested(65), "payload: has 65 levels, and at most 64 are allowed; flatten it, or enqueue it as bytes or text"),
        (nested(900), "payload: has 65 levels"),
        ({"a": {"b": nested(63)}}, "payload: has 65 levels"),
        ([1] * 100_000, "payload: has 100,001 values, and at most 100,000 are allowed; split it over several jobs"),
        (dict.fromkeys(range(50_000), 1), "payload: has 100,001 values"),
        (
            {(n, n): 1 for n in range(1001)},
            "payload: more than 1,000 keys of maps in it are lists; use texts or numbers",
        ),
    ],
)
def test_a_payload_of_a_bad_shape_is_refused(payload: object, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode(payload)
    assert words in str(caught.value)


def test_a_payload_at_its_limits_is_stored_and_read() -> None:
    codec: Codec[Any] = Codec()
    for payload in (nested(64), [1] * 99_999, {"text": "привет " * 3000, "bytes": bytes(range(128, 160)) * 500}):
        assert codec.decode(codec.encode(payload)) == payload
    assert len(codec.decode(codec.encode({(n, n): 1 for n in range(1000)}))) == 1000


def test_nesting_without_end_is_refused_and_nothing_worse() -> None:
    ring: list[Any] = []
    ring.append(ring)
    for payload in (ring, nested(200_000)):
        with pytest.raises(InvalidInput, match="cannot be stored"):
            encode(payload)
        with pytest.raises(InvalidInput, match="cannot be stored"):
            Codec(list[int]).encode(payload)


# -- results


async def test_a_result_over_the_limit_buries_its_job_which_ran_once() -> None:
    app = App("memory://")
    runs = 0

    @app.handler("reports", keep_for=60)
    async def report() -> str:
        nonlocal runs
        runs += 1
        return "x" * 1_100_000

    async with app.testing():
        id = (await report.enqueue()).id
        await app.run_until_idle()
        with pytest.raises(JobFailed) as caught:
            await app.result(id, timeout=5)
    assert runs == 1
    assert caught.value.reason == (
        "result: the handler returned a str, which has 1,100,005 bytes, and at most 1,048,576 are allowed; store it "
        "elsewhere and return a reference to it, or raise ACCODA_MAX_RESULT"
    )


async def test_in_a_batch_only_the_job_with_the_large_result_is_buried() -> None:
    app = App("memory://")

    @app.handler("reports", keep_for=60)
    async def report(batch: Batch[int]) -> None:
        for job in batch:
            batch.done(job, "x" * job.payload)

    async with app.testing() as trial:
        small, large, last = [(await app.enqueue("reports", size)).id for size in (5, 1_100_000, 7)]
        await app.run_until_idle()
        assert await app.result(small) == "x" * 5
        assert await app.result(last) == "x" * 7
        trial.assert_dead("reports", "which has 1,100,005 bytes")
        with pytest.raises(JobFailed):
            await app.result(large)


async def test_a_long_message_of_progress_is_cut_and_made_storable() -> None:
    app = App("memory://")

    @app.handler("slow")
    async def slow() -> None:
        await app.progress(0.5, "half \ud800 way " + "x" * 100_000)

    async with app.testing():
        id = (await slow.enqueue()).id
        await app.run_until_idle()
        progress = await app.progress_of(id)
        assert progress is not None
        assert progress.message.startswith("half ? way")
        assert len(progress.message) == 16_384


# -- what is stored already is read


def test_what_a_producer_with_higher_limits_stored_is_read() -> None:
    codec: Codec[Any] = Codec()
    for payload in ("x" * 1_000_000, nested(250), [1] * 500_000):
        assert codec.decode(msgspec.msgpack.encode(payload)) == payload


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xdd" + (1_200_000).to_bytes(4) + b"\x90" * 1_200_000, "more than 1,000,000 values"),
        (bytes((64 << 20) + 1), "it has 67,108,865 bytes, and at most 67,108,864 are read"),
        (b"\x91" * 100_000, "nested more than 256 levels deep"),
        (b"\x81\xa1a" * 900_000, "maximum recursion depth exceeded|nested more than"),
        (b"\xde\x04\x00" + b"".join(b"\x92\x01\xcd" + n.to_bytes(2) + b"\xc0" for n in range(1024)), "keys of maps"),
    ],
)
def test_what_may_not_be_stored_is_unreadable_and_costs_little(data: bytes, words: str) -> None:
    with pytest.raises(UnreadablePayload, match=words):
        Codec().decode(data)


# -- how they are changed


def test_limits_are_changed_in_code_all_or_none() -> None:
    set_limits(payload=1 << 20, depth=70)
    assert NewJob("q", bytes(1 << 20)).data
    assert encode(nested(70))
    with pytest.raises(SettingsError, match="limit depth: must be a whole number of levels from 1 to 256, not 0"):
        set_limits(payload=5, depth=0)
    assert allowed.payload == 1 << 20
    with pytest.raises(SettingsError, match="there is no limit 'size'; known are payload, depth"):
        set_limits(size=5)


@pytest.mark.parametrize("value", [True, 1.5, "a", "1 GiB", "-1", 0, MOST.payload + 1, None, "9" * 50, "0x10", ""])
def test_a_limit_that_cannot_be_is_refused(value: Any) -> None:
    with pytest.raises(SettingsError, match="limit payload: must be a whole number of bytes from 1 to 67108864"):
        set_limits(payload=value)


def in_new_process(code: str, **variables: str) -> str:
    run = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_limits_are_changed_by_the_environment() -> None:
    code = "from accoda import NewJob; print(len(NewJob('q', bytes(300_000)).data))"
    assert in_new_process(code, ACCODA_MAX_PAYLOAD="512 KiB", ACCODA_MAX_DEPTH=" ") == "300000"


def test_a_wrong_variable_is_told_by_the_first_use_and_by_the_settings() -> None:
    code = "import accoda\ntry:\n    accoda.NewJob('q')\nexcept accoda.SettingsError as error:\n    print(error)"
    words = "environment ACCODA_MAX_PAYLOAD: must be a whole number of bytes from 1 to 67108864, not 'lots'"
    assert in_new_process(code, ACCODA_MAX_PAYLOAD="lots") == words
    with pytest.raises(SettingsError, match=words):
        Settings.load(environ={"ACCODA_MAX_PAYLOAD": "lots"})


# -- the page


def test_the_page_has_every_limit_with_its_numbers() -> None:
    rows = re.findall(r"^\| `(ACCODA_MAX_\w+)` \| `(\w+)` \| ([^|]+) \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE)
    told = {(variable, name): (_number(default), _number(most)) for variable, name, default, most in rows}
    assert told == {(limit.variable, limit.name): (limit.default, limit.most) for limit in LIMITS}


def _number(text: str) -> int:
    number, _, unit = text.strip().replace(",", "").partition(" ")
    return int(number) * {"KiB": 1 << 10, "MiB": 1 << 20}.get(unit, 1)
