"""`accoda top`: the keys, the picture, and the whole in a terminal of its own."""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from cli_world import World
from rich.console import Console

from accoda import App
from accoda.cli.top.board import Board, Command, JobNow, StoreNow, press
from accoda.cli.top.loop import Top, read
from accoda.cli.top.terminal import keys_of
from accoda.cli.top.view import overview_lines, screen
from accoda.model import Bury
from accoda.operations import jobs, overview, workers
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, encode

WIDTHS = (40, 80, 140)


async def filled() -> App:
    """Three queues: one with a dead letter, one with work, one that is paused."""
    app = App("memory://")
    for name in ("calls", "emails", "reports"):
        await app.enqueue(name, {"n": 1}, key="one")
        await app.enqueue(name, {"n": 2})
    (job,) = await app.storage.take("calls", 1)
    await app.storage.settle([Bury(job.lease, "ValueError: no such number")])
    await app.storage.pause("reports", None)
    return app


async def board_of(app: App) -> Board:
    return Board(store=StoreNow(await overview.overview(app), await workers.list(app)))


def drawn(board: Board, width: int = 80, height: int = 24) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, color_system=None)
    console.print(screen(board, width, height))
    output = console.file
    assert isinstance(output, StringIO)
    return output.getvalue().splitlines()


def typed(board: Board, keys: str) -> tuple[Board, Command | None]:
    command = None
    for key in keys_of(keys):
        board, command = press(board, key)
    return board, command


async def test_the_cursor_stays_within_the_queues() -> None:
    board = await board_of(await filled())
    assert [typed(board, keys)[0].chosen for keys in ("k", "j", "jjjjj", "\x1b[F", "\x1b[Fk", "jj\x1b[H")] == [
        0, 1, 2, 2, 1, 0,
    ]  # fmt: skip


async def test_a_pause_is_asked_for_and_a_resume_is_not() -> None:
    board = await board_of(await filled())
    asked, command = typed(board, "jp")
    assert (asked.asked, command) == (Command("pause", "emails"), None)
    assert "Pause emails?" in drawn(asked)[-1]
    assert typed(asked, "y")[1] == Command("pause", "emails")
    declined, command = typed(asked, "n")
    assert (declined.asked, declined.said, command) == (None, "Nothing was changed.", None)
    assert typed(board, "jjp")[1] == Command("resume", "reports")


async def test_dead_letters_are_replayed_after_a_question() -> None:
    board = await board_of(await filled())
    assert "Replay 1 dead letter of calls?" in drawn(typed(board, "r")[0])[-1]
    assert typed(board, "ry")[1] == Command("replay", "calls")
    nothing, command = typed(board, "jr")
    assert (nothing.said, command) == ("emails has no dead letters.", None)


async def test_an_id_is_typed_and_mended() -> None:
    board = await board_of(await filled())
    assert typed(board, "/12x3\x7f4\r")[1] == Command("show", job=124)
    assert typed(board, "/\r") == (board, None)
    assert typed(board, "/12\x1b") == (board, None)
    assert "Which job? 12" in drawn(typed(board, "/12")[0])[-1]
    assert typed(board, "/" + "9" * 30 + "\r")[1] == Command("show", job=int("9" * 19))


async def test_q_leads_back_and_then_out() -> None:
    board = await board_of(await filled())
    assert typed(board, "w")[0].page == "workers"
    assert (typed(board, "wq")[0].page, typed(board, "wq")[0].over) == ("queues", False)
    assert typed(board, "wqq")[0].over
    assert typed(board, "/1\x03")[0].over


@pytest.mark.parametrize("width", WIDTHS)
async def test_every_page_fits_every_terminal(width: int) -> None:
    app = await filled()
    board = await board_of(app)
    top = Top(app, False, lambda board: None)
    await top.refresh()
    await top.press("/")
    await top.press("1")
    await top.press("enter")
    assert top.board.page == "job"
    for one in (board, typed(board, "w")[0], typed(board, "?")[0], top.board, Board(), Board(trouble="gone")):
        assert max(len(line) for line in drawn(one, width)) <= width


async def test_commands_are_carried_out_and_reported() -> None:
    app = await filled()
    top = Top(app, False, lambda board: None)
    await top.refresh()
    for keys, said in (
        ("py", "calls is paused."),
        ("p", "calls resumed."),
        ("ry", "1 of calls ready again."),
        ("/99\r", "job 99 is not stored"),
    ):
        for key in keys_of(keys):
            await top.press(key)
        assert said in top.board.said
        await top.refresh()
    stats = (await app.storage.stats()).queues["calls"]
    assert (stats.dead, stats.paused) == (0, False)


async def test_a_job_is_shown_cancelled_and_gone() -> None:
    app = await filled()
    top = Top(app, False, lambda board: None)
    await top.refresh()
    for key in keys_of("/3\r"):
        await top.press(key)
    assert any("no worker" in line for line in drawn(top.board))
    for key in keys_of("cy"):
        await top.press(key)
    assert top.board.said == "Job 3 was cancelled."
    await top.refresh()
    assert (top.board.page, top.board.job) == ("queues", None)


