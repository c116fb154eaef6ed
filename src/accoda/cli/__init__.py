"""The command `accoda`. Each command is a file of its own and imports what it needs when it runs."""

from __future__ import annotations

import sys
from types import TracebackType


def main() -> None:
    """What the `accoda` script calls."""
    try:
        import click  # noqa: F401
    except ModuleNotFoundError:
        sys.exit("accoda: the command line needs an extra: pip install 'accoda[cli]'")
    from accoda.cli.commands import accoda

    sys.excepthook = _report
    code: object = 1
    try:
        accoda(prog_name="accoda")  # `python -m accoda` is the same command, and its completion too
    except SystemExit as left:
        code = left.code
        raise
    finally:
        if sys.argv[1:2] == ["worker"] and "accoda.runtime" in sys.modules:
            _end_worker(code)


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print the traceback of an unexpected error, which may quote what is in the store."""
    from traceback import format_exception

    from accoda.cli.draw import echo

    echo("".join(format_exception(kind, error, trace)), err=True, nl=False)


def _end_worker(code: object) -> None:
    """A worker that is over, or could not start, ends also if the user's module has left a thread that does not."""
    from accoda.runtime.forced_end import EXIT, end_within

    end_within(EXIT, code if isinstance(code, int) and code else 1)
