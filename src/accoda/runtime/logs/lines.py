"""How a log line looks: for people, or as JSON. Both hold whatever text comes, in one line; a traceback follows it."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import msgspec

from accoda.errors import AccodaError
from accoda.masking import NO_MASK, Mask
from accoda.retry import describe
from accoda.runtime.logs.job_filter import JOB_FIELDS, MASK
from accoda.runtime.logs.text import one_line, plural, safe_json

LEVELS = {"DEBUG": "DEBUG", "INFO": "INFO", "WARNING": "WARN", "ERROR": "ERROR", "CRITICAL": "FATAL"}
LONGEST_TRACE = 32_768
"""Characters of a traceback: its end, which tells most."""
_COLOURS = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[1;31m"}
_PLAIN = "\x1b[0m"
_WIDEST = 20
# What every record has; all the rest came with `extra`. taskName is there since Python 3.12.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", MASK}


class HumanFormatter(logging.Formatter):
    """`12:03:04 INFO  emails  job 7, attempt 1: sending`: local time, level, queue or part, job, what happened.

    Tracebacks are indented, so that no line of theirs looks like a line of the log.
    """

    def __init__(self, *, colour: bool = False) -> None:
        super().__init__()
        self._colour = colour
        self._width = 6

    def format(self, record: logging.LogRecord) -> str:
        mask = _mask(record)
        subject = one_line(_subject(record))
        # The column grows to the widest name seen, so that lines stand below each other without wasting the screen.
        self._width = max(self._width, min(len(subject), _WIDEST))
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        level = f"{LEVELS.get(record.levelname, one_line(record.levelname)):<5}"
        colour = _COLOURS.get(record.levelname) if self._colour else None
        if colour:
            level = f"{colour}{level}{_PLAIN}"
        said = f"{_job(record)}{mask.text(_message(record))}"
        trace, error = _trace(self, record, mask), _error(record)
        if error is not None and not trace:
            said += f" ({mask.text(describe(error))})"
        return f"{time} {level} {subject:<{self._width}}  {one_line(said)}" + "".join(
            f"\n    | {one_line(part)}" for part in trace.splitlines()
        )


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts (RFC 3339, UTC), level, logger, message, and what came with `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        mask = _mask(record)
        fields: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask.text(_message(record)),
        }
        error = _error(record)
        if error is not None:
            fields["error"] = mask.text(describe(error))
        trace = _trace(self, record, mask)
        if trace:
            fields["traceback"] = trace
        for name, value in vars(record).items():
            if name in _STANDARD or (name == "type" and value is None):
                continue
            if not mask.empty and name not in JOB_FIELDS:
                value = mask.value(msgspec.json.decode(_field(value)))
            fields[f"{name}_" if name in fields else name] = value
        return safe_json(_encode(fields))


def _subject(record: logging.LogRecord) -> str:
    """The queue; of a line that is about none, the part of Accoda or the whole name of another logger."""
    return str(getattr(record, "queue", None) or record.name.removeprefix("accoda."))


def _job(record: logging.LogRecord) -> str:
    """Which job, or how many jobs of a batch, the line is about."""
    found = vars(record)
    words: list[str] = [] if found.get("type") is None else [f"{found['type']}"]
    if found.get("job_id") is not None:
        words.append(f"job {found['job_id']}")
        words += [] if found.get("attempt") is None else [f"attempt {found['attempt']}"]
    elif isinstance(jobs := found.get("batch_jobs"), int):
        words.append(f"batch of {plural(jobs, 'job')}")
    else:
        return ""
    return f"{', '.join(words)}: "


def _trace(formatter: logging.Formatter, record: logging.LogRecord, mask: Mask) -> str:
    error = _error(record)
    text = record.exc_text or (
        "" if error is None or not record.exc_info else formatter.formatException(record.exc_info)
    )
    if isinstance(error, AccodaError) and record.name.startswith("accoda."):
        # Our own errors say what to do, and while a store is away they come again and again: a line each is enough.
        text = ""
    if record.stack_info:
        text = f"{text}\n{record.stack_info}".lstrip()
    # Secrets first, then the cut: half of a secret would not be found. What is far too long is cut before.
    return mask.text(text[-4 * LONGEST_TRACE :])[-LONGEST_TRACE:].rstrip()


def _error(record: logging.LogRecord) -> BaseException | None:
    return record.exc_info[1] if record.exc_info else None


def _mask(record: logging.LogRecord) -> Mask:
    found = getattr(record, MASK, NO_MASK)
    return found if isinstance(found, Mask) else NO_MASK


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
        text = record.getMessage()
    except Exception:
        return f"{record.msg} {record.args!r}"
    if record.name == "py.warnings":  # "file:line: category: text", and below it the line of code
        first, _, code = text.rstrip().rpartition("\n")
        return first if first and code.startswith("  ") else text.rstrip()
    return text
