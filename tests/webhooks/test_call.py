"""From a job that ends to the stored call and its message."""

import subprocess
import sys
from typing import Any

import msgspec
import pytest

from accoda.envelope import Hook, JobMetadata, wrap
from accoda.limits import allowed
from accoda.webhooks.call import BODY, KEEP_FOR, QUEUE, Facts, body, call_job, read_call

HOOK = Hook("https://example.com/hooks")
AT = 1_700_000_000_000


def facts(**more: Any) -> Facts:
    return Facts(**{"id": 7, "queue": "emails", "attempts": 1, "created_at": AT, **more})


def message(told: Facts, event: Any = "job.done", stored_at: int = AT + 5000) -> Any:
    call = read_call(call_job(HOOK, event, told).data)
    assert call is not None
    return msgspec.json.decode(body(call, stored_at))


def pack(value: object) -> bytes:
    return msgspec.msgpack.encode(value)


def test_a_call_is_a_job_of_its_own_queue_that_is_kept_for_a_week() -> None:
    job = call_job(HOOK, "job.done", facts())
    assert (job.queue, job.keep_for, KEEP_FOR) == (QUEUE, KEEP_FOR, 7 * 24 * 3600)


def test_a_done_job_is_told_with_its_result() -> None:
    told = message(facts(name="Greeting", result=pack({"sent": 3}), payload=pack({"to": "anna"})))
    assert told == {
        "type": "job.done",
        "timestamp": "2023-11-14T22:13:25.000Z",
        "data": {
            "id": 7,
            "queue": "emails",
            "name": "Greeting",
            "state": "done",
            "attempts": 1,
            "createdAt": "2023-11-14T22:13:20.000Z",
            "endedAt": "2023-11-14T22:13:25.000Z",
            "result": {"sent": 3},
            "payload": {"to": "anna"},
        },
    }


def test_a_dead_job_is_told_with_its_reason() -> None:
    told = message(facts(reason="no such user", ended_at=AT + 1234), "job.dead")
    assert told["type"] == "job.dead" and told["timestamp"] == "2023-11-14T22:13:21.234Z"
    assert told["data"]["state"] == "dead" and told["data"]["reason"] == "no such user"
    assert "result" not in told["data"] and "payload" not in told["data"]


def test_secrets_are_hidden_in_the_stored_call_already() -> None:
    payload = wrap(pack({"card": "4111-1111", "user": {"phone": "555", "id": 1}}), JobMetadata(name="x"))
    job = call_job(
        HOOK, "job.done", facts(payload=payload, result=pack({"card": "4111-1111"}), secret=("card", "user.phone"))
    )
    assert b"4111" not in job.data and b"555" not in job.data
    told = read_call(job.data)
    assert told is not None and told.subject.payload is not None
    assert msgspec.json.decode(told.subject.payload) == {"card": "•••", "user": {"phone": "•••", "id": 1}}


def test_a_reason_does_not_quote_a_secret() -> None:
    payload = pack({"card": "4111-1111", "users": [{"pin": 123456}, {"pin": 1234}], "city": "Roma"})
    reason = "card 4111-1111 of 123456 and 1234 in Roma"
    told = message(facts(payload=payload, reason=reason, secret=("card", "users.pin")), "job.dead")["data"]
    assert told["reason"] == "card ••• of ••• and ••• in Roma"
    listed = facts(payload=pack(["4111-1111", "anna"]), reason="anna: card 4111-1111", secret=("card",))
    assert message(listed, "job.dead")["data"]["reason"] == "•••: card •••"
    cut = facts(payload=payload, reason="x" * 1995 + "4111-1111", secret=("card",))
    assert "4111" not in message(cut, "job.dead")["data"]["reason"]
    unreadable = facts(payload=b"\xd9", reason="4111-1111", secret=("card",))
    assert "cannot be read" in message(unreadable, "job.dead")["data"]["reason"]


def test_a_secret_key_that_is_a_number_is_hidden_too() -> None:
    assert message(facts(payload=pack({5: "4111-1111"}), secret=("5",)))["data"]["payload"] == {"5": "•••"}


def test_a_payload_without_field_names_is_left_out_if_some_fields_are_secret() -> None:
    told = message(facts(payload=pack(["anna", "4111-1111"]), secret=("card",)))["data"]
    assert "payload" not in told and "secret" in told["notes"][0]
    assert message(facts(payload=pack(["anna"])))["data"]["payload"] == ["anna"]


def test_a_result_that_is_too_large_is_cut_away_with_a_note() -> None:
    told = message(facts(result=pack("x" * BODY), payload=pack({"to": "anna"})))["data"]
    assert told["result"] is None and told["payload"] == {"to": "anna"}
    [note] = told["notes"]
    assert note.startswith("result left out: it has 262,146 bytes")


@pytest.mark.parametrize("result", ["\x01" * 200_000, "é" * 120_000, [0.1] * 29_000, b"x" * 250_000, "x" * 5_000_000])
@pytest.mark.parametrize("payload", [None, "\x01" * 200_000, "x" * 260_000])
def test_a_message_is_never_larger_than_its_limit(result: object, payload: object) -> None:
    told = facts(result=pack(result), payload=pack(payload), reason="\x01" * 9000, name="né" * 100)
    for event in ("job.done", "job.dead"):
        job = call_job(HOOK, event, told)  # type: ignore[arg-type]
        call = read_call(job.data)
        assert call is not None and len(body(call, AT)) <= BODY and len(job.data) <= BODY


def test_a_store_that_takes_only_small_jobs_gets_a_small_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowed, "payload", 600)
    told = message(facts(reason="x" * 5000, payload=pack("x" * 500)), "job.dead")["data"]
    assert told["id"] == 7 and "the store takes no larger jobs" in told["notes"][0]


@pytest.mark.parametrize(
    "data",
    [
        b"\xc1",
        b"\xd9",
        b"",
        pack({(1, 2): 3}),
        b"\x91" * 500,
        pack(msgspec.msgpack.Ext(5, b"x")),
        b"\xc1\xff\xff\xff\xff",
    ],
)
def test_values_that_cannot_be_written_are_left_out_and_the_call_goes_out(data: bytes) -> None:
    told = message(facts(payload=data, result=data))["data"]
    assert told["result"] is None and "payload" not in told
    assert [note.split(":")[0] for note in told["notes"]] == ["result left out", "payload left out"]


def test_the_message_id_is_the_same_for_one_end_of_a_job_and_differs_for_others() -> None:
    ends = [facts(), facts(attempts=2), facts(id=8), facts(created_at=AT + 1)]
    keys = {call_job(HOOK, "job.done", end).key for end in ends} | {call_job(HOOK, "job.dead", facts()).key}
    assert len(keys) == 5
    assert call_job(HOOK, "job.done", facts()).key == "msg_7_1_1700000000000_done"
    assert all(key and "." not in key for key in keys)  # the signed text is separated by dots


def test_a_worker_makes_calls_without_the_extra() -> None:
    code = "import sys; from accoda.webhooks.call import call_job; print('aiohttp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"
