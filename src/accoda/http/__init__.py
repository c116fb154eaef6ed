"""The service: an HTTP API over `accoda.operations` for people and for programs that are not Python workers.

See docs/http.md.

Starlette, uvicorn and httptools are the extra `http`; nothing of them is imported before a service is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accoda.http.options import ServiceOptions
    from accoda.http.server import Server

__all__ = ["Server", "ServiceOptions"]

_HOMES = {"ServiceOptions": "options", "Server": "server"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"accoda.http.{_HOMES[name]}"), name)
