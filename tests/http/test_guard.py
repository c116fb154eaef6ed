"""The guard: paths, names, origins, rates, bodies, and all of them in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, MutableMapping
from typing import Any

import pytest

from accoda.app import App
from accoda.errors import InvalidInput, StorageUnavailable
from accoda.http.problems import ProblemError
from accoda.http.security import Guard, Limits, Security, bodies, check_start, tokens
from accoda.http.security.bodies import Bodies, is_json
from accoda.http.security.hosts import Hosts, is_loopback, read_authority
from accoda.http.security.origins import Origins, is_same
from accoda.http.security.paths import problem_of_path
from accoda.http.security.rates import Rates, address_key

Message = MutableMapping[str, Any]


# -- paths


@pytest.mark.parametrize(
    "path",
    ["/", "/api/v1/jobs", "/api/v1/jobs/17", "/api/v1/queues/a.b-c_d", "/api/v1/x/caf%C3%A9", "/docs/", "/a/b%20c"],
)
def test_a_plain_path_is_looked_at(path: str) -> None:
    assert problem_of_path(path.encode(), 2048) is None


@pytest.mark.parametrize(
    "path",
    [
        "/a%2fb",
        "/a%2Fb",
        "/a%5cb",
        "/a\\b",
        "//evil.example/x",
        "/a//b",
        "/a/../b",
        "/a/..",
        "/.",
        "/./a",
        "/a/%2e%2E/b",
        "/a/.%2e",
        "/a%00",
        "/a%0d%0aX",
        "/a%7f",
        "/a%ff",
        "/a%c0%af",
        "/a%",
        "/a%2",
        "/a%zz",
        "/" + "a" * 2048,
    ],
)
def test_a_path_that_two_parts_of_a_chain_could_read_differently_is_refused(path: str) -> None:
    assert problem_of_path(path.encode("latin-1"), 2048) is not None


# -- hosts


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "localhost.",
        "127.0.0.1:8000",
        "127.9.9.9",
        "[::1]",
        "[::1]:8000",
        "[0:0:0:0:0:0:0:1]:80",
    ],
)
def test_loopback_names_are_answered_with_any_port(host: str) -> None:
    assert Hosts("127.0.0.1").check(host.encode()) is None


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:8000", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("2130706433", 421),
        ("0x7f.1", 421),
        ("192.168.1.7", 421),
        ("0.0.0.0:8000", 421),
        ("", 400),
        (":8000", 400),
        ("localhost:99999", 400),
        ("localhost:80:80", 400),
        ("a@localhost", 400),
        ("localhost/x", 400),
        ("localhost, evil.example", 400),
        ("::1", 400),
        ("[::1", 400),
        ("[127.0.0.1]", 400),
        ("[fe80::1%25eth0]", 400),
        ("loc\xe4l", 400),
    ],
)
def test_other_names_are_refused(host: str, status: int) -> None:
    refusal = Hosts("127.0.0.1").check(host.encode("latin-1"))
    assert refusal is not None
    assert refusal.problem.status == status


def test_allowed_hosts_and_the_bound_address_are_answered() -> None:
    hosts = Hosts("10.0.0.7", ["jobs.example.com", "api.example.com:8443", "[2001:DB8::7]"])
    for good in ("10.0.0.7:8000", "Jobs.Example.com", "jobs.example.com:1", "api.example.com:8443", "[2001:db8::7]:80"):
        assert hosts.check(good.encode()) is None, good
    for bad in ("api.example.com", "api.example.com:80", "10.0.0.8"):
        assert hosts.check(bad.encode()) is not None, bad
    with pytest.raises(InvalidInput, match="allow-host"):
        Hosts("127.0.0.1", ["http://jobs.example.com"])


def test_a_service_on_all_addresses_answers_to_the_one_that_was_reached() -> None:
    hosts = Hosts("0.0.0.0")
    assert hosts.check(b"10.0.0.7:8000", "10.0.0.7") is None
    assert hosts.check(b"10.0.0.7:8000", "10.0.0.8") is not None
    assert Hosts("::").check(b"[2001:db8::7]", "2001:db8:0::7") is None


def test_what_is_remembered_of_host_headers_is_bounded() -> None:
    hosts = Hosts("127.0.0.1")
    for port in range(3000):
        hosts.check(f"localhost:{port}".encode())
    assert len(hosts._known) == 1000


def test_loopback_is_known_in_all_its_forms() -> None:
    assert all(
        is_loopback(host) for host in ("localhost", "LocalHost", "127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1")
    )
    assert not any(is_loopback(host) for host in ("", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.x"))
    assert read_authority(b"A.b:65535") == ("a.b", 65535)


# -- origins


def status_of(refusal: ProblemError | None) -> int | None:
    return None if refusal is None else refusal.problem.status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"origin": "http://localhost:8000"}, None),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "http://localhost:8000.evil.example"}, 403),
        ({"origin": "http://localhost:8000@evil.example"}, 403),
        ({"origin": "file://localhost:8000"}, 403),
        ({"origin": "https://jobs.example.com"}, None),
        ({"origin": "HTTPS://Jobs.Example.com"}, None),
        ({"origin": "https://jobs.example.com:8443"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, None),
        ({"sec-fetch-site": "none"}, None),
    ],
)
def test_what_changes_something_may_come_from_here_or_from_allowed_pages(
    headers: dict[str, str], status: int | None
) -> None:
    origins = Origins(["https://jobs.example.com/"])
    found = {name.encode(): value.encode() for name, value in headers.items()} | {b"host": b"localhost:8000"}
    assert status_of(origins.check("POST", found)) == status
    assert origins.check("GET", found) is None


def test_an_origin_is_the_same_with_and_without_the_port_of_its_scheme() -> None:
    assert is_same(b"https://jobs.example.com", b"jobs.example.com:443")
    assert is_same(b"http://jobs.example.com:80", b"jobs.example.com")
    assert is_same(b"http://[::1]:8000", b"[0::1]:8000")
    assert not is_same(b"https://jobs.example.com", b"jobs.example.com:80")
    assert not is_same(b"http://", b"")


@pytest.mark.parametrize("origin", ["*", "null", "jobs.example.com", "https://a.example/path", "ftp://a.example"])
def test_an_origin_that_is_none_cannot_be_allowed(origin: str) -> None:
    with pytest.raises(InvalidInput, match="allow-origin"):
        Origins([origin])


# -- rates


def test_a_bucket_gives_its_burst_and_then_its_rate() -> None:
    rates = Rates(rate=10.0, burst=3.0)
    assert [rates.wait("a", 100.0) for _ in range(3)] == [0.0, 0.0, 0.0]
    assert rates.wait("a", 100.0) == pytest.approx(0.1)
    assert rates.wait("b", 100.0) == 0.0
    # A refusal costs nothing: a client that keeps trying is served as soon as one that waits.
    assert all(rates.wait("a", 100.0) for _ in range(1000))
    assert rates.wait("a", 100.1) == 0.0
    assert sum(rates.wait("a", 100.1 + step / 1000) == 0.0 for step in range(1, 1001)) == 10


def test_many_addresses_fill_no_memory_and_lock_no_client_out() -> None:
    rates = Rates(rate=1.0, burst=2.0, most=100)
    assert not rates.wait("anna", 0.0)
    for number in range(10_000):
        assert rates.wait(f"10.0.{number // 256}.{number % 256}", 0.0) == 0.0
    assert len(rates) <= 202
    assert rates.wait("anna", 0.0) == 0.0


def test_an_address_is_one_party_and_so_is_a_network_of_one_home() -> None:
    assert address_key("2001:db8::1") == address_key("2001:db8::ffff:1") != address_key("2001:db8:0:1::1")
    assert address_key("::1") == "::1"
    assert address_key("fe80::1%eth0") == address_key("fe80::2%eth0")
    assert address_key("testclient") == "testclient"


# -- bodies


class Sender:
    """Messages of a client, one by one; then it waits for ever, or hangs up."""

    def __init__(self, *parts: bytes, whole: bool = True, hangs_up: bool = False) -> None:
        self.parts = list(parts)
        self.whole = whole
        self.hangs_up = hangs_up
        self.given = 0

    async def __call__(self) -> Message:
        if not self.parts:
            if not self.hangs_up:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}
        part = self.parts.pop(0)
        self.given += len(part)
        return {"type": "http.request", "body": part, "more_body": bool(self.parts) or not self.whole}


async def test_a_body_is_cut_off_as_soon_as_it_is_too_large() -> None:
    sender = Sender(*[b"x" * 1000] * 100)
    with pytest.raises(ProblemError) as caught:
        await Bodies(Limits(body=5000)).read(sender)
    assert caught.value.problem.status == 413
    assert sender.given == 6000


async def test_a_body_that_is_whole_is_given_however_it_came() -> None:
    reader = Bodies(Limits(body=10))
    assert await reader.read(Sender(b"0123456789")) == b"0123456789"
    assert await reader.read(Sender(*[bytes([48 + n]) for n in range(10)])) == b"0123456789"
    assert await reader.read(Sender(b"")) == b""
    with pytest.raises(ProblemError):
        await reader.read(Sender(b"0123456789a"))
    assert reader._held == 0


async def test_a_slow_body_is_given_up_and_a_client_that_left_gets_no_answer() -> None:
    reader = Bodies(Limits(body_time=0.02))
    with pytest.raises(ProblemError) as caught:
        await reader.read(Sender(b"a", b"b", whole=False))
    assert caught.value.problem.status == 408
    with pytest.raises(bodies.ClientGone):
        await reader.read(Sender(b"a", whole=False, hangs_up=True))
    assert reader._held == 0


async def test_a_cancellation_from_outside_is_not_taken_for_a_slow_body() -> None:
    reading = asyncio.ensure_future(Bodies(Limits(body_time=0.01)).read(Sender()))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_each_slow_body_has_its_own_deadline() -> None:
    reader = Bodies(Limits(body_time=0.02))

    async def read() -> float:
        began = asyncio.get_running_loop().time()
        with pytest.raises(ProblemError) as refused:
            await reader.read(Sender())
        assert refused.value.problem.status == 408
        return asyncio.get_running_loop().time() - began

    first = asyncio.ensure_future(read())
    await asyncio.sleep(0.01)
    assert min(await asyncio.gather(first, read())) >= 0.02, "the second is not cut off with the first"
    assert not reader._deadlines._until
    assert not reader._deadlines._over


async def test_all_bodies_together_take_a_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "AT_ONCE", 10_000)
    reader = Bodies(Limits(body=6_000))
    first = asyncio.ensure_future(reader.read(Sender(b"x" * 6_000, whole=False)))
    await asyncio.sleep(0)
    with pytest.raises(ProblemError) as caught:
        await reader.read(Sender(b"x" * 6_000, b""))
    assert caught.value.problem.status == 503
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert len(await reader.read(Sender(b"x" * 6_000, b""))) == 6_000


def test_only_json_is_a_body() -> None:
    for good in (
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
    ):
        assert is_json(good.encode())
    for bad in ("", "text/plain", "application/x-www-form-urlencoded", "text/json", "application/json; charset=latin1"):
        assert not is_json(bad.encode())


# -- policy


def test_a_token_is_needed_where_there_is_one_or_where_others_can_come() -> None:
    assert not Security().needs_token(False)
    assert Security().needs_token(True)
    assert Security(host="0.0.0.0").needs_token(False)
    assert not Security(host="0.0.0.0", no_auth=True).needs_token(True)


def test_another_address_without_a_token_is_refused_with_what_to_type() -> None:
    with pytest.raises(InvalidInput) as caught:
        check_start(Security(host="0.0.0.0"), False, "sqlite:///jobs.db")
    assert "accoda tokens create NAME --scope admin --url sqlite:///jobs.db" in str(caught.value)
    with pytest.raises(InvalidInput, match=r"admin --app jobs:app\n  accoda serve jobs:app --host 0.0.0.0\n"):
        check_start(Security(host="0.0.0.0"), False, "sqlite:///jobs.db", "accoda serve jobs:app", "--app jobs:app")
    check_start(Security(host="0.0.0.0"), True, "")
    check_start(Security(host="0.0.0.0", no_auth=True), False, "")
    check_start(Security(host="::1"), False, "")


def test_a_policy_that_makes_no_sense_is_refused() -> None:
    for wrong in ({"rate": 0.0}, {"rate": float("nan")}, {"burst": 0.5}, {"limits": Limits(body=10)}):
        with pytest.raises(InvalidInput):
            Security(**wrong)


# -- the guard as a whole


class Inner:
    """Stands where the service is; keeps what the guard let through."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.seen: list[tuple[MutableMapping[str, Any], bytes]] = []
        self.headers: list[tuple[bytes, bytes]] = []

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        message = await receive() if scope["method"] != "GET" else {"body": b""}
        self.seen.append((scope, message["body"]))
        await send({"type": "http.response.start", "status": 200, "headers": list(self.headers)})
        await send({"type": "http.response.body", "body": b"ok"})


