"""From a template and what a view gives to HTML. Everything is escaped, and a name that is not there is an error."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct

from accoda.clock import Clock, SystemClock
from accoda.dashboard import charts, files, words

MOST_SHOWN = 64 * 1024
"""Characters of one payload or traceback that a page shows."""

_clock: ContextVar[Clock] = ContextVar("clock", default=SystemClock())  # noqa: B039  # it is never changed
"""Whose time it is while a template is rendered."""


class Frame(Struct, frozen=True, kw_only=True):
    """What the frame around every page needs: `page` in templates. `back` is the address of the page itself."""

    back: str = "/"
    section: str = ""
    name: str = ""
    known: bool = False
    may_change: bool = False
    read_only: bool = False
    said: str = ""
    now: int = 0


class Renderer:
    """The templates with a clock, by which relative times are told."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._names = frozenset(environment().list_templates())

    def __call__(self, template: str, frame: Frame, context: Mapping[str, Any] | None = None) -> str:
        found = environment().get_template(template)
        before = _clock.set(self._clock)
        try:
            return found.render({**(context or {}), "page": frame})
        finally:
            _clock.reset(before)

    def has(self, template: str) -> bool:
        return template in self._names

    def warm(self) -> None:
        """Compile every template, so that nobody who asks for the first page waits for it."""
        for name in self._names:
            environment().get_template(name)


@cache
def environment() -> Environment:
    """One for the process: to compile the templates takes longer than to use them a hundred times."""
    made = Environment(
        loader=PackageLoader("accoda.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=-1,
    )
    made.globals["asset"] = files.address
    made.filters.update(
        ago=lambda moment: words.ago(_moment(moment), _clock.get().now()),
        before=lambda seconds: _clock.get().now() - round(seconds * 1000),
        exact=lambda moment: words.exact(_moment(moment)),
        iso=lambda moment: words.iso(_moment(moment)),
        count=words.count,
        duration=words.duration,
        duration_short=words.rough,
        rate=words.rate,
        share=words.share,
        size=words.size,
        plain=_plain,
        spark_line=charts.spark_line,
        spark_area=charts.spark_area,
        sentence=words.sentence,
        json_block=_json_block,
    )
    return made


def _moment(moment: str | int) -> int:
    return words.moment_of(moment) if isinstance(moment, str) else moment


def _plain(value: Any) -> str:
    """A payload or result as text: JSON, laid out, cut where it is long."""
    import json

    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "\n… (cut)"


def _json_block(value: Any) -> Markup:
    """Data for our script, inside `<script type="application/json">`: nothing in it can end the element."""
    from msgspec import json

    text = json.encode(value).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)  # safe: see the loop above
