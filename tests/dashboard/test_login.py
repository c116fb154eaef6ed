"""Tokens as cookies, forms, and what attackers may try with both."""

import asyncio
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlencode

import pytest
from proof.service import Reply, ServiceRunner

from accoda import App
from accoda.http.options import ServiceOptions
from accoda.http.security import Security, token_cache, tokens
from accoda.http.security.guard import FAILURES_AT_ONCE

FORM = "application/x-www-form-urlencoded"
PAUSE = "/do/queues/emails/pause-now"


class Locked(NamedTuple):
    """A service that asks for tokens, and some that it knows."""

    service: ServiceRunner
    admin: str
    read: str
    enqueue: str
    revoked: str

    def get(self, path: str, token: str | None = None, **headers: str) -> Reply:
        return self.service.get(path, **headers, **cookie(token))

    def send(self, path: str, token: str | None, **headers: str) -> Reply:
        """A form, from an unknown page unless the headers say which."""
        body = urlencode({"back": "/"}).encode()
        return self.service.post(path, body, Content_Type=FORM, **headers, **cookie(token))

    def log_in(self, token: str, to: str = "/", **headers: str) -> Reply:
        body = urlencode({"token": token, "next": to}).encode()
        return self.service.post("/login", body, Content_Type=FORM, **{"Origin": self.service.url, **headers})


def cookie(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Cookie": f"other=1; accoda={token}"}


def served(policy: Security) -> Iterator[Locked]:
    app = App("memory://")

    async def make() -> list[str]:
        store = await app.connections.get()
        made = [await tokens.create(store, scope, [scope], now=0) for scope in ("admin", "read", "enqueue", "read")]
        await tokens.revoke(store, made[3][0].id)
        await app.enqueue("emails")
        return [text for _, text in made]

    texts = asyncio.run(make())
    with ServiceRunner(app, ServiceOptions(system_jobs=False, policy=policy)) as service:
        yield Locked(service, *texts)


@pytest.fixture
def locked() -> Iterator[Locked]:
    yield from served(Security(rate=1e6, allow_origins=("https://friend.example",)))


@pytest.fixture
def read_only() -> Iterator[Locked]:
    yield from served(Security(rate=1e6, read_only=True))


def is_paused(locked: Locked) -> bool:
    bearer = {"Authorization": f"Bearer {locked.admin}"}
    return bool(locked.service.get("/api/v1/queues/emails", **bearer).json()["paused"])


def test_a_page_without_a_token_leads_to_the_login_and_back(locked: Locked) -> None:
    reply = locked.get("/queues/emails?span=24h")
    assert (reply.status, reply.headers["location"]) == (303, "/login?next=%2Fqueues%2Femails%3Fspan%3D24h")
    page = locked.get(reply.headers["location"])
    assert page.status == 200 and b'value="/queues/emails?span=24h"' in page.body and b'type="password"' in page.body
    entered = locked.log_in(locked.read, "/queues/emails?span=24h")
    assert (entered.status, entered.headers["location"]) == (303, "/queues/emails?span=24h")
    assert locked.get("/queues/emails", locked.read).status == 200


def test_the_cookie_is_for_no_script_and_no_other_site(locked: Locked) -> None:
    plain = locked.log_in(locked.read).headers["set-cookie"]
    assert plain == f"accoda={locked.read}; Path=/; HttpOnly; SameSite=Strict"
    host = f"127.0.0.1:{locked.service.port}"
    assert locked.log_in(locked.read, Origin=f"https://{host}").headers["set-cookie"].endswith("; Secure")


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "evil"])
def test_the_login_leads_nowhere_else(locked: Locked, to: str) -> None:
    assert locked.log_in(locked.read, to).headers["location"] == "/"
    assert b"evil" not in locked.get("/login?" + urlencode({"next": to})).body


def test_logging_out_ends_the_cookie(locked: Locked) -> None:
    reply = locked.send("/logout", locked.read, Origin=locked.service.url)
    assert reply.status == 303 and "accoda=; Path=/; Max-Age=0" in reply.headers["set-cookie"]


