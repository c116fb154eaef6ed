"""The service as a whole: paths, methods, bodies, trouble, its life."""

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proof.service import ServiceRunner

from accoda import App
from accoda.errors import AccodaError, StorageUnavailable
from accoda.http import ServiceOptions
from accoda.http.operation import Operation, Reply
from accoda.http.service import Service
from accoda.http.table import operations
from accoda.service import create_service


@pytest.fixture(scope="module")
def service() -> Iterator[ServiceRunner]:
    with ServiceRunner(App("memory://"), ServiceOptions(system_jobs=False, max_body=1000)) as running:
        yield running


def test_a_path_that_is_none_is_a_problem_document(service: ServiceRunner) -> None:
    reply = service.get("/api/v1/nothing")
    assert (reply.status, reply.headers["content-type"]) == (404, "application/problem+json")
    assert reply.json()["type"] == "/docs#not-found"


@pytest.mark.parametrize("path", ["/api/v1/jobs/", "/api/v1/jobs//1", "/api/v1/queues/a/b/c", "//health/live"])
def test_paths_are_taken_literally(service: ServiceRunner, path: str) -> None:
    assert service.get(path).status == 404


def test_a_method_that_is_none_names_those_there_are(service: ServiceRunner) -> None:
    reply = service.request("PUT", "/api/v1/jobs")
    assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD, OPTIONS, POST")
    assert service.request("PURGE", "/api/v1/jobs/1").status == 405
    asked = service.request("OPTIONS", "/api/v1/jobs/1")
    assert (asked.status, asked.headers["allow"]) == (200, "DELETE, GET, HEAD, OPTIONS, PATCH")


def test_head_is_get_without_the_body(service: ServiceRunner) -> None:
    reply = service.request("HEAD", "/api/v1/queues")
    assert (reply.status, reply.body) == (200, b"")
    assert int(reply.headers["content-length"]) > 0


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "is empty"),
        (b"   ", "is empty"),
        (b'{"queue"', "after byte 8"),
        (b'{"queue": oops}', "byte 10"),
        (b'{"queue": "a"} x', "byte 16"),
        (b'{"queue": "\xff"}', "not UTF-8"),
        (b'{"queue": "a", "payload": ' + b"[" * 5000 + b"]" * 5000 + b"}", "bytes"),
        (b"\xef\xbb\xbf{}", "byte 0"),
        (b'{"queue": "a", "key": "\\ud800"}', "not JSON"),
    ],
)
def test_what_is_no_json_is_said_with_its_place(service: ServiceRunner, body: bytes, words: str) -> None:
    reply = service.post("/api/v1/jobs", body)
    assert reply.status in (400, 413)
    assert words in reply.json()["detail"]


def test_json_without_end_is_refused(service: ServiceRunner) -> None:
    with ServiceRunner(App("memory://")) as roomy:
        deep = roomy.post("/api/v1/jobs", b'{"queue": "a", "payload": ' + b"[" * 5000 + b"]" * 5000 + b"}")
    assert (deep.status, "deep" in deep.json()["detail"]) == (400, True)


@pytest.mark.parametrize("body", [b"7", b'"x"', b"null", b"[]"])
def test_a_body_that_is_no_object_is_refused(service: ServiceRunner, body: bytes) -> None:
    reply = service.post("/api/v1/jobs", body)
    assert (reply.status, reply.json()["field"]) == (422, "body")


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/xml", "application/json; charset=latin-1", "application/x"]
)
def test_a_body_of_another_kind_is_refused(service: ServiceRunner, kind: str) -> None:
    assert service.post("/api/v1/jobs", b'{"queue": "a"}', content_type=kind).status == 415


@pytest.mark.parametrize(
    "kind", ["application/json", "application/json; charset=utf-8", 'Application/JSON;charset="UTF-8"']
)
def test_json_may_name_its_charset(service: ServiceRunner, kind: str) -> None:
    assert service.post("/api/v1/jobs", b'{"queue": "a"}', content_type=kind).status == 201


def test_a_body_where_none_is_read_is_refused(service: ServiceRunner) -> None:
    assert service.request("POST", "/api/v1/jobs/1/retry", {"a": 1}).status == 422


