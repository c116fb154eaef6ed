"""Settings in YAML, read from the parser's events: nothing is constructed, and scalars stay the text that was written.

So `no`, `on` or `1:30` mean what they say (a queue may be called `no`), a tag can do nothing, and every value has its
line. Aliases are refused: a few lines of them can stand for millions of values.
"""

from __future__ import annotations

from typing import Any

from accoda.errors import SettingsError
from accoda.settings.entries import Entry
from accoda.settings.places import Path

_DEPTH = 16
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_TAGS = frozenset(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "null", "map"))


def read_yaml(text: str, file: str) -> list[Entry]:
    """Every value of the file with its path and line."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise SettingsError(f"{file}: YAML needs PyYAML; install it with: pip install 'accoda[yaml]'") from error
    # The C loader where there is one: the other is the same, and slower.
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    reader = _Reader(file)
    try:
        for event in yaml.parse(text, Loader=loader):
            reader.see(type(event).__name__, event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # At the end of the file the parser may name the line after the last.
        where = f"{file}:{min(mark.line + 1, len(text.splitlines()))}" if mark else file
        raise SettingsError(f"{where}: not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{file}: not valid YAML: {str(error).splitlines()[0]}") from error
    return reader.entries


class _Table:
    """A mapping that is being read: `key` waits for its value."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.key: str | None = None
        self.seen: dict[str, int] = {}


class _Reader:
    def __init__(self, file: str) -> None:
        self.entries: list[Entry] = []
        self._file = file
        self._open: list[_Table] = []
        self._documents = 0

    def see(self, kind: str, event: Any) -> None:
        """Take one event of the parser. Depth is checked as tables open, so a deep file costs only its beginning."""
        if getattr(event, "tag", None) not in (None, "!", *_TAGS):
            raise self._error(event, f"the tag {str(event.tag)[:60]!r} means nothing in settings; remove it")
        match kind:
            case "AliasEvent":
                raise self._error(event, f"aliases (*{event.anchor[:60]}) are not read; write the value out")
            case "DocumentStartEvent":
                self._documents += 1
                if self._documents > 1:
                    raise self._error(event, "a second document begins here; settings are one document")
            case "SequenceStartEvent":
                raise self._error(event, "a list is no setting")
            case "MappingStartEvent":
                self._begin(event)
            case "MappingEndEvent":
                self._open.pop()
            case "ScalarEvent":
                self._scalar(event)

    def _begin(self, event: Any) -> None:
        path: Path = ()
        if self._open:
            table = self._open[-1]
            if table.key is None:
                raise self._error(event, "a table cannot be a name")
            path, table.key = (*table.path, table.key), None
        if len(path) >= _DEPTH:
            raise self._error(event, f"tables are nested more than {_DEPTH} deep; no setting is")
        self._open.append(_Table(path))

    def _scalar(self, event: Any) -> None:
        plain = event.style is None or event.style == ""
        if not self._open:
            if not (plain and event.value in _NULLS):
                raise self._error(event, "settings must be tables with names, such as  worker: {queue: …}")
            return
        table, line = self._open[-1], event.start_mark.line + 1
        if table.key is None:
            if event.value in table.seen:
                first = table.seen[event.value]
                raise self._error(event, f"{event.value[:60]!r} is here a second time, first in line {first}")
            table.seen[event.value], table.key = line, event.value
            return
        raw = None if plain and event.value in _NULLS else event.value
        path, table.key = (*table.path, table.key), None
        self.entries.append(Entry(path, raw, f"{self._file}:{line}"))

    def _error(self, event: Any, reason: str) -> SettingsError:
        return SettingsError(f"{self._file}:{event.start_mark.line + 1}: {reason}")