def test_a_wrong_token_is_told_so_and_guessing_is_stopped(locked: Locked) -> None:
    reply = locked.log_in("acc_0000000000_guess")
    assert reply.status == 401 and b"unknown, expired or revoked" in reply.body and "set-cookie" not in reply.headers
    assert b"guess" not in reply.body, "what was typed is not shown again"
    for _ in range(int(FAILURES_AT_ONCE) + 5):
        reply = locked.log_in("acc_0000000000_guess")
    assert reply.status == 429 and locked.log_in(locked.read).status == 303, "a valid token gets in all the same"


@pytest.mark.parametrize("token", ["acc_0000000000_none", "nonsense", ""])
def test_a_cookie_that_is_not_valid_is_dropped_at_the_login(locked: Locked, token: str) -> None:
    reply = locked.get("/", token)
    assert reply.status == 303 and reply.headers["location"] == "/login"
    assert "accoda=; Path=/; Max-Age=0" in reply.headers["set-cookie"]


def test_the_cookie_of_a_revoked_token_opens_nothing(locked: Locked) -> None:
    assert locked.get("/", locked.revoked).status == 303
    assert locked.send(PAUSE, locked.revoked, Origin=locked.service.url).status == 401
    assert locked.get("/live?page=/", locked.revoked).status == 401
    assert not is_paused(locked)


def test_a_cookie_ends_within_seconds_of_its_token(locked: Locked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_cache, "FRESH_FOR", 0.0)
    assert locked.get("/", locked.read).status == 200

    async def revoke() -> None:
        await tokens.revoke(await locked.service.app.connections.get(), locked.read.split("_")[1])

    asyncio.run(revoke())
    for _ in range(200):  # read beside the requests: the one after it knows
        if locked.get("/", locked.read).status == 303:
            return
    pytest.fail("the token is still good")


def test_the_api_takes_no_cookie(locked: Locked) -> None:
    for path in ("/api/v1/queues", "/metrics", "/api/v1/jobs"):
        assert locked.get(path, locked.admin).status == 401, path
    created = locked.service.post("/api/v1/jobs", {"queue": "emails"}, **cookie(locked.admin))
    assert created.status == 401
    form = locked.send("/api/v1/queues/emails/pause", locked.admin, Origin=locked.service.url)
    assert form.status == 401 and not is_paused(locked)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "https://friend.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
        {"Origin": "https://evil.example", "Sec_Fetch_Site": "same-origin"},
    ],
    ids=lambda headers: " ".join(headers.values()) or "silent",
)
def test_a_form_from_elsewhere_does_nothing(locked: Locked, headers: dict[str, str]) -> None:
    """With a cookie that has all rights: as if that browser had been made to send it."""
    for path in (PAUSE, "/login", "/logout"):
        reply = locked.send(path, locked.admin, **headers)
        assert reply.status == 403, (path, reply.status)
    empty = locked.service.post(PAUSE, **headers, **cookie(locked.admin))
    assert empty.status == 403, "without a body it is no better"
    assert not is_paused(locked)


def test_a_form_of_our_own_page_works(locked: Locked) -> None:
    assert locked.send(PAUSE, locked.admin, Origin=locked.service.url).status == 303
    assert is_paused(locked)
    assert locked.send("/do/queues/emails/resume", locked.admin, Sec_Fetch_Site="same-origin").status == 303


def test_a_form_may_not_be_of_another_kind_or_without_end(locked: Locked) -> None:
    own = {"Origin": locked.service.url, **cookie(locked.admin)}
    assert locked.service.post(PAUSE, {"back": "/"}, **own).status == 415
    assert locked.service.post(PAUSE, b"a=1", Content_Type="text/plain", **own).status == 415
    assert locked.service.post(PAUSE, b"a=1", Content_Type="multipart/form-data; boundary=x", **own).status == 415
    assert locked.service.post(PAUSE, b"a=" + b"1" * 300_000, Content_Type=FORM, **own).status == 413
    assert locked.service.post(PAUSE, b"a=%ff", Content_Type=FORM, **own).status == 400
    assert locked.service.post(PAUSE, b"a=1&a=2", Content_Type=FORM, **own).status == 422
    assert not is_paused(locked)


