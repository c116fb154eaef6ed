"""`configure`: where log lines go, and from which level on. Only the command line calls it by itself."""

from __future__ import annotations

import logging
import os
import sys
from typing import Literal, TextIO, get_args

from msgspec import Struct

from accoda.errors import InvalidInput
from accoda.runtime.logs.job_filter import JobFilter
from accoda.runtime.logs.job_lines import log as jobs_log
from accoda.runtime.logs.lines import LEVELS, HumanFormatter, JsonFormatter

Format = Literal["human", "json"]

CHATTY = (
    "aiobotocore", "aiokafka", "azure", "boto3", "botocore", "elastic_transport", "gql", "grpc", "h2", "hpack",
    "httpcore", "httpx", "kafka", "matplotlib", "numexpr", "opensearch", "paramiko", "pika", "PIL", "pymongo",
    "s3transfer", "snowflake", "urllib3", "websockets",
)  # fmt: skip
"""Loggers of libraries that log each request or connection at INFO or DEBUG: from WARNING on, unless the app says
otherwise."""


class LogOptions(Struct, frozen=True):
    """How `configure` was called: child processes do the same."""

    format: Format | None
    level: int
    jobs: bool


class _Ours(logging.StreamHandler[TextIO]):
    """The handler that `configure` puts up, so that the next `configure` finds and replaces it."""


_said: LogOptions | None = None


def configure(
    format: Format | None = None, level: int | str = "INFO", stream: TextIO | None = None, *, jobs: bool = False
) -> None:
    """Write all log lines, also those of your own loggers and of `warnings`, to stderr (or `stream`).

    Without a format: for people, unless the root logger has handlers already. Then the program has configured logging
    itself, and only the level of Accoda's own lines is set. `jobs`: a line when a job starts, and one when it ends. A
    second call replaces the first.
    """
    global _said
    if format is not None and format not in get_args(Format):
        raise InvalidInput("log format", f"must be one of {', '.join(get_args(Format))}, not {format!r}")
    number = _level(level)
    _said = LogOptions(format, number, jobs) if stream is None else None
    root, accoda = logging.getLogger(), logging.getLogger("accoda")
    for old in [old for old in root.handlers if isinstance(old, _Ours)]:
        root.removeHandler(old)
    if jobs:
        jobs_log.setLevel(logging.INFO)
    if format is None and root.handlers:
        if accoda.level == logging.NOTSET:
            accoda.setLevel(number)
        return
    root.addHandler(_handler(format, sys.stderr if stream is None else stream))
    root.setLevel(number)
    logging.captureWarnings(True)
    for name in CHATTY:
        library = logging.getLogger(name)
        if library.level == logging.NOTSET:
            library.setLevel(max(number, logging.WARNING))


def as_told() -> LogOptions | None:
    """How `configure` was called last; None: never, or for a stream that other processes do not have."""
    return _said


def wants_colour(stream: TextIO) -> bool:
    """Only on a terminal, and not where the user said no (no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def _handler(format: Format | None, stream: TextIO) -> logging.Handler:
    handler = _Ours(stream)
    handler.setFormatter(JsonFormatter() if format == "json" else HumanFormatter(colour=wants_colour(stream)))
    handler.addFilter(JobFilter())
    return handler


def _level(level: int | str) -> int:
    if isinstance(level, int):
        return level
    number = getattr(logging, level.upper()) if level.upper() in LEVELS else None
    if number is None:
        raise InvalidInput("log level", f"must be one of {', '.join(LEVELS).lower()}, not {level!r}")
    return int(number)
