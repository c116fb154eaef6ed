"""From a template and the result of a view to HTML. Everything is escaped, and an unknown name is an error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec import Struct

from accoda.clock import Clock, SystemClock
from accoda.dashboard import charts, files, words
from accoda.operations import moments
from accoda.operations.words import ago, rough, stamp, state_word

_clock: ContextVar[Clock] = ContextVar("clock", default=SystemClock())  # noqa: B039  # it is never changed
"""The clock while a template is rendered."""
_STRINGS = re.compile(r'("(?:[^"\\]|\\.)*"?)')
"""Strings of JSON; the last one may have been cut."""


class Frame(Struct, frozen=True, kw_only=True):
    """What the frame around every page needs: `page` in templates.

    Every address begins at the root of the dashboard, as if it were not mounted anywhere; `{{ page.root }}` stands
    before each that a template writes. `back` is the address of the page itself.
    """

    root: str = ""
    back: str = "/"
    section: str = ""
    name: str = ""
    known: bool = False
    may_change: bool = False
    read_only: bool = False
    said: str = ""
    now: int = 0


class Renderer:
    """The templates with a clock for relative times."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(
        self, template: str, frame: Frame, context: Mapping[str, Any] | None = None, layout: str = "base.html"
    ) -> str:
        """A whole page, or with the layout `live.html` its live part alone."""
        found = environment().get_template(template)
        before = _clock.set(self._clock)
        try:
            return found.render({**(context or {}), "page": frame, "layout": layout})
        finally:
            _clock.reset(before)

    def warm(self) -> None:
        """Compile every template, so that the first page does not wait for it."""
        for name in environment().list_templates():
            environment().get_template(name)


@cache
def environment() -> Environment:
    """One for the process: compiling a template takes longer than rendering it a hundred times."""
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
        ago=lambda moment: ago(_moment(moment), _clock.get().now()),
        before=lambda seconds: _clock.get().now() - round(seconds * 1000),
        exact=lambda moment: stamp(_moment(moment)),
        iso=lambda moment: words.iso(_moment(moment)),
        count=words.count,
        duration=words.duration,
        duration_short=rough,
        rate=words.rate,
        share=words.share,
        spark_line=charts.spark_line,
        spark_area=charts.spark_area,
        sentence=words.sentence,
        types_text=words.types_text,
        state_label=state_word,
        json_text=json_text,
        json_block=_json_block,
    )
    return made


def _moment(moment: str | int) -> int:
    return moments.read("moment", moment) if isinstance(moment, str) else moment


def json_text(text: str) -> Markup:
    """JSON in which each string has a direction of its own. Without it a text from right to left changes places with
    what stands beside it: a key with its value.

    >>> str(json_text('{"a": "\u05d0"}'))
    '{&#34;a&#34;: <bdi>&#34;\u05d0&#34;</bdi>}'
    """
    parts = _STRINGS.split(text)  # strings have the odd places
    return Markup("").join(
        Markup("<bdi>{}</bdi>").format(part) if number % 2 and not part.isascii() else escape(part)
        for number, part in enumerate(parts)
    )


def _json_block(value: Any) -> Markup:
    """Data for our script, inside `<script type="application/json">`: nothing in it can end the element."""
    from msgspec import json

    text = json.encode(value).decode()
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)  # safe: see the loop above
