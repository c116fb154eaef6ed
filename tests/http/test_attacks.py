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
from raw_http import Answer, Served, read_answer, request, serving, talk

from accoda.app import App
from accoda.http.options import ServiceOptions
from accoda.http.security import Limits, Security, tokens
from accoda.http.security.book import KNOWN_FOR
from accoda.http.security.protocol import BoundedProtocol
from accoda.storage.open import open_storage
from accoda.testing.service import ServiceRunner

DOCS = Path(__file__).parents[2] / "docs" / "security.md"
JOBS = "/api/v1/jobs"
JOB = b'{"queue": "emails"}'
MB = 1_000_000
CHUNK = b"10000\r\n" + b" " * 65536 + b"\r\n"


class World(NamedTuple):
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
        """As somebody who may do everything: what is refused is refused for what it is."""
        return talk(self.port, request("POST", path, body, **{**bearer(self.admin), **headers}))

    def get(self, path: str = JOBS, **headers: str) -> Answer:
        return talk(self.port, request("GET", path, **{**bearer(self.admin), **headers}))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("attacks")
    url = f"sqlite:///{folder / 'jobs.db'}"
    made = asyncio.run(make_tokens(url))
    with serving(folder, "--url", url, "--no-errands", "--log-level", "DEBUG") as served:
        yield World(served, *made)
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


ATTACKS: dict[str, Callable[[World], Answer]] = {}


def attack(function: Callable[[World], Answer]) -> Callable[[World], Answer]:
    ATTACKS[function.__name__.replace("_", "-")] = function
    return function


# -- who asks


@attack
def no_token(world: World) -> Answer:
    return world.send(request("GET", JOBS))


@attack
def malformed_token(world: World) -> Answer:
    return world.send(request("GET", JOBS, Authorization="Basic YWRtaW46YWRtaW4="))


@attack
def unknown_token(world: World) -> Answer:
    return world.send(request("GET", JOBS, **bearer("acc_0123456789_" + "x" * 43)))


@attack
def wrong_secret(world: World) -> Answer:
    return world.send(request("GET", JOBS, **bearer(world.admin[:-1] + "!")))


@attack
def expired_token(world: World) -> Answer:
    return world.send(request("GET", JOBS, **bearer(world.expired)))


@attack
def revoked_token(world: World) -> Answer:
    return world.send(request("GET", JOBS, **bearer(world.revoked)))


@attack
def token_in_query(world: World) -> Answer:
    return world.send(request("GET", f"{JOBS}?token={world.admin}&access_token={world.admin}"))


@attack
def two_tokens(world: World) -> Answer:
    return world.send(request("GET", JOBS, Authorization=f"Bearer {world.read}\r\nAuthorization: Bearer {world.admin}"))


@attack
def wrong_scope(world: World) -> Answer:
    answer = world.post(**bearer(world.read))
    assert "'enqueue'" in answer.detail
    return answer


@attack
def guessing(world: World) -> Answer:
    wrong = request("GET", JOBS, **bearer("acc_0123456789_guess"))
    found = [world.send(wrong) for _ in range(40)]
    assert world.get().status == 200  # from the same address, with a valid one
    return found[-1]


# -- whose page it comes from


@attack
def foreign_origin(world: World) -> Answer:
    return world.post(Origin="https://evil.example")


@attack
def null_origin(world: World) -> Answer:
    return world.post(Origin="null")


@attack
def neighbour_origin(world: World) -> Answer:
    return world.post(Origin="http://localhost:3000")


@attack
def cross_site(world: World) -> Answer:
    return world.post(Sec_Fetch_Site="cross-site")


@attack
def preflight(world: World) -> Answer:
    return world.send(request("OPTIONS", JOBS, Origin="https://evil.example", Access_Control_Request_Method="POST"))


@attack
def foreign_read(world: World) -> Answer:
    answer = world.get(Origin="https://evil.example")
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    return answer


@attack
def form_post(world: World) -> Answer:
    return world.post(Content_Type="text/plain")


@attack
def urlencoded_post(world: World) -> Answer:
    return world.post(b"queue=emails", Content_Type="application/x-www-form-urlencoded")


# -- by which name


@attack
def foreign_host(world: World) -> Answer:
    return world.send(request("GET", JOBS, host="evil.example", **bearer(world.admin)))


@attack
def rebinding_host(world: World) -> Answer:
    return world.send(request("GET", JOBS, host=f"evil.example:{world.port}", **bearer(world.admin)))


@attack
def lookalike_host(world: World) -> Answer:
    return world.send(request("GET", JOBS, host="127.0.0.1.evil.example", **bearer(world.admin)))


@attack
def two_hosts(world: World) -> Answer:
    return world.send(request("GET", JOBS, host="localhost\r\nHost: evil.example", **bearer(world.admin)))


@attack
def no_host(world: World) -> Answer:
    return world.send(request("GET", JOBS, host=None, **bearer(world.admin)))


