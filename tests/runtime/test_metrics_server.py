"""The HTTP server: real requests to a real port."""

import http.client
import socket
import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from accoda import AccodaError, CannotListen
from accoda.errors import InvalidInput
from accoda.runtime.metrics import Metrics, Server, serve


def request(server: Server, path: str, method: str = "GET") -> tuple[int, str, dict[str, str]]:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), dict(answer.getheaders())
    finally:
        connection.close()


@pytest.fixture
def server() -> Iterator[Server]:
    metrics = Metrics()
    metrics.batch_started("emails", 1, 10)
    with serve(0, collect=metrics.page) as server:
        yield server


def test_the_page_is_served_with_its_type(server: Server) -> None:
    status, body, headers = request(server, "/metrics")
    assert status == 200
    assert 'queue_tasks_in_progress{queue="emails",queue_num="1"} 10.0' in body
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert headers["Cache-Control"] == "no-store"
    assert int(headers["Content-Length"]) == len(body.encode())


def test_a_query_after_the_path_changes_nothing(server: Server) -> None:
    assert request(server, "/metrics?debug=1")[0] == 200


def test_head_has_the_headers_only(server: Server) -> None:
    status, body, headers = request(server, "/metrics", "HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 0


@pytest.mark.parametrize("path", ["/", "/metrics/", "/health", "/../etc/passwd"])
def test_other_paths_are_not_found_and_say_what_is_there(server: Server, path: str) -> None:
    status, body, _ = request(server, path)
    assert status == 404
    assert "/health/ready" in body


def test_a_method_that_changes_things_is_refused(server: Server) -> None:
    assert request(server, "/metrics", "POST")[0] == 501


def test_it_listens_on_loopback_alone_unless_told(server: Server) -> None:
    assert server.host == "127.0.0.1"
    assert urlsplit(server.url).port == server.port > 0


def test_it_listens_on_ipv6_too() -> None:
    try:
        server = serve(0, "::1")
    except CannotListen:
        pytest.skip("no IPv6 here")
    with server:
        assert server.url.startswith("http://[::1]:")
        assert request(server, "/health/live")[0] == 200


def test_ready_follows_what_it_is_told() -> None:
    state = (True, "")
    with serve(0, ready=lambda: state) as server:
        assert request(server, "/health/ready")[:2] == (200, "ready\n")
        state = (False, "no take for 30 s though 5 jobs are ready")
        assert request(server, "/health/ready")[:2] == (503, "no take for 30 s though 5 jobs are ready\n")
        assert request(server, "/health/live")[:2] == (200, "alive\n")


def test_a_check_that_raises_is_not_ready() -> None:
    def ready() -> tuple[bool, str]:
        raise RuntimeError("broken check")

    with serve(0, ready=ready) as server:
        status, body, _ = request(server, "/health/ready")
        assert status == 503
        assert "RuntimeError: broken check" in body


def test_a_page_that_raises_is_an_error_and_the_server_goes_on() -> None:
    def collect() -> bytes:
        raise RuntimeError("secret inside")

    with serve(0, collect=collect) as server:
        status, body, _ = request(server, "/metrics")
        assert status == 500
        assert "secret" not in body
        assert request(server, "/health/live")[0] == 200


def test_without_metrics_there_is_health() -> None:
    with serve(0) as server:
        assert request(server, "/metrics")[0] == 404
        assert request(server, "/health/ready")[0] == 200


def test_a_slow_client_does_not_hold_up_the_others(server: Server) -> None:
    with socket.create_connection((server.host, server.port)):
        assert request(server, "/health/live")[0] == 200
        server.close()


def test_a_client_that_goes_away_in_the_middle_is_no_trouble(server: Server) -> None:
    with socket.create_connection((server.host, server.port)) as half:
        half.sendall(b"GET /metr")
    assert request(server, "/metrics")[0] == 200


def test_it_answers_while_another_answer_takes_long() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def collect() -> bytes:
        begun.set()
        go_on.wait(10)
        return b""

    with serve(0, collect=collect) as server:
        slow = threading.Thread(target=request, args=(server, "/metrics"))
        slow.start()
        assert begun.wait(10)
        assert request(server, "/health/live")[0] == 200
        go_on.set()
        slow.join(10)


def test_a_port_in_use_is_named_with_what_to_do(server: Server) -> None:
    with pytest.raises(AccodaError) as caught:
        serve(server.port)
    assert isinstance(caught.value, CannotListen)
    assert caught.value.port == server.port
    assert f"port {server.port} of 127.0.0.1" in str(caught.value)
    assert "--metrics-port" in str(caught.value)


def test_a_host_that_is_not_ours_is_named() -> None:
    with pytest.raises(CannotListen, match="no address of this machine"):
        serve(0, "192.0.2.1")
    with pytest.raises(CannotListen, match="no such host"):
        serve(0, "nowhere.invalid")


@pytest.mark.parametrize("port", [-1, 65536, "9100", True])
def test_what_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(InvalidInput, match="0 to 65535"):
        serve(port)


def test_a_second_close_does_no_harm_and_the_port_is_free_again(server: Server) -> None:
    server.close()
    server.close()
    serve(server.port).close()
