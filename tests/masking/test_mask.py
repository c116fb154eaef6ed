"""A secret is not visible in what comes out of a run, in whatever form and place; ordinary text stays as it is."""

from __future__ import annotations

import base64
import io
import json
import logging
import string
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from accoda import App, Batch, Worker, WorkerOptions
from accoda.envelope import HIDDEN
from accoda.limits import TEXT
from accoda.masking import Mask, mask_of
from accoda.masking.mask import MOST
from accoda.model import ById, NewJob
from accoda.operations import jobs
from accoda.runtime.attempts import trace_of
from accoda.runtime.events import BatchReport
from accoda.runtime.logs import HumanFormatter, JsonFormatter, LogMonitor, configure
from accoda.webhooks.call import QUEUE, body, read_call

PEM = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(
    base64.b64encode(bytes((7 * n * n + 31 * line + n) % 256 for n in range(48))).decode() for line in range(5)
) + "\nQx9/\n-----END PRIVATE KEY-----\n"  # fmt: skip
SECRETS = (
    "hunter2", "4111 1111 1111 1111", "pässwörd-№1", "a+b/c=d&e?f%41", 'say "hi" \\ it\'s', "C:\\new\\table", PEM,
    "tk-51HqLyjWDarjtT1zdp7dc", "😀 emoji 😀", "straße 17", "密码是很长的秘密文字", "1234", "tab\tnul\x01end", "%25",
    PEM.replace("\n", "\\n"),
)  # fmt: skip
ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "repr": repr,
    "repr of bytes": lambda secret: repr(secret.encode()),
    "JSON": json.dumps,
    "JSON in Unicode": lambda secret: json.dumps(secret, ensure_ascii=False),
    "JSON in JSON": lambda secret: json.dumps(json.dumps({"k": secret})),
    "URL": quote,
    "URL, all of it": lambda secret: quote(secret, safe=""),
    "URL, as JavaScript does": lambda secret: quote(secret, safe="!~*'()"),
    "form": quote_plus,
    "URL twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 without padding": lambda secret: base64.b64encode(secret.encode()).decode().rstrip("="),
    "base64 for URLs": lambda secret: base64.urlsafe_b64encode(secret.encode()).decode(),
    "base64 in lines": lambda secret: base64.encodebytes(secret.encode()).decode(),
    "hex": lambda secret: secret.encode().hex(),
    "capitals": str.upper,
    "small letters": str.lower,
    "capitals in JSON": lambda secret: json.dumps(secret).upper(),
    "hex in capitals": lambda secret: secret.encode().hex().upper(),
}


def traced(text: str, mask: Mask, raise_it: Callable[[str], None]) -> str:
    try:
        raise_it(text)
    except BaseException as error:
        return trace_of(error, mask)
    raise AssertionError


def plainly(text: str) -> None:
    raise ValueError(f"refused: {text}")


def chained(text: str) -> None:
    try:
        plainly(text)
    except ValueError as error:
        raise RuntimeError("no payment") from error


def noted(text: str) -> None:
    error = ValueError("refused")
    error.add_note(f"it was {text}")
    raise error


def grouped(text: str) -> None:
    raise ExceptionGroup("two", [ValueError(text), ExceptionGroup("more", [KeyError(text)])])


PLACES: dict[str, Callable[[str, Mask], str]] = {
    "error": lambda text, mask: mask.text(f"ValueError: refused: {text}, try 2"),
    "traceback": lambda text, mask: traced(text, mask, plainly),
    "chain": lambda text, mask: traced(text, mask, chained),
    "note": lambda text, mask: traced(text, mask, noted),
    "group": lambda text, mask: traced(text, mask, grouped),
    "result": lambda text, mask: json.dumps(mask.value({"a": [text], text: 1}), ensure_ascii=False),
}


def visible(secret: str, coded: str, shown: str) -> bool:
    """Whether the secret can be read in a text: as it was written there, or line by line, or decoded."""
    bare = coded.strip("\"'=\n")
    lines = [line for line in (*secret.splitlines(), *bare.splitlines()) if len(line) >= 4]
    found = {text.casefold() for text in (secret, bare, *lines)}
    return any(text in shown.casefold() for text in found)


