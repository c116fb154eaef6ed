"""How a log line looks: for people, or as JSON. Both hold whatever text comes, in one line."""

from __future__ import annotations

import logging
import os
import sys
from datetime import UTC, datetime
from typing import Literal, TextIO, get_args

import msgspec

from accoda.errors import InvalidInput
from accoda.runtime.logs.text import one_line, safe_json

Format = Literal["human", "json"]

_LEVELS = {"DEBUG": "DEBUG", "INFO": "INFO", "WARNING": "WARN", "ERROR": "ERROR", "CRITICAL": "FATAL"}
_COLOURS = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[1;31m"}
_PLAIN = "\x1b[0m"
_WIDEST = 20
# What every record has; all the rest came with `extra`. taskName is there since Python 3.12.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Ours(logging.StreamHandler[TextIO]):
    """The handler that `configure` puts up, so that the next `configure` finds and replaces it."""


def configure(format: Format = "human", level: int | str = "INFO", stream: TextIO | None = None) -> None:
    """Write the logs of Accoda to stderr (or `stream`). A second call replaces the first; no other logger changes."""
    if format not in get_args(Format):
        raise InvalidInput("log format", f"must be one of {', '.join(get_args(Format))}, not {format!r}")
    number = _level(level)
    out = sys.stderr if stream is None else stream
    tracebacks = number <= logging.DEBUG
    handler = _Ours(out)
    handler.setFormatter(
        JsonFormatter(tracebacks=tracebacks)
        if format == "json"
        else HumanFormatter(colour=wants_colour(out), tracebacks=tracebacks)
    )
    logger = logging.getLogger("accoda")
    for old in [old for old in logger.handlers if isinstance(old, _Ours)]:
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(number)
    logger.propagate = False  # else a program that configured the root as well would see each line twice


def wants_colour(stream: TextIO) -> bool:
    """Only on a terminal, and not where the user said no (no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


class HumanFormatter(logging.Formatter):
    """`12:03:04 INFO  emails  50 jobs in 0.12 s: 48 done, 2 retried`: local time, level, queue or part, what happened.

    With `tracebacks`, those of errors follow, indented, so that no line of theirs looks like a line of the log.
    """

    def __init__(self, *, colour: bool = False, tracebacks: bool = False) -> None:
        super().__init__()
        self._colour = colour
        self._tracebacks = tracebacks
        self._width = 6

    def format(self, record: logging.LogRecord) -> str:
        subject = one_line(str(getattr(record, "queue", None) or record.name.rpartition(".")[2]))
        # The column grows to the widest name seen, so that lines stand below each other without wasting the screen.
        self._width = max(self._width, min(len(subject), _WIDEST))
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        level = f"{_LEVELS.get(record.levelname, one_line(record.levelname)):<5}"
        colour = _COLOURS.get(record.levelname) if self._colour else None
        if colour:
            level = f"{colour}{level}{_PLAIN}"
        line = f"{time} {level} {subject:<{self._width}}  {one_line(_message(record))}"
        error = _error(record)
        if error:
            line += f" ({one_line(error)})"
        if self._tracebacks and record.exc_info:
            trace = self.formatException(record.exc_info)
            line += "".join(f"\n    | {one_line(part)}" for part in trace.splitlines())
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts (RFC 3339, UTC), level, logger, message, and what came with `extra`."""

    def __init__(self, *, tracebacks: bool = False) -> None:
        super().__init__()
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        error = _error(record)
        if error:
            fields["error"] = error
        if self._tracebacks and record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        for name, value in vars(record).items():
            if name not in _STANDARD:
                fields[f"{name}_" if name in fields else name] = value
        return safe_json(_encode(fields))


def _encode(fields: dict[str, object]) -> str:
    try:
        return msgspec.json.encode(fields, enc_hook=str).decode()
    except Exception:  # what JSON cannot hold becomes text; the other fields stay as they are
        return msgspec.json.encode({_valid(name): _field(value) for name, value in fields.items()}).decode()


def _field(value: object) -> msgspec.Raw:
    try:
        return msgspec.Raw(msgspec.json.encode(value, enc_hook=str))
    except Exception:  # a lone surrogate, a key that is no text, a circle
        return msgspec.Raw(msgspec.json.encode(_valid(value)))


def _valid(value: object) -> str:
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text.encode("utf-8", "replace").decode()


def _message(record: logging.LogRecord) -> str:
    """The message; one whose arguments do not fit is shown as it was written, rather than lost."""
    try:
        return record.getMessage()
    except Exception:
        return f"{record.msg} {record.args!r}"


def _error(record: logging.LogRecord) -> str:
    """Type and message of the error that came with the record. Never a variable: those may hold a payload."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return ""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _level(level: int | str) -> int:
    if isinstance(level, int):
        return level
    number = getattr(logging, level.upper()) if level.upper() in _LEVELS else None
    if number is None:
        raise InvalidInput("log level", f"must be one of {', '.join(_LEVELS).lower()}, not {level!r}")
    return int(number)
