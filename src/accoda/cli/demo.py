"""`accoda demo`: a queue at work."""

from __future__ import annotations

import sys

import click


@click.command()
def demo() -> None:
    """See a queue at work, on SQLite in a folder of its own.

    On a terminal until Ctrl-C, elsewhere for 20 seconds. DEMO_SECONDS sets another length.
    """
    from accoda.demo.__main__ import main

    sys.exit(main())
