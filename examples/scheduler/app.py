"""The scheduler's handlers: `accoda worker examples.scheduler.app:app`. One queue, two types of job, one order."""

from __future__ import annotations

from msgspec import Struct

from accoda import App, BuryJob

app = App()
"""Its jobs are where ACCODA_URL says."""


class Report(Struct):
    """What a report is about."""

    reportId: str  # as the API's clients write it


class Email(Struct):
    """An email to send."""

    to: str


@app.handler("queue", type="report.generate", keep_for=60)
async def generate(report: Report) -> str:
    print(f"  worker: {app.current.name}: report {report.reportId}", flush=True)
    return f"{report.reportId}.pdf"


@app.handler("queue", type="email.send", keep_for=60)
async def send(email: Email) -> None:
    print(f"  worker: {app.current.name}: email to {email.to}", flush=True)
    if "@" not in email.to:
        raise BuryJob(f"{email.to!r} is no address")
