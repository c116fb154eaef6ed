"""Records what clients asked of a store and were told, and holds it against the promises. See docs/history.md."""

from accoda.testing.history.checking import ALL, Verdict, check
from accoda.testing.history.figures import recovery, redelivery
from accoda.testing.history.final import FinalState, final_state
from accoda.testing.history.history import Call, History, load
from accoda.testing.history.recorder import Recorded, RecordedConnections, Recorder
from accoda.testing.history.rules import RULES, Options, Violation
from accoda.testing.history.sinks import FileSink, MemorySink, Sink

__all__ = [
    "ALL",
    "RULES",
    "Call",
    "FileSink",
    "FinalState",
    "History",
    "MemorySink",
    "Options",
    "Recorded",
    "RecordedConnections",
    "Recorder",
    "Sink",
    "Verdict",
    "Violation",
    "check",
    "final_state",
    "load",
    "recovery",
    "redelivery",
]