def check(secret: str) -> None:
    mask = Mask.of(secret)
    for encoding, encode in ENCODINGS.items():
        coded = encode(secret)
        for place, show in PLACES.items():
            shown = show(coded, mask)
            assert not visible(secret, coded, shown), (encoding, place, shown)
            assert HIDDEN in shown or json.dumps(HIDDEN)[1:-1] in shown, (encoding, place, shown)


@pytest.mark.parametrize("secret", SECRETS, ids=range(len(SECRETS)))
def test_a_secret_is_visible_in_no_form_and_no_place(secret: str) -> None:
    check(secret)


printable = st.characters(
    min_codepoint=32, max_codepoint=0x2FFF, exclude_categories=("Cs", "Cn", "Co", "Cc", "Zl", "Zp")
)
tokens = st.text(string.ascii_letters + string.digits + "+/_-=.", min_size=8, max_size=60)


@settings(max_examples=15, deadline=None)
@given(st.text(printable, min_size=8, max_size=60) | tokens | st.text(string.digits, min_size=4, max_size=19))
def test_no_secret_is_visible_in_any_form_and_any_place(secret: str) -> None:
    letters = {char for char in secret.casefold() if char.isalnum()}
    assume(len(letters) >= 3)  # one letter and blanks is in every text by itself
    check(secret)


@settings(max_examples=100, deadline=None)
@given(st.text(string.ascii_letters + string.digits, min_size=24, max_size=60), st.data())
def test_pieces_of_a_secret_are_not_visible(secret: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(secret) - 8))
    piece = secret[start : data.draw(st.integers(start + 8, len(secret)))]
    assume(len(piece) >= 16 or any(char.isdigit() for char in piece))
    shown = Mask.of(secret).text(f"it ends with {piece}!")
    assert piece.casefold() not in shown.casefold() and shown.startswith("it ends wi") and shown.endswith(f"{HIDDEN}!")


WORDS = (
    "ValueError: no such user; the password for https://api.example.com/v1/users/anna@example.com was wrong. "
    "TimeoutError: no answer from 10.0.0.7:443 after 30.5 s (request 'a91f'), try 3 of 5 "
    "psycopg.OperationalError: connection to postgresql database refused %s %d 100% C:\\temp\\new café 東京 naïve"
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(WORDS.split()), max_size=40).map(" ".join), st.text(printable, max_size=60) | tokens)
def test_ordinary_text_is_not_changed(text: str, secret: str) -> None:
    mask, lines = Mask.of(secret), [*secret.splitlines(), secret]
    assume(not any(len(line.encode()) >= 3 and line.strip().casefold() in text.casefold() for line in lines))
    flat = "".join(char for char in text.casefold() if char.isalnum())
    known = "".join(char for char in secret.casefold() if char.isalnum())
    assume(known not in flat or len(known) > 8)
    assume(not any(known[at : at + 7] in flat for at in range(len(known) - 6)))
    assert mask.text(text) == text
    assert mask.value({text: [text, 7, True, None, 2.5]}) == {text: [text, 7, True, None, 2.5]}


def test_words_of_a_secret_that_are_in_every_text_stay() -> None:
    mask = Mask.of("https://anna:x9-k2-pq@db.example.com/postgresql", "the password is 77-xq-81")
    text = "the password for https://db.example.com was wrong, says postgresql"
    assert mask.text(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pin 123 refused", "pin ••• refused"),
        ("pin=123, '123'", "pin=•••, '•••'"),
        ("after 1234 ms, id 5123, x123y", "after 1234 ms, id 5123, x123y"),
        ("base64 MTIz or hex 313233", "base64 ••• or hex •••"),
        ("12-3 and 1 23", "12-3 and 1 23"),
        ("pin%20123%20", "pin%20•••%20"),
    ],
)
def test_a_short_secret_is_hidden_where_it_stands_alone(text: str, shown: str) -> None:
    assert Mask.of("123").text(text) == shown


