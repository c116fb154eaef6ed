"""The app of mixed_accoda.py: a module of its own, since the processes of `run_in="process"` import it, too."""

from __future__ import annotations

import json
import os
from typing import Any

from timed import Jobs, Order

from accoda import App

DEFAULT_SLOTS = 10  # of a handler that says nothing: what is measured then is the default

order = Order(**json.loads(os.environ["TIMED_ORDER"]))
jobs = Jobs(order)
app = App(order.url)
options: dict[str, Any] = {} if order.slots == DEFAULT_SLOTS else {"concurrency": order.slots}
if order.how == "process":
    options["run_in"] = "process"

if order.how == "async":

    @app.handler("mixed", **options)
    async def mixed(payload: dict[str, Any]) -> None:
        await jobs.run_async(payload)

else:

    @app.handler("mixed", **options)
    def blocking(payload: dict[str, Any]) -> None:
        jobs.run(payload)