class GuardedApp:
    """A guard around nothing, with a clock that the test moves."""

    def __init__(self, app: App, security: Security) -> None:
        self.app = app
        self.now = 1000.0
        self.inner = Inner(app)
        self.guard = Guard(self.inner, security, monotonic=lambda: self.now)

    async def send(
        self,
        method: str = "GET",
        path: str = "/api/v1/jobs",
        body: bytes | None = None,
        client: str = "127.0.0.1",
        more: Iterable[tuple[str, str]] = (),
        **headers: str,
    ) -> tuple[int, dict[str, str]]:
        found = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body is not None:
            found |= {"content-type": "application/json", "content-length": str(len(body))} | found
        raw = [(name.encode(), value.encode("latin-1")) for name, value in (*found.items(), *more) if value]
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": raw,
            "client": (client, 5000),
            "server": ("127.0.0.1", 8000),
        }
        sent: list[Message] = []

        async def keep(message: Message) -> None:
            sent.append(message)

        await self.guard(scope, Sender(body or b""), keep)
        answer = [(name.decode(), value.decode()) for name, value in sent[0]["headers"]]
        assert len(dict(answer)) == len(answer), "a header is there twice"
        return sent[0]["status"], dict(answer)

    async def token(self, *scopes: str) -> str:
        return (await tokens.create(self.app.storage, "t", scopes, now=self.now_ms))[1]

    @property
    def now_ms(self) -> int:
        return 1_700_000_000_000

    async def status(self, *args: Any, **headers: Any) -> int:
        return (await self.send(*args, **headers))[0]


