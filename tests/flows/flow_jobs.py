"""Handlers of flows, for a child process to import."""

from accoda import App, Batch

app = App("memory://")


@app.handler("numbers")
async def numbers(count: int) -> list[int]:
    return list(range(count))


@app.handler("split", run_in="process")
def split() -> str:
    """Reads what the node before it returned, and adds a node for each."""
    found = app.current.parents.get("numbers", [], type=list[int])
    app.current.flow.map(double, found, name="part")
    return f"{len(found)} parts of {app.current.flow.node}"


@app.handler("double", run_in="process")
async def double(number: int) -> int:
    return number * 2


@app.handler("total", run_in="process")
def total(batch: Batch[None]) -> None:
    for job in batch:
        batch.done(job, sum(value for name, value in job.parents.items() if name.startswith("split.")))
