"""An app that configures logging itself, when it is imported."""

import logging
import sys

from accoda import App
from accoda.runtime.logs import JobFilter

mine = logging.StreamHandler(sys.stderr)
mine.setFormatter(
    logging.Formatter("mine: %(message)s (%(job_id)s, %(attempt)s)", defaults={"job_id": 0, "attempt": 0})
)
mine.addFilter(JobFilter())
logging.getLogger().addHandler(mine)
logging.getLogger().setLevel("INFO")

app = App()


@app.handler("configured", run_in="process")
def configured(n: int) -> None:
    logging.getLogger("shop").info("number %d", n)
