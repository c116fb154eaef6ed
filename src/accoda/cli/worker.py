"""`accoda worker`: run an app's handlers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from accoda.cli.common import APP, load_app, log_options

if TYPE_CHECKING:
    from accoda.runtime.process import ProcessOptions


@click.command()
@click.argument("app", metavar="MODULE:APP", envvar=APP)
@click.option("-q", "--queues", multiple=True, metavar="A,B", help="Queues to serve, in turn. Default: all.")
@click.option("-c", "--concurrency", type=click.IntRange(1), help="Single jobs that a process runs at once.")
@click.option("--processors", type=click.IntRange(1), help="Batches that a process runs at once (max_processors).")
@click.option("--processes", type=click.IntRange(1), default=1, show_default=True, help="Worker processes.")
@click.option("--burst", is_flag=True, help="End when nothing is left to start.")
@click.option("--watch", is_flag=True, help="Restart when code in this folder changes.")
@click.option("--grace", type=click.FloatRange(0), help="Seconds that running batches get when stopped.")
@click.option("--name", default="default", show_default=True, help="The worker's name in the settings.")
@click.option(
    "--settings", "files", multiple=True, metavar="FILE", help="TOML, YAML or OnlineConf; or ACCODA_SETTINGS."
)
@click.option("--metrics-port", type=click.IntRange(0, 65535), help="Serve /metrics and /health here.")
@click.option("--metrics-host", default="127.0.0.1", show_default=True, help="The address for it.")
@click.option("--manager/--no-manager", "managed", default=True, help="Share processors out by need (default).")
@click.option("--system-jobs/--no-system-jobs", default=True, help="Run schedules, webhooks, bulk changes (default).")
@log_options
@click.option("--log-jobs", is_flag=True, help="Log when each job starts and ends.")
@click.option("--supervised", type=int, hidden=True)
def worker(app: str, **given: Any) -> None:
    """Run the handlers of MODULE:APP.

    SIGTERM or Ctrl-C: finish the current batches and leave with 0. A second
    one, or the end of the grace: give the jobs back at once and leave with 1.
    If it cannot start, it takes no job and leaves with 1, 2 (options) or 3
    (store).
    """
    from accoda.runtime.logs import configure
    from accoda.runtime.process import run_process

    options = _options(given)
    alone = given["processes"] == 1 and not given["watch"]
    runs_here = given["supervised"] is not None or alone
    # What is wrong with the app is reported once, before any process is started.
    loaded = load_app(app) if runs_here or not given["watch"] else None
    # After the import, in which the app may have configured logging itself.
    configure(given["log_format"], given["log_level"].upper(), jobs=given["log_jobs"])
    if runs_here and loaded is not None:
        sys.exit(run_process(loaded, options))
    sys.exit(_supervise(app, given))


def _options(given: dict[str, Any]) -> ProcessOptions:
    from accoda.runtime.process import ProcessOptions

    overrides = {
        "concurrency": given["concurrency"],
        "max_processors": given["processors"],
        "grace": given["grace"],
    }
    return ProcessOptions(
        queues=tuple(name.strip() for names in given["queues"] for name in names.split(",") if name.strip()),
        name=given["name"],
        burst=given["burst"],
        managed=given["managed"],
        system_jobs=given["system_jobs"],
        settings_files=given["files"],
        overrides={knob: value for knob, value in overrides.items() if value is not None},
        metrics_port=given["metrics_port"],
        metrics_host=given["metrics_host"],
        supervisor=given["supervised"],
    )


def _supervise(app: str, given: dict[str, Any]) -> int:
    from accoda.runtime.supervisor import Supervisor, SupervisorOptions

    options = SupervisorOptions(
        arguments=(app, *_for_child(given)),
        processes=given["processes"],
        restart=not given["burst"],
        watch=str(Path.cwd()) if given["watch"] else None,
        metrics_port=given["metrics_port"],
        metrics_host=given["metrics_host"],
        grace=_grace(given),
    )
    return Supervisor(options).run()


def _grace(given: dict[str, Any]) -> Callable[[], float]:
    """The grace of the children, as the settings have it when it is asked for."""
    from accoda.runtime.process import load_settings

    settings = load_settings(_options(given))  # what is wrong in them is reported once too

    def grace() -> float:
        settings.refresh()
        return float(settings.worker("grace").value)

    return grace


def _for_child(given: dict[str, Any]) -> list[str]:
    """What a child's command line says: all but what the supervisor does itself."""
    words = ["--name", given["name"], "--log-level", given["log_level"]]
    words += ["--manager" if given["managed"] else "--no-manager"]
    words += ["--system-jobs" if given["system_jobs"] else "--no-system-jobs"]
    words += [flag for flag, name in (("--burst", "burst"), ("--log-jobs", "log_jobs")) if given[name]]
    for option in ("log_format", "concurrency", "processors", "grace"):
        if given[option] is not None:
            words += [f"--{option.replace('_', '-')}", str(given[option])]
    for option, values in (("-q", given["queues"]), ("--settings", given["files"])):
        for value in values:
            words += [option, value]
    return words