async def test_a_command_that_takes_longer_than_a_refresh_is_carried_out(tmp_path: Path) -> None:
    async with App(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        id = (await app.enqueue("emails", 1)).id
        pressed: asyncio.Queue[str] = asyncio.Queue()
        for key in keys_of(f"/{id}\r"):
            pressed.put_nowait(key)

        def show(board: Board) -> None:
            if board.page == "job":
                pressed.put_nowait("ctrl-c")

        top = Top(app, False, show)
        await asyncio.wait_for(top.run(pressed, 0.0), 20)
        assert top.board.job is not None and top.board.job.job.id == id


async def test_a_store_that_is_away_is_reported_and_what_was_shown_stays() -> None:
    app = await filled()
    top = Top(app, False, lambda board: None)
    await top.refresh()
    await (await app.connections.get()).close()
    await top.refresh()
    assert top.board.trouble and top.board.store is not None
    assert drawn(top.board)[-1].startswith(top.board.trouble[:40])


async def test_hostile_names_move_no_cursor() -> None:
    app = App("memory://")
    (made,) = [await app.enqueue("emails", {"to": "\x1b[2J"}, name="a\x1b]0;b")]
    job = await jobs.get(app, made.id)
    board = Board(store=await read(app), page="job", job=JobNow(job))
    assert not any("\x1b" in line for line in drawn(board))


async def test_a_queue_has_its_health_and_dead_letters_are_none_of_it() -> None:
    app = await filled()
    await app.storage.write("worker/w", encode(Heartbeat("w", "w", "host", 7, 0, 0, ("calls",), 1)))
    rows = [line.split() for line in drawn(await board_of(app))]
    assert [row[-1] for row in rows if row and row[0] in ("calls", "emails", "reports")] == [
        "healthy",
        "stuck",
        "paused",
    ]
    assert ["calls", "1", "0", "0", "1"] in [row[:5] for row in rows]  # it has a dead letter


async def test_running_jobs_and_used_slots_are_two_numbers() -> None:
    app = await filled()
    await app.storage.take("emails", 2)
    beat = Heartbeat("w", "w", "host", 7, 0, 0, ("emails",), 1, (ProcessorState("emails", 1, 3, 0),), slots=10)
    await app.storage.write("worker/w", encode(beat))
    lines = drawn(await board_of(app))
    assert "1 worker, 2 jobs running, 1 of 10 slots used" in lines[0]
    assert "running 2" in lines[1] and not any("taken" in line for line in lines)


async def test_a_job_is_shown_with_each_error_once_and_its_payload_as_json() -> None:
    app = App("memory://")
    id = (await app.enqueue("emails", {"to": None, "paid": True}, max_attempts=1)).id
    (job,) = await app.storage.take("emails", 1)
    await app.storage.settle([Bury(job.lease, "LookupError: no user 4711")])
    top = Top(app, False, lambda board: None)
    await top.refresh()
    for key in keys_of(f"/{id}\r"):
        await top.press(key)
    shown = "\n".join(drawn(top.board, 120))
    assert shown.count("no user 4711") == 1 and '{"to": null, "paid": true}' in shown
    assert f"job {id}  dead  in emails, attempt 1 of 1" in shown


def test_the_store_is_printed_once_without_a_terminal(world: World) -> None:
    told = world.run("top")
    assert told.exit_code == 0
    assert {"queue", "emails", "deals", "reports"} <= set(told.stdout.split())
    assert [queue["name"] for queue in json.loads(world.run("top", "--json").stdout)["queues"]] == [
        "deals", "emails", "reports",
    ]  # fmt: skip


def test_an_empty_store_says_what_to_do(world: World) -> None:
    told = world.run("top", "--url", "sqlite:///empty.db")
    assert told.exit_code == 3
    world.run("migrate", "sqlite:///empty.db")
    assert "No queue yet" in world.run("top", "--url", "sqlite:///empty.db").stdout


def test_in_a_terminal_it_draws_until_q(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    async def fill() -> None:
        async with App(url) as app:
            await app.enqueue("emails", 1)

    asyncio.run(fill())
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "accoda", "top", "--url", url, "--every", "0.2"]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "90", "LINES": "24"}
    with subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        assert b"emails" in read_until(ours, b"emails")
        os.write(ours, b"py")
        assert b"is paused" in read_until(ours, b"is paused")
        os.write(ours, b"q")
        assert process.wait(20) == 0
    os.close(ours)


def read_until(file: int, wanted: bytes, seconds: float = 30.0) -> bytes:
    seen, end = b"", time.monotonic() + seconds
    while wanted not in seen and time.monotonic() < end:
        if select.select([file], [], [], 0.2)[0]:
            seen += os.read(file, 65536)
    return seen


async def test_what_is_printed_once_has_no_cursor() -> None:
    console = Console(file=StringIO(), width=80, color_system=None)
    console.print(overview_lines(await read(await filled()), 80))
    output = console.file
    assert isinstance(output, StringIO)
    assert "choose" not in output.getvalue()
