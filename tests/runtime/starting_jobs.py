"""The app of the tests of starting. `BREAK` says what is wrong with it."""

import os
import sys

from accoda import App

BREAK = os.environ.get("BREAK", "")
IN_CHILD = "accoda.cli" not in sys.modules


class NotAnInstance:
    pass


if BREAK == "import":
    raise RuntimeError("the configuration is missing")
if BREAK == "pool" and IN_CHILD:
    raise RuntimeError("the model is missing")
if BREAK == "pool-dies" and IN_CHILD:
    os._exit(7)

app = App(middleware=[NotAnInstance] if BREAK == "middleware" else [])


@app.handler("plain")
async def plain(n: int) -> None: ...


@app.handler("pooled", run_in="process")
def pooled(n: int) -> None: ...