@attack
def absolute_uri(world: World) -> Answer:
    own = world.send(request("GET", f"http://localhost:{world.port}{JOBS}", host="evil.example", **bearer(world.admin)))
    assert own.status == 200  # the target counts, not the Host header
    return world.send(request("GET", f"http://evil.example{JOBS}", **bearer(world.admin)))


# -- how much


def flood(world: World, head: bytes, *, peak: int) -> Answer:
    """100 MB after a head, whatever the answer is. The service must not take them into its memory."""
    before = world.served.memory()
    answer = talk(world.port, head, (CHUNK for _ in range(100 * MB // len(CHUNK))), stubborn=True)
    assert world.served.memory() - before < 5 * MB
    assert world.served.memory("VmHWM") - before < peak
    assert not answer.open
    return answer


@attack
def large_body(world: World) -> Answer:
    return flood(world, request("POST", JOBS, b"", **bearer(world.admin), Content_Length=str(100 * MB)), peak=5 * MB)


@attack
def large_unasked(world: World) -> Answer:
    head = request("POST", JOBS, Content_Type="application/json", Transfer_Encoding="chunked")
    return flood(world, head, peak=5 * MB)


@attack
def large_chunks(world: World) -> Answer:
    # Up to the limit it is read: 16 MiB, and for a moment twice as much when the buffer grows.
    head = request("POST", JOBS, **bearer(world.admin), Content_Type="application/json", Transfer_Encoding="chunked")
    return flood(world, head, peak=40 * MB)


@attack
def compressed_bomb(world: World) -> Answer:
    return world.post(Content_Encoding="gzip")


@attack
def large_batch(world: World) -> Answer:
    return world.post(b'{"jobs":[' + b",".join([b'{"queue":"flood"}'] * 10_001) + b"]}", f"{JOBS}/batch")


@attack
def large_headers(world: World) -> Answer:
    return world.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"x" * 300_000)


@attack
def many_headers(world: World) -> Answer:
    return world.send(request("GET", JOBS, X="1\r\nX: 1" * 999))


@attack
def slow_body(world: World) -> Answer:
    with strict(limits=Limits(body_time=0.2)) as service:
        return talk(service.port, request("POST", JOBS, b"", Content_Length="100"), b"{")


@attack
def slow_head(world: World) -> Answer:
    with strict() as service:
        return talk(service.port, b"GET / HTTP/1.1\r\nHost: loc")


@attack
def silent_connection(world: World) -> Answer:
    with strict() as service:
        return talk(service.port)


@attack
def too_many_requests(world: World) -> Answer:
    with strict(rate=1.0, burst=3.0) as service:
        found = [talk(service.port, request("GET", JOBS)) for _ in range(4)]
    assert [answer.status for answer in found[:3]] == [200] * 3
    assert found[3].headers["retry-after"] == "1"
    return found[3]


# -- what is in it


@attack
def deep_nesting(world: World) -> Answer:
    return world.post(b'{"queue":"emails","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


@attack
def deep_payload(world: World) -> Answer:
    return world.post(b'{"queue":"emails","payload":' + b"[" * 100 + b"]" * 100 + b"}")


@attack
def huge_number(world: World) -> Answer:
    return world.post(b'{"queue":"emails","cost":1' + b"0" * 400 + b"}")


@attack
def huge_payload_number(world: World) -> Answer:
    return world.post(b'{"queue":"emails","payload":1' + b"0" * 400 + b"}")


@attack
def not_a_number(world: World) -> Answer:
    return world.post(b'{"queue":"emails","delay":NaN}')


@attack
def wrong_utf8(world: World) -> Answer:
    return world.post(b'{"queue":"emails","payload":"\xff\xfe"}')


@attack
def nul_in_queue(world: World) -> Answer:
    return world.post(b'{"queue":"a\\u0000b"}')


@attack
def path_in_queue(world: World) -> Answer:
    return world.post(b'{"queue":"../tokens"}')


@attack
def system_queue(world: World) -> Answer:
    return world.post(b'{"queue":"accoda.webhooks","payload":{"url":"http://169.254.169.254/"}}')


@attack
def unknown_field(world: World) -> Answer:
    return world.post(b'{"queue":"emails","id":7}')


@attack
def lone_surrogate(world: World) -> Answer:
    return world.post(b'{"queue":"emails","name":"\\ud800"}')


@attack
def header_injection(world: World) -> Answer:
    return world.post(Idempotency_Key="a\rX-Evil: 1")


@attack
def control_in_key(world: World) -> Answer:
    return world.post(Idempotency_Key="a\x01b")


@attack
def newline_in_name(world: World) -> Answer:
    answer = world.post(b'{"queue":"emails","name":"a\\r\\nX-Evil: 1"}')
    shown = world.get(answer.headers["location"]) if answer.status == 201 else answer
    assert "x-evil" not in answer.headers.keys() | shown.headers.keys()
    return answer


@attack
def newline_in_webhook(world: World) -> Answer:
    return world.post(b'{"queue":"emails","webhookUrl":"https://a.example/\\r\\nX-Evil: 1"}')


@attack
def huge_id(world: World) -> Answer:
    return world.get(f"{JOBS}/{'9' * 40}")


# -- paths and methods


@attack
def encoded_slash(world: World) -> Answer:
    return world.get("/api/v1/queues/a%2f..%2fb")


@attack
def dot_segments(world: World) -> Answer:
    return world.get("/health/../api/v1/jobs")


@attack
def encoded_dots(world: World) -> Answer:
    return world.get("/health/%2e%2e/api/v1/jobs")


@attack
def double_slash(world: World) -> Answer:
    return world.get("//evil.example/api/v1/jobs")


@attack
def nul_in_path(world: World) -> Answer:
    return world.get("/api/v1/queues/a%00b")


@attack
def wrong_utf8_in_path(world: World) -> Answer:
    return world.get("/api/v1/queues/%c0%af")


@attack
def long_path(world: World) -> Answer:
    return world.get("/" + "a" * 5000)


@attack
def trace(world: World) -> Answer:
    return world.send(request("TRACE", JOBS, **bearer(world.admin)))


@attack
def unknown_method(world: World) -> Answer:
    return world.send(request("BREW", JOBS, **bearer(world.admin)))


# -- smuggling


@attack
def length_and_chunks(world: World) -> Answer:
    head = request("POST", JOBS, b"", **bearer(world.admin), Content_Length="5", Transfer_Encoding="chunked")
    return world.send(head + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")


@attack
def two_lengths(world: World) -> Answer:
    return world.post(Content_Length="19\r\nContent-Length: 0")


@attack
def odd_coding(world: World) -> Answer:
    head = request("POST", JOBS, **bearer(world.admin), Content_Type="application/json", Transfer_Encoding="xchunked")
    return world.send(head + JOB)


@attack
def folded_header(world: World) -> Answer:
    return world.send(request("GET", JOBS, X="1\r\n Authorization: x", **bearer(world.admin)))


@attack
def blank_before_colon(world: World) -> Answer:
    return world.send(
        f"GET {JOBS} HTTP/1.1\r\nHost : localhost\r\nAuthorization: Bearer {world.admin}\r\n\r\n".encode()
    )


@attack
def upgrade_body(world: World) -> Answer:
    before = stored(world)
    hidden = request("POST", JOBS, JOB, **bearer(world.admin))
    offer = {"Connection": "Upgrade", "Upgrade": "h2c"}
    whole = request("POST", JOBS, hidden, **bearer(world.admin), **offer)
    answer = world.send(whole[: -len(hidden)], hidden)
    assert stored(world) == before
    return answer


@attack
def rubbish_behind(world: World) -> Answer:
    poll = request("POST", "/api/v1/queues/rubbish/take", b'{"wait": 30}', **bearer(world.admin))
    return world.send(poll + b"\x00\x01\r\n\r\n")


@attack
def short_body(world: World) -> Answer:
    before = stored(world)
    with socket.create_connection(("127.0.0.1", world.port), timeout=10) as connection:
        connection.sendall(request("POST", JOBS, JOB[:-1], **bearer(world.admin), Content_Length=str(len(JOB))))
        connection.shutdown(socket.SHUT_WR)
        data = connection.recv(1000)
    assert stored(world) == before
    return Answer(0 if not data else int(data.split()[1]), {}, data)


def stored(world: World) -> bytes:
    answer = world.get(f"{JOBS}?queue=emails&limit=500")
    assert answer.status == 200
    return answer.body


class strict(ServiceRunner):
    """The service in this process, without tokens and with other limits: short ones, so that the tests are."""

    def __init__(self, **security: Any) -> None:
        super().__init__(App("memory://"), ServiceOptions(policy=Security(**security), errands=False))

    def __enter__(self) -> strict:
        import accoda.http.server as server

        usual = server.configuration
        hasty = type("Hasty", (BoundedProtocol,), {"head_time": 0.2})
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
def test_an_attack_gets_the_answer_of_its_row(name: str, world: World) -> None:
    answer = ATTACKS[name](world)
    assert answer.status == rows()[name], answer
    if answer.status >= 400 and answer.headers.get("content-type") == "application/problem+json":
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert b'"detail"' in answer.body
    assert "server" not in answer.headers
    assert not [text for text in world[1:] if text.rpartition("_")[2].encode() in answer.body]


def test_a_client_that_reads_only_after_it_has_sent_all_is_told_why_it_was_refused(world: World) -> None:
    size = 20 * MB
    with socket.create_connection(("127.0.0.1", world.port), timeout=20) as connection:
        connection.sendall(request("POST", JOBS, b"", **bearer(world.admin), Content_Length=str(size)))
        connection.sendall(b" " * size)
        assert read_answer(connection).status == 413


def test_a_token_that_is_revoked_while_the_service_runs_ends_within_five_seconds(world: World, tmp_path: Path) -> None:
    # The service of its own: its store is written by another process, as `accoda tokens revoke` does.
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    text = asyncio.run(make_tokens(url))[0]
    with serving(tmp_path, "--url", url, "--no-errands") as served:
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
