"""What is on the screen of `accoda top`, and what a key does to it. Pure: no terminal, no store.

A key gives a new board and sometimes a command, which the loop carries out; the next board shows what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from accoda.operations.overview import Overview
from accoda.operations.views import JobView, QueueView
from accoda.operations.why import Explanation
from accoda.operations.workers import WorkerView

Page = Literal["queues", "workers", "job", "help"]
Act = Literal["pause", "resume", "replay", "retry", "cancel", "show"]

MOST_DIGITS = 19


class Command(Struct, frozen=True):
    """Something to do with a queue, by its name, or with a job, by its id."""

    act: Act
    queue: str = ""
    job: int = 0


class StoreNow(Struct, frozen=True):
    """The store at one moment. `sparks`: jobs done a second by queue, the last value now."""

    overview: Overview
    workers: Sequence[WorkerView] = ()
    sparks: Mapping[str, Sequence[float]] = {}


class JobNow(Struct, frozen=True):
    """One job, and why it is not running."""

    job: JobView
    why: Explanation | None = None


class Board(Struct, frozen=True, kw_only=True):
    """The screen. `typed` is the id being typed after `/`; `asked` is the command that waits for a y."""

    store: StoreNow | None = None
    page: Page = "queues"
    chosen: int = 0
    typed: str | None = None
    asked: Command | None = None
    said: str = ""
    trouble: str = ""
    job: JobNow | None = None
    over: bool = False

    @property
    def queues(self) -> Sequence[QueueView]:
        return () if self.store is None else self.store.overview.queues

    @property
    def queue(self) -> QueueView | None:
        """The one under the cursor."""
        return self.queues[min(self.chosen, len(self.queues) - 1)] if self.queues else None


Pressed = tuple[Board, Command | None]


def press(board: Board, key: str) -> Pressed:
    """What a key does."""
    board = replace(board, said="")
    if key == "ctrl-c":
        return replace(board, over=True), None
    if board.asked is not None:
        asked = board.asked if key in ("y", "Y") else None
        return replace(board, asked=None, said="" if asked else "Nothing was changed."), asked
    if board.typed is not None:
        return _type(board, board.typed, key)
    act = _KEYS.get(key)
    return (board, None) if act is None else act(board)


def _type(board: Board, typed: str, key: str) -> Pressed:
    if key == "escape":
        return replace(board, typed=None), None
    if key == "backspace":
        return replace(board, typed=typed[:-1]), None
    if key == "enter":
        done = replace(board, typed=None)
        return (done, Command("show", job=int(typed))) if typed else (done, None)
    return (replace(board, typed=typed + key) if key.isdecimal() and len(typed) < MOST_DIGITS else board), None


def _move(by: int) -> Callable[[Board], Pressed]:
    def act(board: Board) -> Pressed:
        last = max(0, len(board.queues) - 1)
        return replace(board, chosen=max(0, min(last, min(board.chosen, last) + by))), None

    return act


def _pause(board: Board) -> Pressed:
    queue = board.queue
    if board.page != "queues" or queue is None:
        return board, None
    if queue.paused:
        return board, Command("resume", queue.name)
    return replace(board, asked=Command("pause", queue.name)), None


def _replay(board: Board) -> Pressed:
    if board.page == "job" and board.job is not None:
        return board, Command("retry", job=board.job.job.id)
    queue = board.queue
    if board.page != "queues" or queue is None:
        return board, None
    if not queue.dead:
        return replace(board, said=f"{queue.name} has no dead letters."), None
    return replace(board, asked=Command("replay", queue.name)), None


def _cancel(board: Board) -> Pressed:
    if board.page != "job" or board.job is None:
        return board, None
    return replace(board, asked=Command("cancel", job=board.job.job.id)), None


def _go(page: Page) -> Callable[[Board], Pressed]:
    return lambda board: (replace(board, page="queues" if board.page == page else page), None)


def _leave(board: Board) -> Pressed:
    return (replace(board, over=True) if board.page == "queues" else replace(board, page="queues")), None


_KEYS: dict[str, Callable[[Board], Pressed]] = {
    "up": _move(-1),
    "k": _move(-1),
    "down": _move(1),
    "j": _move(1),
    "page-up": _move(-10),
    "page-down": _move(10),
    "home": _move(-1_000_000),
    "end": _move(1_000_000),
    "p": _pause,
    "r": _replay,
    "c": _cancel,
    "w": _go("workers"),
    "?": _go("help"),
    "h": _go("help"),
    "/": lambda board: (replace(board, typed=""), None),
    "enter": lambda board: (replace(board, typed="") if board.page == "queues" else board, None),
    "escape": lambda board: (replace(board, page="queues"), None),
    "q": _leave,
}

HELP: tuple[tuple[str, str], ...] = (
    ("↑ ↓ j k", "choose a queue"),
    ("p", "pause the queue, or resume it"),
    ("r", "replay the queue's dead letters; on a job: run it again, or now"),
    ("/ or Enter", "show a job: type its id, then Enter"),
    ("c", "on a job: cancel it"),
    ("w", "workers and what they run"),
    ("? h", "these keys"),
    ("q Esc", "back; q on the first page ends"),
)


def question(command: Command, board: Board) -> str:
    """The question before it is done."""
    if command.act == "pause":
        return f"Pause {command.queue}? Running jobs will finish. (y/n)"
    if command.act == "cancel":
        return f"Cancel job {command.job}? (y/n)"
    dead = next((queue.dead for queue in board.queues if queue.name == command.queue), 0)
    return f"Replay {dead:,} dead {'letter' if dead == 1 else 'letters'} of {command.queue}? (y/n)"
