"""The one place that says what to install when the extra `http` is missing."""

from __future__ import annotations

from importlib import import_module

from accoda.errors import AccodaError

NEEDED = ("starlette", "uvicorn", "httptools")


def require() -> None:
    """Refuse to go on without the libraries of the extra, with the command that installs them."""
    for name in NEEDED:
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise AccodaError(f"the HTTP service needs {name}; install it with: pip install 'accoda[http]'") from error
