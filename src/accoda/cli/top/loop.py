"""Read, draw, press, act; again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec.structs import replace
from rich.live import Live

from accoda.cli.draw import console, width
from accoda.cli.top.board import Board, Command, JobNow, StoreNow, press
from accoda.cli.top.terminal import keyboard
from accoda.cli.top.view import overview_lines, screen
from accoda.errors import AccodaError, JobNotFound
from accoda.operations import bulk, jobs, overview, queues, workers
from accoda.operations.history.reading import read_sparks
from accoda.operations.job_filter import JobFilter
from accoda.operations.why import why

if TYPE_CHECKING:
    from accoda.app import App


async def read(app: App, system: bool = False) -> StoreNow:
    """What is shown of the store now."""
    seen = await overview.overview(app, system=system)
    sparks = await read_sparks(await app.connections.get())
    return StoreNow(seen, await workers.list(app), {queue: spark.done for queue, spark in sparks.items()})


def print_once(store: StoreNow) -> None:
    """Print it on standard output."""
    console(width=width(), highlight=False, soft_wrap=False).print(overview_lines(store, width()))


async def watch(app: App, every: float, system: bool) -> None:
    """Run until the user ends it."""
    shown = console(highlight=False)
    with keyboard() as pressed, Live(console=shown, screen=True, auto_refresh=False) as live:
        top = Top(app, system, lambda board: live.update(screen(board, *shown.size), refresh=True))
        await top.run(pressed, every)


class Top:
    """The board, and what happens to it."""

    def __init__(self, app: App, system: bool, show: Callable[[Board], None]) -> None:
        self.board = Board()
        self._app = app
        self._system = system
        self._show = show

    async def run(self, pressed: asyncio.Queue[str], every: float) -> None:
        """Read the store every few seconds and at once after a command; draw after each key."""
        while not self.board.over:
            await self.refresh()
            self._show(self.board)
            end = asyncio.get_running_loop().time() + every
            with suppress(TimeoutError):
                while not self.board.over:
                    # Only the wait for a key may time out: a command that was begun is carried out.
                    async with asyncio.timeout_at(end):
                        key = await pressed.get()
                    if await self.press(key):
                        break
                    self._show(self.board)

    async def refresh(self) -> None:
        """Read the store again. While it is away the board says so, and shows what was there before."""
        try:
            self.board = replace(self.board, store=await read(self._app, self._system), trouble="")
            if self.board.page == "job" and self.board.job is not None:
                await self._show_job(self.board.job.job.id)
        except JobNotFound:
            self.board = replace(self.board, page="queues", job=None, said="The job is gone: it is done, or deleted.")
        except AccodaError as error:
            self.board = replace(self.board, trouble=str(error))

    async def press(self, key: str) -> bool:
        """Do what a key says; True: something was done, so the store is read again."""
        self.board, command = press(self.board, key)
        if command is None:
            return False
        self._show(self.board)
        try:
            said = await self._do(command)
        except AccodaError as error:
            said = str(error)
        self.board = replace(self.board, said=said)
        return True

    async def _do(self, command: Command) -> str:
        app = self._app
        match command.act:
            case "pause":
                await queues.pause(app, command.queue, who="accoda top")
                return f"{command.queue} is paused."
            case "resume":
                await queues.resume(app, command.queue)
                return f"{command.queue} resumed."
            case "replay":
                done = await bulk.run(app, "retry", JobFilter(queue=command.queue, state="dead"))
                others = f", {done.skipped:,} not" if done.skipped else ""
                return f"{done.changed:,} of {command.queue} ready again{others}."
            case "retry":
                await jobs.retry(app, command.job)
                return f"Job {command.job} is ready."
            case "cancel":
                await jobs.cancel(app, command.job)
                return f"Job {command.job} was cancelled."
            case "show":
                await self._show_job(command.job)
        return ""

    async def _show_job(self, id: int) -> None:
        job = await jobs.get(self._app, id)
        self.board = replace(self.board, page="job", job=JobNow(job, await why(self._app, id)))
