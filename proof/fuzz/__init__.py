"""Hostile bytes for every decoder: `python -m proof.fuzz --decodes 1000000`.

bytes.py      where the bytes come from: a seeded generator of junk and of damaged good input
target.py     what is fuzzed: a decoder, good input for it, and the errors that it may raise
run.py        the loop and its report

The targets: payloads.py, documents.py, sources.py (settings, URLs, command line), and wires.py (what Redis, Tarantool
and child processes say); everything.py has them all.
"""

from proof.fuzz.run import Crash, Report, fuzz
from proof.fuzz.target import Target

__all__ = ["Crash", "Report", "Target", "fuzz"]