@pytest.fixture
async def app() -> AsyncIterator[App]:
    async with App("memory://") as app:
        yield app


async def test_without_any_token_a_service_on_loopback_is_open(app: App) -> None:
    guarded = GuardedApp(app, Security())
    assert await guarded.status("POST", body=b"{}") == 200
    scope, body = guarded.inner.seen[0]
    assert (scope["accoda.identity"].name, body) == ("local", b"{}")


async def test_with_a_token_in_the_store_a_caller_without_one_is_anonymous(app: App) -> None:
    guarded = GuardedApp(app, Security())
    text = await guarded.token("enqueue")
    assert await guarded.status() == 200
    assert guarded.inner.seen[-1][0]["accoda.identity"].name == "anonymous"
    assert await guarded.status(authorization=f"Bearer {text}") == 200
    assert guarded.inner.seen[-1][0]["accoda.identity"].scopes == {"enqueue"}
    assert await guarded.status(authorization=f"bearer {text}") == 200
    await guarded.guard.tokens.close()


async def test_a_token_that_is_shown_must_be_valid_even_where_none_is_needed(app: App) -> None:
    guarded = GuardedApp(app, Security())
    for shown in ("Bearer acc_0000000000_x", "Bearer ", "Basic YTpi", "acc_1_2", "Bearer\tacc"):
        status, headers = await guarded.send(authorization=shown)
        assert status == 401
        assert headers["www-authenticate"].startswith("Bearer realm=")
    assert guarded.inner.seen == []
    assert await GuardedApp(app, Security(no_auth=True)).status(authorization="Bearer x") == 200


