"""The short way past ASGI's messages: what a client sees must be the same as by the long one."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import msgspec
import pytest
from proof.service import ServiceRunner
from raw_http import read_answer, request

from accoda import App
from accoda.http import ServiceOptions
from accoda.http.security import Security

JOBS = "/api/v1/jobs"
JOB = b'{"queue": "emails", "payload": 1}'


@pytest.fixture(scope="module")
def service() -> Iterator[ServiceRunner]:
    options = ServiceOptions(system_jobs=False, policy=Security(allow_origins=("https://shop.example",)))
    with ServiceRunner(App("memory://"), options) as service:
        yield service


@pytest.fixture
def connection(service: ServiceRunner) -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", service.port), timeout=20)) as connection:
        yield connection


def test_many_requests_on_one_connection_are_answered_in_turn(connection: socket.socket) -> None:
    ids = []
    for _ in range(20):
        connection.sendall(request("POST", JOBS, JOB))
        answer = read_answer(connection)
        assert (answer.status, answer.open) == (201, True)
        ids.append(msgspec.json.decode(answer.body)["id"])
        assert answer.headers["location"] == f"{JOBS}/{ids[-1]}"
    assert ids == sorted(set(ids))


def test_requests_that_are_sent_before_the_answers_are_answered_in_their_order(connection: socket.socket) -> None:
    bodies = [msgspec.json.encode({"queue": "emails", "delay": number}) for number in range(5)]
    connection.sendall(b"".join(request("POST", JOBS, body) for body in bodies))
    data = b""
    while data.count(b"HTTP/1.1 201") < 5 or not data.endswith(b"}"):
        data += connection.recv(65536)
    ids = [int(part.split(b",")[0]) for part in data.split(b'{"id":')[1:]]
    assert len(ids) == 5
    assert ids == sorted(ids)


def test_the_two_ways_give_the_same_headers(service: ServiceRunner, connection: socket.socket) -> None:
    connection.sendall(request("POST", JOBS, JOB))
    short = read_answer(connection)
    parts = request("POST", JOBS, JOB)
    connection.sendall(parts[:-5])
    asyncio.run(asyncio.sleep(0.05))  # so that the body comes in two pieces
    connection.sendall(parts[-5:])
    long = read_answer(connection)
    changing = {"location", "date"}
    assert short.headers.keys() == long.headers.keys()
    same = short.headers.keys() - changing - {"content-length"}
    assert {name: short.headers[name] for name in same} == {name: long.headers[name] for name in same}


def test_a_browser_of_an_allowed_origin_gets_its_headers(connection: socket.socket) -> None:
    connection.sendall(request("POST", JOBS, JOB, Origin="https://shop.example"))
    answer = read_answer(connection)
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (201, "https://shop.example")


def test_a_client_that_asks_for_the_end_of_the_connection_gets_it(connection: socket.socket) -> None:
    connection.sendall(request("POST", JOBS, JOB, Connection="close"))
    answer = read_answer(connection)
    assert (answer.status, answer.headers["connection"]) == (201, "close")
    assert connection.recv(10) == b""


def test_a_client_that_waits_for_100_continue_is_told_so(connection: socket.socket) -> None:
    whole = request("POST", JOBS, JOB, Expect="100-continue")
    connection.sendall(whole[: -len(JOB)])
    assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.sendall(JOB)
    assert read_answer(connection).status == 201


def test_a_body_that_is_sent_without_waiting_for_100_continue_is_read_too(connection: socket.socket) -> None:
    connection.sendall(request("POST", JOBS, JOB, Expect="100-continue"))
    answer = read_answer(connection)
    assert answer.status in (100, 201)


def test_chunks_that_come_whole_are_one_body(connection: socket.socket) -> None:
    chunked = b"%x\r\n%b\r\n0\r\n\r\n" % (len(JOB), JOB)
    head = request("POST", JOBS, Transfer_Encoding="chunked", Content_Type="application/json")
    connection.sendall(head + chunked)
    assert read_answer(connection).status == 201


def test_a_client_that_hangs_up_during_a_long_poll_is_noticed(service: ServiceRunner) -> None:
    poll = request("POST", "/api/v1/queues/quiet/take", b'{"count": 1, "wait": 30}')
    with closing(socket.create_connection(("127.0.0.1", service.port), timeout=20)) as gone:
        gone.sendall(poll)
    with closing(socket.create_connection(("127.0.0.1", service.port), timeout=20)) as here:
        here.sendall(poll)
        service.post(JOBS, {"queue": "quiet"})
        answer = read_answer(here)
    assert [job["attempts"] for job in msgspec.json.decode(answer.body)["jobs"]] == [0]


OFFER = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2_Settings": "AAMAAABkAAQAAP__"}


@pytest.mark.parametrize("cut", [10, 150, -40, -34, -33, -10, -1])
def test_an_offer_to_upgrade_is_passed_over_and_its_body_is_its_body(connection: socket.socket, cut: int) -> None:
    whole = request("POST", JOBS, JOB, **OFFER)
    connection.sendall(whole[:cut])
    asyncio.run(asyncio.sleep(0.02))  # so that it comes in two pieces
    connection.sendall(whole[cut:])
    assert read_answer(connection).status == 201
    connection.sendall(request("GET", "/health/live", **OFFER))
    assert read_answer(connection).status == 200
    connection.sendall(request("POST", JOBS, JOB))
    assert read_answer(connection).status == 201


def test_a_body_behind_an_offer_to_upgrade_is_no_request(service: ServiceRunner, connection: socket.socket) -> None:
    hidden = request("POST", JOBS, b'{"queue": "smuggled"}')
    whole = request("POST", JOBS, hidden, **OFFER)
    connection.sendall(whole[: -len(hidden)])
    asyncio.run(asyncio.sleep(0.05))
    connection.sendall(hidden)
    assert read_answer(connection).status == 400
    connection.sendall(request("GET", f"{JOBS}?queue=smuggled"))
    assert msgspec.json.decode(read_answer(connection).body)["items"] == []


def test_chunks_behind_an_offer_to_upgrade_are_its_body(connection: socket.socket) -> None:
    head = request("POST", JOBS, Transfer_Encoding="chunked", Content_Type="application/json", **OFFER)
    connection.sendall(head)
    asyncio.run(asyncio.sleep(0.02))
    connection.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(JOB), JOB))
    assert read_answer(connection).status == 201


def test_what_cannot_be_read_is_not_answered_in_the_place_of_the_request_before_it(connection: socket.socket) -> None:
    poll = request("POST", "/api/v1/queues/still/take", b'{"wait": 0.2}')
    connection.sendall(poll + b"\x00\x01\r\n\r\n")
    assert read_answer(connection).status == 200
    assert read_answer(connection).status == 0


def test_a_body_that_cannot_be_read_is_still_told_so(connection: socket.socket) -> None:
    head = request("POST", JOBS, Transfer_Encoding="chunked", Content_Type="application/json")
    connection.sendall(head + b"no length\r\n")
    assert read_answer(connection).status == 400


def test_a_connection_is_closed_when_nothing_has_come_for_a_while_and_not_before() -> None:
    app = App("memory://")
    with ServiceRunner(app) as service:
        service.server.config.timeout_keep_alive = 1
        with closing(socket.create_connection(("127.0.0.1", service.port), timeout=20)) as used:
            for _ in range(4):  # in use for longer than the timeout
                used.sendall(request("POST", JOBS, JOB))
                assert read_answer(used).status == 201
                time.sleep(0.4)
            used.sendall(request("POST", "/api/v1/queues/quiet/take", b'{"wait": 1.5}'))
            assert read_answer(used).status == 200, "a request that takes longer is not cut off"
            began = time.monotonic()
            assert used.recv(1) == b""
    assert time.monotonic() - began > 0.9