def test_a_body_over_the_limit_is_refused_in_one_piece_and_in_chunks(service: ServiceRunner) -> None:
    body = b'{"queue": "a", "payload": "' + b"x" * 2000 + b'"}'
    assert service.post("/api/v1/jobs", body).status == 413
    chunks = b"".join(b"%x\r\n%s\r\n" % (500, body[at : at + 500]) for at in range(0, 2000, 500))
    head = (
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as wire:
        wire.sendall(head + chunks + b"0\r\n\r\n")
        assert wire.recv(4096).startswith(b"HTTP/1.1 413")


def test_a_query_that_is_no_text_is_refused(service: ServiceRunner) -> None:
    assert service.get("/api/v1/jobs?queue=%ff").status == 400
    assert service.get("/api/v1/jobs?" + "&".join(f"a{n}=1" for n in range(60))).status == 400


def test_no_answer_is_kept_by_a_cache_or_guessed_at(service: ServiceRunner) -> None:
    for reply in (service.get("/api/v1/jobs"), service.get("/api/v1/nothing")):
        assert (reply.headers["cache-control"], reply.headers["x-content-type-options"]) == ("no-store", "nosniff")


async def ask(service: Service, path: str) -> tuple[int, dict[bytes, bytes], bytes]:
    """One request without a server."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await service({"type": "http", "method": "GET", "path": path, "query_string": b"", "headers": []}, receive, send)
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def one(handler: Any) -> Service:
    operation = Operation(
        method="GET", path="/x", handler=handler, group="x", summary="x", replies={200: Reply(description="x")}
    )
    return Service(App("memory://"), ServiceOptions(), [operation])


async def test_an_unforeseen_error_is_logged_and_not_shown_to_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(call: Any) -> None:
        raise ZeroDivisionError("the secret is 4711")

    with caplog.at_level(logging.ERROR, "accoda.http"):
        status, _, body = await ask(one(fail), "/x")
    assert (status, b"4711" in body) == (500, False)
    mark = body.decode().split("urn:accoda:log:")[1][:12]
    assert mark in caplog.text
    assert "4711" in caplog.text


async def test_a_store_that_is_away_is_503_with_a_time_to_come_again(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(call: Any) -> None:
        raise StorageUnavailable("no route to db-7.internal:5432")

    status, headers, body = await ask(one(fail), "/x")
    assert (status, headers[b"retry-after"], b"db-7" in body) == (503, b"5", False)
    assert "db-7" in caplog.text


async def test_an_answer_is_not_lost_with_its_cancelled_request() -> None:
    async def wait(call: Any) -> None:
        await asyncio.Event().wait()

    request = asyncio.ensure_future(ask(one(wait), "/x"))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request


def test_two_operations_in_one_place_are_a_mistake_that_is_found_at_the_start() -> None:
    table = operations()
    with pytest.raises(ValueError, match="two operations"):
        Service(App("memory://"), ServiceOptions(), [table[0], table[0]])


def test_the_names_of_all_operations_differ() -> None:
    names = [operation.name for operation in operations() if not operation.hidden]
    assert len(set(names)) == len(names)


def test_a_service_may_be_started_again(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    for number in range(2):
        with ServiceRunner(app) as running:
            assert running.post("/api/v1/jobs", {"queue": "a"}).json()["id"] == number + 1


def test_a_service_whose_store_cannot_be_opened_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").write_bytes(b"this is no database, but a text that is longer than a header" * 20)
    with pytest.raises(RuntimeError, match="did not start"), ServiceRunner(App(f"sqlite:///{tmp_path}/jobs.db")):
        pass


def test_a_service_runs_system_jobs_unless_told_otherwise() -> None:
    with ServiceRunner(App("memory://"), ServiceOptions(system_jobs=True)) as running:
        made = running.post("/api/v1/dead/replay", {"filter": {}})
        assert made.status == 202


def test_create_service_gives_the_service_itself_without_a_policy() -> None:
    assert isinstance(create_service(App("memory://")), Service)


@pytest.mark.parametrize("missing", ["starlette", "uvicorn", "httptools"])
def test_a_missing_library_is_told_with_its_cure(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(AccodaError, match=rf"needs {missing}; install it with: pip install 'accoda\[http\]'"):
        create_service(App("memory://"))


def test_importing_the_package_imports_none_of_its_libraries() -> None:
    code = "import sys, accoda.http; print(sorted({'starlette', 'uvicorn', 'httptools'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