def test_a_secret_inside_something_that_was_encoded_as_a_whole_is_hidden() -> None:
    mask = Mask.of("s3cr3t-p4ss")
    for user in ("a", "ab", "abc"):
        header = base64.b64encode(f"{user}:s3cr3t-p4ss".encode()).decode()
        assert mask.text(f"Authorization: Basic {header}").count(HIDDEN) == 1
        assert header[-8:] not in mask.text(header)
        whole = base64.b64encode(json.dumps({user: "qwertzuiop", "x": 1}).encode()).decode()
        assert HIDDEN in Mask.of("qwertzuiop").text(whole), "letters only, and something before and after it"


def test_bytes_and_numbers_are_secrets_too() -> None:
    key = bytes(range(200, 232))
    mask = Mask.of(key, 4711.25, {"pin": 90210, "flag": True, "none": None})
    for text in (repr(key), key.hex(), base64.b64encode(key).decode()):
        assert mask.text(f"<{text}>").removeprefix("<b'").strip("<'=>") == HIDDEN
    assert mask.text("90210 of 4711.25 is True, None") == "••• of ••• is True, None"
    assert mask.value([90210, 4711.25, 7]) == [HIDDEN, HIDDEN, 7]


def test_a_secret_that_was_cut_with_its_text_is_not_half_shown() -> None:
    mask = Mask.of("xyzzy7", "correct-horse-battery-staple")
    for secret in ("xyzzy7", "correct-horse-battery-staple"):
        for kept in {3, 4, len(secret) // 2, len(secret) - 1}:
            assert mask.text("." * (TEXT - kept) + secret[:kept]).strip(".") in (HIDDEN, f"{HIDDEN}-")
            assert mask.text(secret[-kept:] + "." * (TEXT - kept)).strip(".") in (HIDDEN, f"-{HIDDEN}")


def test_a_secret_that_is_too_long_to_be_looked_for_hides_the_text() -> None:
    assert Mask.of("x1" * MOST).text("ValueError: no") == HIDDEN


def test_masking_takes_no_longer_than_the_text_and_the_secret_are_long() -> None:
    hostile = ["\\" * 60_000, "%25" * 20_000, "\\u00" * 15_000, "0" * 60_000, "ab" * 30_000]
    mask = Mask.of("0" * 8000, "ab" * 2000, "\\" * 3000)
    started = time.process_time()
    for text in hostile:
        mask.text(text)
    assert time.process_time() - started < 20, "seconds of this process; it is below one, and quadratic would be hours"


async def run_all(app: App, log: io.StringIO) -> list[BatchReport]:
    """A worker until nothing is left, with its log in both formats and with tracebacks."""
    reports: list[BatchReport] = []

    class Monitor(LogMonitor):
        def batch_ended(self, report: BatchReport) -> None:
            reports.append(report)
            super().batch_ended(report)

    handlers = [logging.StreamHandler(log) for _ in range(2)]
    for handler, formatter in zip(handlers, (HumanFormatter(), JsonFormatter()), strict=True):
        handler.setFormatter(formatter)
    logger = logging.getLogger("accoda")
    level, propagate = logger.level, logger.propagate
    logger.handlers[:0], logger.propagate = handlers, False
    logger.setLevel(logging.DEBUG)
    try:
        options = WorkerOptions(burst=True, managed=False, system_jobs=False, monitors=(Monitor(),))
        await Worker(app, options).run()
    finally:
        logger.setLevel(level)
        logger.propagate = propagate
        for handler in handlers:
            logger.removeHandler(handler)
    return reports


@pytest.mark.parametrize("secret", [SECRETS[2], PEM], ids=["password", "key"])
async def test_a_secret_in_any_form_is_in_nothing_that_a_run_leaves(secret: str) -> None:
    app, log = App("memory://"), io.StringIO()

    @app.handler("fails", secret=("key",), max_attempts=1)
    async def fails(payload: dict[str, str]) -> None:
        try:
            raise KeyError(ENCODINGS[payload["how"]](payload["key"]))
        except KeyError as error:
            error.add_note(ENCODINGS[payload["how"]](payload["key"]))
            raise ExceptionGroup(f"with {ENCODINGS[payload['how']](payload['key'])}", [error]) from error

    @app.handler("echoes", secret=("key",), keep_for=60)
    async def echoes(payload: dict[str, str]) -> dict[str, Any]:
        coded = ENCODINGS[payload["how"]](payload["key"])
        return {"all": payload, "key": coded, "echo": [f"<{coded}>"], coded: 1, "raw": payload["key"].encode()}

    async with app:
        hook = "https://hooks.example.com/jobs"
        ids = {}
        for how in ENCODINGS:
            for handler in (fails, echoes):
                ids[(await handler.enqueue({"key": secret, "how": how}, webhook=hook)).id] = how
        reports = await run_all(app, log)
        calls = [(read_call(job.data), job) for job in await app.storage.browse(QUEUE, "ready", limit=100)]
        assert len(calls) == len(ids) and HIDDEN in log.getvalue()
        told = {call.subject.id: body(call, 0).decode() for call, _ in calls if call is not None}
        for id, how in ids.items():
            view = await jobs.get(app, id)
            stored = (await app.storage.look(ById(id))).job
            assert view.state in ("dead", "done") and stored is not None
            runs = [f"{run.error}\n{run.traceback}" for run in await jobs.failed_runs(app, id)]
            seen = [
                view.reason or "",
                json.dumps(view.result, ensure_ascii=False),
                stored.reason or "",
                told[id],
                *runs,
            ]
            for text in (*seen, log.getvalue(), *(report.stats.last_error for report in reports)):
                assert not visible(secret, ENCODINGS[how](secret), text), (how, text)
            if view.state == "done":
                assert (await app.result(id))["key"] == ENCODINGS[how](secret), "in Python it is whole"


async def test_what_a_handler_of_whole_batches_raises_quotes_no_job_of_the_batch() -> None:
    app = App("memory://")

    @app.handler("pay", secret=("card",), max_attempts=1)
    async def pay(batch: Batch[dict[str, str]]) -> None:
        raise ValueError(f"cannot pay with {[job.payload for job in batch]}")

    async with app:
        made = [await pay.enqueue({"card": f"card-number-{n}77"}) for n in range(3)]
        await app.run_until_idle()
        for one in made:
            job = await app.find(one.id)
            [run] = await jobs.failed_runs(app, one.id)
            assert job is not None and "card-number" not in f"{job.reason}{run.traceback}{run.error}"


async def test_a_job_without_an_envelope_is_masked_by_its_handlers_fields() -> None:
    app, log = App("memory://"), io.StringIO()

    class Card(msgspec.Struct, array_like=True):
        owner: str
        number: str

    @app.handler("pay", secret=("number",), max_attempts=1)
    async def pay(card: Card) -> None:
        raise ValueError(f"{card.owner}: {card!r}")

    async with app:
        [made] = await app.storage.enqueue([NewJob("pay", msgspec.msgpack.encode(["Anna", "4111-2222-3333"]))])
        await run_all(app, log)
        job = await app.find(made.id)
        assert job is not None and job.reason == "failed: ValueError: Anna: Card(owner='Anna', number='•••')"
        assert "4111" not in log.getvalue() and HIDDEN in log.getvalue()


def test_a_payload_whose_fields_have_no_names_is_secret_as_a_whole() -> None:
    data = msgspec.msgpack.encode(["Anna Meier", "4111-2222-3333"])
    assert mask_of(data, ("card",)).text("Anna Meier has 4111-2222-3333") == "••• has •••"
    assert mask_of(data, ()).text("Anna Meier") == "Anna Meier"


class Loud(msgspec.Struct):
    card: str

    def __post_init__(self) -> None:
        logging.getLogger("shop").info("made with %s", len(self.card))


async def test_what_a_handler_logs_is_masked_also_where_its_payload_logs_when_it_is_made() -> None:
    app, log = App("memory://"), io.StringIO()

    @app.handler("pay", secret=("card",))
    async def pay(loud: Loud) -> None:
        logging.getLogger("shop").info("paying with %s", loud.card)
        logging.getLogger("shop").info("and again with %r", loud, extra={"order": loud})

    configure("json", "info", log)
    async with app:
        await pay.enqueue(Loud("4111 1111 1111 1111"))
        await app.run_until_idle()
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    said = [line for line in lines if line["logger"] == "shop" and "job_id" in line]
    assert [line["message"] for line in said] == ["paying with •••", "and again with Loud(card='•••')"]
    assert said[1]["order"] == {"card": "•••"} and "1111" not in log.getvalue()