async def test_wrong_tokens_from_an_address_never_keep_a_valid_one_out(app: App) -> None:
    guarded = GuardedApp(app, Security())
    text = await guarded.token("read")
    found = [await guarded.status(authorization="Bearer acc_0000000000_x", client="10.0.0.1") for _ in range(30)]
    assert found == [401] * 20 + [429] * 10
    assert await guarded.status(authorization=f"Bearer {text}", client="10.0.0.1") == 200
    assert await guarded.status(authorization="Bearer acc_0000000000_x", client="10.0.0.2") == 401
    guarded.now += 1.0
    assert await guarded.status(authorization="Bearer acc_0000000000_x", client="10.0.0.1") == 401
    await guarded.guard.tokens.close()


async def test_each_token_and_each_address_has_its_own_rate(app: App) -> None:
    guarded = GuardedApp(app, Security(rate=1.0, burst=2.0))
    first, second = await guarded.token("read"), await guarded.token("read")
    assert [await guarded.status(authorization=f"Bearer {first}") for _ in range(3)] == [200, 200, 429]
    assert await guarded.status(authorization=f"Bearer {second}") == 200
    assert [await guarded.status(client="10.0.0.1") for _ in range(3)] == [200, 200, 429]
    status, headers = await guarded.send(client="10.0.0.1")
    assert (status, headers["retry-after"]) == (429, "1")
    assert await guarded.status(client="10.0.0.2") == 200
    await guarded.guard.tokens.close()


