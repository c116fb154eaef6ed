"""A worker does the ticks of what its code declares, beside its jobs."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

CODE = """
from accoda import App

app = App()

@app.every(0.2, payload=7, catch_up="all")
async def beat(number: int) -> None:
    print(number, app.current.schedule, app.current.tick, flush=True)
"""


async def lines_of_a_worker(folder: Path, count: int) -> list[list[str]]:
    """Start a worker, read `count` lines of its handler, and stop it."""
    path = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "ACCODA_URL": f"sqlite:///{folder}/jobs.db", "PYTHONPATH": path}
    words = ("-m", "accoda", "worker", "beating:app", "--log-level", "WARNING")
    worker = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=PIPE, cwd=folder, env=environment)
    assert worker.stdout is not None
    try:
        async with asyncio.timeout(60):
            return [(await worker.stdout.readline()).decode().split() for _ in range(count)]
    finally:
        worker.terminate()
        await worker.communicate()


async def test_a_worker_stores_and_runs_its_declared_schedules_and_a_restart_moves_no_tick(tmp_path: Path) -> None:
    (tmp_path / "beating.py").write_text(CODE)
    first = await lines_of_a_worker(tmp_path, 3)
    assert [line[:2] for line in first] == [["7", "beat"]] * 3
    again = await lines_of_a_worker(tmp_path, 3)
    ticks = [int(line[2]) for line in (*first, *again)]
    # The second worker goes on with the step of the first, and no tick comes twice.
    assert len(set(ticks)) == 6 and {(tick - ticks[0]) % 200 for tick in ticks} == {0}
