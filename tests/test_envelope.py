"""What travels with a payload: stored in front of it, and unseen unless it is asked for."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accoda import App, InvalidInput
from accoda.envelope import HIDDEN, NOTHING, Hook, JobMetadata, hidden, payload_of, type_of, unwrap, wrap
from accoda.payload import Codec, UnreadablePayload, decode

texts = st.text(max_size=20)
extras = st.builds(
    JobMetadata,
    type=st.none() | texts,
    headers=st.dictionaries(texts, texts, max_size=3),
    name=st.none() | texts,
    max_attempts=st.none() | st.integers(1, 100),
    hook=st.none() | st.builds(Hook, texts),
    secret=st.lists(texts, max_size=3).map(tuple),
    schedule=st.none() | texts,
    tick=st.none() | st.integers(0, 2**50),
)


@given(st.binary(max_size=50).filter(lambda data: data[:1] != b"\xc1"), extras)
def test_what_was_put_in_comes_out(payload, told):
    assert unwrap(wrap(payload, told)) == (told, payload)


def test_a_job_with_nothing_to_say_is_its_payload_and_nothing_else():
    assert wrap(b"payload", NOTHING) == b"payload"
    assert wrap(b"payload", JobMetadata(name=None)) is not None
    assert unwrap(b"payload") == (NOTHING, b"payload")


@given(st.binary(max_size=60))
def test_no_bytes_whatever_make_it_raise(data):
    unwrap(b"\xc1" + data)
    payload_of(data)


def test_a_damaged_envelope_is_an_unreadable_payload():
    damaged = bytearray(wrap(msgspec.msgpack.encode({"a": 1}), JobMetadata(name="Report")))
    damaged[6] ^= 0xFF
    with pytest.raises(UnreadablePayload):
        Codec(dict[str, int]).decode(bytes(damaged))


def test_codecs_see_the_payload_alone():
    data = wrap(msgspec.msgpack.encode({"a": 1}), JobMetadata(name="Report"))
    assert Codec(dict[str, int]).decode(data) == {"a": 1}
    assert decode(data) == {"a": 1}


def test_secret_fields_are_hidden_wherever_the_path_leads():
    value = {"card": "4111", "customer": {"phone": "055", "name": "Anna"}, "lines": [{"iban": "IT60"}, {"sum": 2}, 7]}
    assert hidden(value, ("card", "customer.phone", "lines.iban", "nobody.here")) == {
        "card": HIDDEN,
        "customer": {"phone": HIDDEN, "name": "Anna"},
        "lines": [{"iban": HIDDEN}, {"sum": 2}, 7],
    }
    assert value["card"] == "4111", "the value itself is left alone"


async def test_a_job_is_enqueued_with_a_name_a_limit_and_secrets():
    app = App("memory://")

    @app.handler("pay", secret=("card",))
    async def pay(order: dict[str, str]) -> None: ...

    await pay.enqueue({"card": "4111"}, name="Order 17", max_attempts=3)
    job = (await app.storage.browse("pay", "ready"))[0]
    assert unwrap(job.data) == (
        JobMetadata(name="Order 17", max_attempts=3, secret=("card",)),
        msgspec.msgpack.encode({"card": "4111"}),
    )
    await app.close()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"name": ""}, "name: must be 1 to 200 characters of valid text, not ''"),
        ({"name": "a\0b"}, "name: must be 1 to 200 characters of valid text, not 'a\\x00b'"),
        ({"max_attempts": 0}, "max_attempts: must be an integer >= 1, not 0"),
        ({"webhook": 7}, "webhook: must be a URL, or Hook(url, on=('done', 'dead')), not 7"),
        ({"webhook": Hook("https://example.com", ())}, "webhook: must be a URL, or Hook(url, on=('done', 'dead'))"),
    ],
)
def test_what_cannot_be_used_is_refused(options, problem):
    with pytest.raises(InvalidInput) as refusal:
        App("memory://").new_job("emails", {}, options)
    assert str(refusal.value).startswith(problem)


async def test_a_jobs_own_limit_of_attempts_wins_over_its_queues():
    app, runs = App("memory://"), []

    @app.handler("fragile", max_attempts=1, retry=0)
    async def fragile(payload: str) -> None:
        runs.append((payload, app.current.name))
        raise ValueError("no")

    await fragile.enqueue("once")
    await fragile.enqueue("thrice", max_attempts=3, name="Three tries")
    await app.run_until_idle()
    assert sorted(runs) == [("once", None), *[("thrice", "Three tries")] * 3]
    dead = await app.storage.browse("fragile", "dead", order="id")
    reasons = ["failed: ValueError: no", "failed 3 times, the last time with ValueError: no"]
    assert [job.reason for job in dead] == reasons
    await app.close()


@pytest.mark.parametrize("type", ["", "x" * 201, "a\nb", "\x85", "\ud800", 7])
def test_a_type_that_no_storage_or_log_could_carry_is_refused(type):
    with pytest.raises(InvalidInput, match="type: must be 1 to 200 characters"):
        App("memory://").new_job("work", None, {"type": type})


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        (["tenant"], "must map names to texts"),
        ({"tenant": 7}, "the value of 'tenant' must be valid text, not 7"),
        ({"tenant": "\ud800"}, "the value of 'tenant' must be valid text"),
        ({"": "x"}, "a name must be 1 to 200 characters"),
        ({"a\r\nb": "x"}, "a name must be 1 to 200 characters, none a control character"),
        ({str(number): "" for number in range(51)}, "must be at most 50, not 51"),
        ({"x": "y" * 16_385}, "their values have 16,385 characters, and 16,384 are allowed"),
    ],
)
def test_headers_are_few_short_texts(headers, says):
    with pytest.raises(InvalidInput, match=f"headers: .*{says}"):
        App("memory://").new_job("work", None, {"headers": headers})


def test_the_type_and_the_headers_travel_with_the_job():
    job = App("memory://").new_job("work", 7, {"type": "report.générer", "headers": {"tenant": "acme"}})
    assert unwrap(job.data)[0] == JobMetadata(type="report.générer", headers={"tenant": "acme"})
    assert type_of(job.data) == "report.générer" and type_of(b"\x07") is None and type_of(b"") is None
    assert App("memory://").new_job("work", 7, {"type": None, "headers": {}}).data == b"\x07"  # nothing to say


def test_the_same_metadata_are_decoded_once():
    data = wrap(b"x", JobMetadata(type="report"))
    assert unwrap(data)[0] is unwrap(data + b"y")[0]
    long = wrap(b"x", JobMetadata(headers={"x": "y" * 600}))  # these would fill the memory
    assert unwrap(long)[0] is not unwrap(long)[0]