def test_who_may_only_read_sees_no_buttons_and_changes_nothing(locked: Locked) -> None:
    page = locked.get("/queues/emails", locked.read).body
    assert b"<h1>emails</h1>" in page and b"/do/" not in page
    assert b"/do/" in locked.get("/queues/emails", locked.admin).body
    reply = locked.send(PAUSE, locked.read, Origin=locked.service.url)
    assert reply.status == 403 and b"scope" in reply.body and not is_paused(locked)


def test_a_token_for_other_things_sees_nothing(locked: Locked) -> None:
    reply = locked.get("/", locked.enqueue)
    assert reply.status == 403 and b"does not have the scope" in reply.body and b"emails" not in reply.body
    assert locked.get("/live?page=/", locked.enqueue).status == 401


def test_files_and_the_login_are_there_for_everybody(locked: Locked) -> None:
    assert locked.get("/login").status == locked.get("/static/accoda.css").status == 200


def test_htmx_is_led_to_the_login_too(locked: Locked) -> None:
    reply = locked.send(PAUSE, None, Origin=locked.service.url, HX_Request="true")
    assert reply.status == 401 and reply.headers["hx-redirect"] == "/login"


def test_refusals_of_the_guard_are_pages_with_all_their_headers(locked: Locked) -> None:
    reply = locked.get("/", Host="evil.example")
    assert reply.status == 421 and reply.headers["content-type"].startswith("text/html")
    assert reply.headers["x-frame-options"] == "DENY"
    assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
    assert locked.get("/api/v1/jobs", Host="evil.example").headers["content-type"] == "application/problem+json"


def test_read_only_changes_nothing_whoever_asks(read_only: Locked) -> None:
    page = read_only.get("/queues/emails", read_only.admin).body
    assert b"read-only" in page and b"/do/" not in page
    assert read_only.send(PAUSE, read_only.admin, Origin=read_only.service.url).status == 403
    bearer = {"Authorization": f"Bearer {read_only.admin}"}
    for method, path, body in (
        ("POST", "/api/v1/jobs", {"queue": "emails"}),
        ("POST", "/api/v1/queues/emails/pause", {}),
        ("DELETE", "/api/v1/jobs/1", None),
        ("PATCH", "/api/v1/jobs/1", {"priority": "HIGH"}),
    ):
        reply = read_only.service.request(method, path, body, headers=bearer)
        assert reply.status == 403 and "--read-only" in reply.json()["detail"], path
    assert read_only.service.get("/api/v1/jobs/1", **bearer).status == 200
    assert read_only.log_in(read_only.read).status == 303, "it is no change to log in"


def test_without_tokens_there_is_no_login() -> None:
    with ServiceRunner(App("memory://"), ServiceOptions(system_jobs=False, policy=Security())) as service:
        assert service.get("/", Cookie="accoda=acc_0000000000_old").status == 200
        assert b"asks for no token" in service.get("/login").body
        own = {"Origin": service.url, "Content_Type": FORM}
        assert service.post("/login", b"token=x", **own).headers["location"] == "/"
        assert service.post("/do/queues/emails/pause-now", b"", **own).status == 303
        assert service.post("/do/queues/emails/pause-now", b"", Content_Type=FORM).status == 403


def test_a_form_from_elsewhere_does_nothing_where_no_guard_stands_either() -> None:
    with ServiceRunner(App("memory://")) as service:
        for headers in ({}, {"Origin": "https://evil.example"}):
            assert service.post(PAUSE, b"back=/", Content_Type=FORM, **headers).status == 403
