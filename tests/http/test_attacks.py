"""Each row of the tables in docs/security.md, sent to a service that really runs."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from proof.service import ServiceRunner
from raw_http import Answer, Served, read_answer, request, serving, talk

from accoda.app import App
from accoda.http.options import ServiceOptions
from accoda.http.security import Limits, Security, tokens
from accoda.http.security.head_bounds import BoundedHeads
from accoda.http.security.token_cache import KNOWN_FOR
from accoda.storage.open import open_storage

DOCS = Path(__file__).parents[2] / "docs" / "security.md"
JOBS = "/api/v1/jobs"
JOB = b'{"queue": "emails"}'
MB = 1_000_000
CHUNK = b"10000\r\n" + b" " * 65536 + b"\r\n"


class AttackedService(NamedTuple):
    """The service under attack, and the tokens that an attacker may have or not."""

    served: Served
    admin: str
    read: str
    expired: str
    revoked: str

    @property
    def port(self) -> int:
        return self.served.port

    def send(self, *parts: bytes) -> Answer:
        return talk(self.port, *parts)

    def post(self, body: bytes = JOB, path: str = JOBS, **headers: str) -> Answer:
        """With an admin token: what is refused is refused for what it is."""
        return talk(self.port, request("POST", path, body, **{**bearer(self.admin), **headers}))

    def get(self, path: str = JOBS, **headers: str) -> Answer:
        return talk(self.port, request("GET", path, **{**bearer(self.admin), **headers}))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttackedService]:
    folder = tmp_path_factory.mktemp("attacks")
    url = f"sqlite:///{folder / 'jobs.db'}"
    made = asyncio.run(make_tokens(url))
    with serving(folder, "--url", url, "--no-system-jobs", "--log-level", "DEBUG") as served:
        yield AttackedService(served, *made)
        log = served.log.read_text()
        assert "Traceback" not in log
        assert not [text for text in made if text.rpartition("_")[2] in log]


async def make_tokens(url: str) -> list[str]:
    now = time.time_ns() // 1_000_000
    async with await open_storage(url) as store:
        made = [
            (await tokens.create(store, "t", [scope], now=now - age, expires_at=expires))[1]
            for scope, age, expires in (
                ("admin", 0, None),
                ("read", 0, None),
                ("admin", 2000, now - 1000),
                ("admin", 0, None),
            )
        ]
        await tokens.revoke(store, made[3].split("_")[1])
    return made


def bearer(text: str) -> dict[str, Any]:
    return {"Authorization": f"Bearer {text}"}


ATTACKS: dict[str, Callable[[AttackedService], Answer]] = {}


def attack(function: Callable[[AttackedService], Answer]) -> Callable[[AttackedService], Answer]:
    ATTACKS[function.__name__.replace("_", "-")] = function
    return function


# -- tokens


@attack
def no_token(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", JOBS))


@attack
def malformed_token(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", JOBS, Authorization="Basic YWRtaW46YWRtaW4="))


@attack
def unknown_token(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", JOBS, **bearer("acc_0123456789_" + "x" * 43)))


@attack
def wrong_secret(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", JOBS, **bearer(attacked.admin[:-1] + "!")))


@attack
def expired_token(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", JOBS, **bearer(attacked.expired)))


@attack
def revoked_token(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", JOBS, **bearer(attacked.revoked)))


@attack
def token_in_query(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", f"{JOBS}?token={attacked.admin}&access_token={attacked.admin}"))


@attack
def two_tokens(attacked: AttackedService) -> Answer:
    return attacked.send(
        request("GET", JOBS, Authorization=f"Bearer {attacked.read}\r\nAuthorization: Bearer {attacked.admin}")
    )


@attack
def wrong_scope(attacked: AttackedService) -> Answer:
    answer = attacked.post(**bearer(attacked.read))
    assert "'enqueue'" in answer.detail
    return answer


@attack
def guessing(attacked: AttackedService) -> Answer:
    wrong = request("GET", JOBS, **bearer("acc_0123456789_guess"))
    found = [attacked.send(wrong) for _ in range(40)]
    assert attacked.get().status == 200  # from the same address, with a valid one
    return found[-1]


# -- whose page it comes from


@attack
def foreign_origin(attacked: AttackedService) -> Answer:
    return attacked.post(Origin="https://evil.example")


@attack
def null_origin(attacked: AttackedService) -> Answer:
    return attacked.post(Origin="null")


@attack
def neighbour_origin(attacked: AttackedService) -> Answer:
    return attacked.post(Origin="http://localhost:3000")


@attack
def cross_site(attacked: AttackedService) -> Answer:
    return attacked.post(Sec_Fetch_Site="cross-site")


@attack
def preflight(attacked: AttackedService) -> Answer:
    return attacked.send(request("OPTIONS", JOBS, Origin="https://evil.example", Access_Control_Request_Method="POST"))


@attack
def foreign_read(attacked: AttackedService) -> Answer:
    answer = attacked.get(Origin="https://evil.example")
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    return answer


@attack
def form_post(attacked: AttackedService) -> Answer:
    return attacked.post(Content_Type="text/plain")


@attack
def urlencoded_post(attacked: AttackedService) -> Answer:
    return attacked.post(b"queue=emails", Content_Type="application/x-www-form-urlencoded")


# -- by which name


@attack
def foreign_host(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", JOBS, host="evil.example", **bearer(attacked.admin)))


@attack
def rebinding_host(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", JOBS, host=f"evil.example:{attacked.port}", **bearer(attacked.admin)))


@attack
def lookalike_host(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", JOBS, host="127.0.0.1.evil.example", **bearer(attacked.admin)))


@attack
def two_hosts(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", JOBS, host="localhost\r\nHost: evil.example", **bearer(attacked.admin)))


@attack
def no_host(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", JOBS, host=None, **bearer(attacked.admin)))


@attack
def absolute_uri(attacked: AttackedService) -> Answer:
    own = attacked.send(
        request("GET", f"http://localhost:{attacked.port}{JOBS}", host="evil.example", **bearer(attacked.admin))
    )
    assert own.status == 200  # the target counts, not the Host header
    return attacked.send(request("GET", f"http://evil.example{JOBS}", **bearer(attacked.admin)))


# -- how much


def flood(attacked: AttackedService, head: bytes, *, peak: int) -> Answer:
    """100 MB after a head, whatever the answer is. The service must not take them into its memory."""
    before = attacked.served.memory()
    answer = talk(attacked.port, head, (CHUNK for _ in range(100 * MB // len(CHUNK))), stubborn=True)
    assert attacked.served.memory() - before < 5 * MB
    assert attacked.served.memory("VmHWM") - before < peak
    assert not answer.open
    return answer


@attack
def large_body(attacked: AttackedService) -> Answer:
    return flood(
        attacked, request("POST", JOBS, b"", **bearer(attacked.admin), Content_Length=str(100 * MB)), peak=5 * MB
    )


@attack
def large_unasked(attacked: AttackedService) -> Answer:
    head = request("POST", JOBS, Content_Type="application/json", Transfer_Encoding="chunked")
    return flood(attacked, head, peak=5 * MB)


@attack
def large_chunks(attacked: AttackedService) -> Answer:
    # Up to the limit it is read: 16 MiB, and for a moment twice as much when the buffer grows.
    head = request("POST", JOBS, **bearer(attacked.admin), Content_Type="application/json", Transfer_Encoding="chunked")
    return flood(attacked, head, peak=40 * MB)


@attack
def compressed_bomb(attacked: AttackedService) -> Answer:
    return attacked.post(Content_Encoding="gzip")


@attack
def large_batch(attacked: AttackedService) -> Answer:
    return attacked.post(b'{"jobs":[' + b",".join([b'{"queue":"flood"}'] * 10_001) + b"]}", f"{JOBS}/batch")


@attack
def large_headers(attacked: AttackedService) -> Answer:
    return attacked.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"x" * 300_000)


@attack
def many_headers(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", JOBS, X="1\r\nX: 1" * 999))


@attack
def slow_body(attacked: AttackedService) -> Answer:
    with strict(limits=Limits(body_time=0.2)) as service:
        return talk(service.port, request("POST", JOBS, b"", Content_Length="100"), b"{")


@attack
def slow_head(attacked: AttackedService) -> Answer:
    with strict() as service:
        return talk(service.port, b"GET / HTTP/1.1\r\nHost: loc")


@attack
def silent_connection(attacked: AttackedService) -> Answer:
    with strict() as service:
        return talk(service.port)


@attack
def too_many_requests(attacked: AttackedService) -> Answer:
    with strict(rate=1.0, burst=3.0) as service:
        found = [talk(service.port, request("GET", JOBS)) for _ in range(4)]
    assert [answer.status for answer in found[:3]] == [200] * 3
    assert found[3].headers["retry-after"] == "1"
    return found[3]


# -- what is in it


@attack
def deep_nesting(attacked: AttackedService) -> Answer:
    return attacked.post(b'{"queue":"emails","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@attack
def deep_payload(attacked: AttackedService) -> Answer:
    return attacked.post(b'{"queue":"emails","payload":' + b"[" * 100 + b"]" * 100 + b"}")


@attack
def huge_number(attacked: AttackedService) -> Answer:
    return attacked.post(b'{"queue":"emails","cost":1' + b"0" * 400 + b"}")


@attack
def huge_payload_number(attacked: AttackedService) -> Answer:
    return attacked.post(b'{"queue":"emails","payload":1' + b"0" * 400 + b"}")


@attack
def not_a_number(attacked: AttackedService) -> Answer:
    return attacked.post(b'{"queue":"emails","delay":NaN}')


@attack
def wrong_utf8(attacked: AttackedService) -> Answer:
    return attacked.post(b'{"queue":"emails","payload":"\xff\xfe"}')


@attack
def nul_in_queue(attacked: AttackedService) -> Answer:
    return attacked.post(b'{"queue":"a\\u0000b"}')


@attack
def path_in_queue(attacked: AttackedService) -> Answer:
    return attacked.post(b'{"queue":"../tokens"}')


@attack
def system_queue(attacked: AttackedService) -> Answer:
    return attacked.post(b'{"queue":"accoda.webhooks","payload":{"url":"http://169.254.169.254/"}}')


@attack
def unknown_field(attacked: AttackedService) -> Answer:
    return attacked.post(b'{"queue":"emails","id":7}')


@attack
def lone_surrogate(attacked: AttackedService) -> Answer:
    return attacked.post(b'{"queue":"emails","name":"\\ud800"}')


@attack
def header_injection(attacked: AttackedService) -> Answer:
    return attacked.post(Idempotency_Key="a\rX-Evil: 1")


@attack
def control_in_key(attacked: AttackedService) -> Answer:
    return attacked.post(Idempotency_Key="a\x01b")


@attack
def newline_in_name(attacked: AttackedService) -> Answer:
    answer = attacked.post(b'{"queue":"emails","name":"a\\r\\nX-Evil: 1"}')
    shown = attacked.get(answer.headers["location"]) if answer.status == 201 else answer
    assert "x-evil" not in answer.headers.keys() | shown.headers.keys()
    return answer


@attack
def newline_in_webhook(attacked: AttackedService) -> Answer:
    return attacked.post(b'{"queue":"emails","webhookUrl":"https://a.example/\\r\\nX-Evil: 1"}')


@attack
def huge_id(attacked: AttackedService) -> Answer:
    return attacked.get(f"{JOBS}/{'9' * 40}")


# -- paths and methods


@attack
def encoded_slash(attacked: AttackedService) -> Answer:
    return attacked.get("/api/v1/queues/a%2f..%2fb")


@attack
def dot_segments(attacked: AttackedService) -> Answer:
    return attacked.get("/health/../api/v1/jobs")


@attack
def encoded_dots(attacked: AttackedService) -> Answer:
    return attacked.get("/health/%2e%2e/api/v1/jobs")


@attack
def double_slash(attacked: AttackedService) -> Answer:
    return attacked.get("//evil.example/api/v1/jobs")


@attack
def nul_in_path(attacked: AttackedService) -> Answer:
    return attacked.get("/api/v1/queues/a%00b")


@attack
def wrong_utf8_in_path(attacked: AttackedService) -> Answer:
    return attacked.get("/api/v1/queues/%c0%af")


@attack
def long_path(attacked: AttackedService) -> Answer:
    return attacked.get("/" + "a" * 5000)


@attack
def trace(attacked: AttackedService) -> Answer:
    return attacked.send(request("TRACE", JOBS, **bearer(attacked.admin)))


@attack
def unknown_method(attacked: AttackedService) -> Answer:
    return attacked.send(request("BREW", JOBS, **bearer(attacked.admin)))


# -- smuggling


@attack
def length_and_chunks(attacked: AttackedService) -> Answer:
    head = request("POST", JOBS, b"", **bearer(attacked.admin), Content_Length="5", Transfer_Encoding="chunked")
    return attacked.send(head + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")


@attack
def two_lengths(attacked: AttackedService) -> Answer:
    return attacked.post(Content_Length="19\r\nContent-Length: 0")


@attack
def odd_coding(attacked: AttackedService) -> Answer:
    head = request(
        "POST", JOBS, **bearer(attacked.admin), Content_Type="application/json", Transfer_Encoding="xchunked"
    )
    return attacked.send(head + JOB)


@attack
def folded_header(attacked: AttackedService) -> Answer:
    return attacked.send(request("GET", JOBS, X="1\r\n Authorization: x", **bearer(attacked.admin)))


@attack
def blank_before_colon(attacked: AttackedService) -> Answer:
    return attacked.send(
        f"GET {JOBS} HTTP/1.1\r\nHost : localhost\r\nAuthorization: Bearer {attacked.admin}\r\n\r\n".encode()
    )


@attack
def upgrade_body(attacked: AttackedService) -> Answer:
    before = stored(attacked)
    hidden = request("POST", JOBS, JOB, **bearer(attacked.admin))
    offer = {"Connection": "Upgrade", "Upgrade": "h2c"}
    whole = request("POST", JOBS, hidden, **bearer(attacked.admin), **offer)
    answer = attacked.send(whole[: -len(hidden)], hidden)
    assert stored(attacked) == before
    return answer


@attack
def rubbish_behind(attacked: AttackedService) -> Answer:
    with socket.create_connection(("127.0.0.1", attacked.port), timeout=10) as connection:
        connection.sendall(request("GET", JOBS, **bearer(attacked.admin)) + b"\x00\x01\r\n\r\n")
        answer = read_answer(connection)
        assert read_answer(connection).status == 0
    return answer


@attack
def short_body(attacked: AttackedService) -> Answer:
    before = stored(attacked)
    with socket.create_connection(("127.0.0.1", attacked.port), timeout=10) as connection:
        connection.sendall(request("POST", JOBS, JOB[:-1], **bearer(attacked.admin), Content_Length=str(len(JOB))))
        connection.shutdown(socket.SHUT_WR)
        data = connection.recv(1000)
    assert stored(attacked) == before
    return Answer(0 if not data else int(data.split()[1]), {}, data)


def stored(attacked: AttackedService) -> bytes:
    answer = attacked.get(f"{JOBS}?queue=emails&limit=500")
    assert answer.status == 200
    return answer.body


class strict(ServiceRunner):
    """The service in this process, without tokens and with other limits: short ones, so that the tests are."""

    def __init__(self, **security: Any) -> None:
        super().__init__(App("memory://"), ServiceOptions(policy=Security(**security), system_jobs=False))

    def __enter__(self) -> strict:
        import accoda.http.server as server

        usual = server.configuration
        hasty = type("Hasty", (BoundedHeads,), {"head_time": 0.2})
        server.configuration = lambda service, **more: usual(service, http=hasty, **more)
        try:
            return super().__enter__()
        finally:
            server.configuration = usual


# -- the tables

ROW = re.compile(r"^\| `(?!webhook-)([a-z0-9-]+)` \| (.+?) \| (?:\*\*)?(\d{3}|closed)\b", re.MULTILINE)
OTHERS = re.compile(r"^\| `(webhook-[a-z0-9-]+)` \| .+ \| .+ \| `(test_\w+)` \|$", re.MULTILINE)


def rows() -> dict[str, int]:
    found = ROW.findall(DOCS.read_text(encoding="utf-8"))
    return {name: 0 if answer == "closed" else int(answer) for name, _, answer in found}


def test_the_table_has_a_row_for_each_attack_and_an_attack_for_each_row() -> None:
    assert list(rows()) == list(ATTACKS)
    assert len(ATTACKS) >= 25


def test_the_rows_about_webhooks_name_tests_that_there_are() -> None:
    found = OTHERS.findall(DOCS.read_text(encoding="utf-8"))
    assert len(found) >= 20
    files = (Path(__file__).parents[1] / "webhooks").glob("test_*.py")
    tests = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [name for _, name in found if f"def {name}(" not in tests] == []


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gets_the_answer_of_its_row(name: str, attacked: AttackedService) -> None:
    answer = ATTACKS[name](attacked)
    assert answer.status == rows()[name], answer
    if answer.status >= 400 and answer.headers.get("content-type") == "application/problem+json":
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert b'"detail"' in answer.body
    assert "server" not in answer.headers
    assert not [text for text in attacked[1:] if text.rpartition("_")[2].encode() in answer.body]


def test_a_client_that_reads_only_after_it_has_sent_all_is_told_why_it_was_refused(attacked: AttackedService) -> None:
    size = 20 * MB
    with socket.create_connection(("127.0.0.1", attacked.port), timeout=20) as connection:
        connection.sendall(request("POST", JOBS, b"", **bearer(attacked.admin), Content_Length=str(size)))
        connection.sendall(b" " * size)
        assert read_answer(connection).status == 413


def test_a_token_that_is_revoked_while_the_service_runs_ends_within_five_seconds(
    attacked: AttackedService, tmp_path: Path
) -> None:
    # The service of its own: its store is written by another process, as `accoda tokens revoke` does.
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    text = asyncio.run(make_tokens(url))[0]
    with serving(tmp_path, "--url", url, "--no-system-jobs") as served:
        ask = request("GET", JOBS, **bearer(text))
        assert talk(served.port, ask).status == 200
        asyncio.run(revoke(url, text))
        until = time.monotonic() + KNOWN_FOR + 3
        while talk(served.port, ask).status == 200 and time.monotonic() < until:
            time.sleep(0.1)
        assert talk(served.port, ask).status == 401


async def revoke(url: str, text: str) -> None:
    async with await open_storage(url) as store:
        assert await tokens.revoke(store, text.split("_")[1])
