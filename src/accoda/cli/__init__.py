"""The command `accoda`. Each command is a file of its own and imports what it needs when it runs."""

from __future__ import annotations

import sys


def main() -> None:
    """What the `accoda` script calls."""
    try:
        import click  # noqa: F401
    except ModuleNotFoundError:
        sys.exit("accoda: the command line needs an extra: pip install 'accoda[cli]'")
    from accoda.cli.commands import accoda

    accoda(prog_name="accoda")  # `python -m accoda` is the same command, and its completion too