async def test_health_is_answered_while_the_store_is_away_and_nothing_else_is(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded = GuardedApp(app, Security())

    async def away(prefix: str) -> Any:
        raise StorageUnavailable("away")

    monkeypatch.setattr(await app.connections.get(), "documents", away)
    assert await guarded.status(path="/health/live") == 200
    assert await guarded.status() == 503


async def test_every_answer_says_what_browsers_may_do_with_it(app: App) -> None:
    guarded = GuardedApp(app, Security())
    for _, headers in (await guarded.send(), await guarded.send(host="evil.example"), await guarded.send(path="//")):
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "server" not in headers
        is_json = headers.get("content-type", "").endswith("json")
        assert is_json or headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    guarded.inner.headers = [(b"content-security-policy", b"default-src 'self'"), (b"cache-control", b"max-age=60")]
    _, headers = await guarded.send()
    assert headers["content-security-policy"] == "default-src 'self'"
    assert headers["cache-control"] == "max-age=60"


async def test_a_preflight_is_answered_for_allowed_origins_alone(app: App) -> None:
    guarded = GuardedApp(app, Security(allow_origins=("https://jobs.example.com",)))
    asks: dict[str, Any] = {"access_control_request_method": "POST"}
    status, headers = await guarded.send("OPTIONS", origin="https://jobs.example.com", **asks)
    assert status == 204
    assert headers["access-control-allow-origin"] == "https://jobs.example.com"
    assert "authorization" in headers["access-control-allow-headers"]
    status, headers = await guarded.send("OPTIONS", origin="https://evil.example", **asks)
    assert status == 403
    assert "access-control-allow-origin" not in headers
    _, headers = await guarded.send(origin="https://jobs.example.com")
    assert (headers["access-control-allow-origin"], headers["vary"]) == ("https://jobs.example.com", "origin")
    _, headers = await guarded.send(origin="https://evil.example")
    assert "access-control-allow-origin" not in headers
    assert await GuardedApp(app, Security()).status("OPTIONS", origin="https://jobs.example.com", **asks) == 403


async def test_what_is_looked_at_may_come_once(app: App) -> None:
    guarded = GuardedApp(app, Security())
    for name in ("host", "origin", "authorization", "content-type", "content-length"):
        headers: dict[str, Any] = {name.replace("-", "_"): "localhost"}
        assert await guarded.status(more=[(name, "localhost")], **headers) == 400, name


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content_type": "text/plain"}, 415),
        ({"content_type": ""}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_encoding": "gzip"}, 415),
        ({"content_encoding": "identity"}, 200),
        ({"content_length": "-1"}, 400),
        ({"content_length": "1e3"}, 400),
        ({"content_length": "9" * 30}, 400),
        ({"content_length": "16777217"}, 413),
        ({"content_length": "0", "content_type": "text/plain"}, 200),
    ],
)
async def test_a_body_must_be_json_of_a_known_and_allowed_length(
    app: App, headers: dict[str, Any], status: int
) -> None:
    monkey = GuardedApp(app, Security())
    assert await monkey.status("POST", body=b"{}", **headers) == status


async def test_a_request_without_a_body_needs_no_content_type(app: App) -> None:
    assert await GuardedApp(app, Security()).status("POST") == 200


async def test_a_refused_token_or_body_never_comes_into_the_log(app: App, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    guarded = GuardedApp(app, Security())
    secret = "acc_0123456789_" + "S" * 43
    status, _ = await guarded.send("POST", body=b"SSSSSSS", authorization=f"Bearer {secret}")
    assert status == 401
    assert await guarded.status("POST", body=b"SSSSSSS", content_type="text/plain") == 415
    assert await guarded.status(path="/a\nb%0a") == 400
    assert "SSSSSSS" not in caplog.text
    assert "refused with 401" in caplog.text
    assert "/a\nb" not in caplog.text


async def test_what_is_no_http_is_closed(app: App) -> None:
    sent: list[Message] = []

    async def keep(message: Message) -> None:
        sent.append(message)

    await GuardedApp(app, Security()).guard({"type": "websocket"}, Sender(), keep)
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def test_nothing_is_written_any_more_when_the_service_closes_its_store(app: App) -> None:
    guarded = GuardedApp(app, Security())
    text = await guarded.token("read")
    assert await guarded.status(authorization=f"Bearer {text}") == 200
    seen: list[tuple[str, bool]] = []

    class Living:
        def __init__(self) -> None:
            self.app = app

        async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            for _ in range(2):
                kind = (await receive())["type"]
                seen.append((kind, all(note.done() for note in notes)))

    notes = list(guarded.guard.tokens._notes)  # the use of the token, which is being written
    assert len(notes) == 1
    messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]
    guarded.guard.inner = Living()

    async def next_message() -> Message:
        return messages.pop(0)

    async def keep(message: Message) -> None:
        pass

    await guarded.guard({"type": "lifespan"}, next_message, keep)
    assert seen == [("lifespan.startup", False), ("lifespan.shutdown", True)]
