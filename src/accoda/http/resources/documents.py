"""`/openapi.json`, and `/docs`: a page of our own that shows it, with nothing from elsewhere."""

from __future__ import annotations

from functools import cache, lru_cache
from hashlib import sha256
from importlib import resources
from typing import Any

from msgspec import json

from accoda.http.call import Call, Raw
from accoda.http.openapi import document
from accoda.http.operation import JSON, Reply, operation
from accoda.http.prefix import prefix
from accoda.http.security.identity import LOCAL

GROUP = "Service"
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_FILES = {
    "/docs": ("page.html", "text/html; charset=utf-8"),
    "/docs/page.css": ("page.css", "text/css; charset=utf-8"),
    "/docs/page.js": ("page.js", "text/javascript; charset=utf-8"),
}


@operation(
    "GET",
    "/openapi.json",
    GROUP,
    "This document",
    scope=None,
    replies={
        200: Reply(description="OpenAPI 3.1.", type=dict[str, Any]),
        304: Reply(description="It is as you have it."),
    },
)
async def get_openapi(call: Call[Any, Any, Any]) -> Raw:
    policy = call.options.policy
    secured = policy is not None and not getattr(policy, "no_auth", False)
    # A caller that may do everything without a token needs none here.
    needs_token = call.identity is not LOCAL
    body, etag = _openapi(secured, needs_token, tuple(sorted(call.app.demands)), prefix.get())
    return _cached(call, body, etag, JSON)


async def get_docs(call: Call[Any, Any, Any]) -> Raw:
    name, kind = _FILES[call.target]
    body, etag = _file(name)
    return _cached(call, body, etag, kind, (("content-security-policy", CSP), ("referrer-policy", "no-referrer")))


def _cached(
    call: Call[Any, Any, Any], body: bytes, etag: str, kind: str, more: tuple[tuple[str, str], ...] = ()
) -> Raw:
    headers = (("etag", etag), ("cache-control", "no-cache"), *more)
    asked = [each.strip().removeprefix("W/") for each in (call.header("if-none-match") or "").split(",")]
    if etag in asked or "*" in asked:
        return Raw(b"", kind, 304, headers)
    return Raw(body, kind, 200, headers)


@lru_cache(16)
def _openapi(secured: bool, needs_token: bool, demands: tuple[str, ...], root: str) -> tuple[bytes, str]:
    from accoda.http.table import operations

    made = document(operations(), secured=secured, needs_token=needs_token, demands=demands, root=root)
    return _with_etag(json.encode(made))


@cache
def _file(name: str) -> tuple[bytes, str]:
    return _with_etag(resources.files("accoda.http").joinpath("page", name).read_bytes())


def _with_etag(body: bytes) -> tuple[bytes, str]:
    return body, f'"{sha256(body).hexdigest()[:20]}"'


for _path, (_, _kind) in _FILES.items():
    operation(
        "GET",
        _path,
        GROUP,
        "The API for people",
        scope=None,
        hidden=_path != "/docs",
        replies={
            200: Reply(description="A page.", content_type=_kind.partition(";")[0]),
            304: Reply(description="It is as you have it."),
        },
    )(get_docs)
