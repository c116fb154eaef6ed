"""Records what clients asked of a store and were told, and holds it against the promises. See docs/checker.md."""

from proof.checker.call_log import Call, CallLog, load
from proof.checker.checking import ALL, Verdict, check
from proof.checker.figures import recovery, redelivery
from proof.checker.final import FinalState, final_state
from proof.checker.recorder import Recorded, RecordedConnections, Recorder, record
from proof.checker.rules import RULES, Options, Violation
from proof.checker.sinks import FileSink, MemorySink, Sink

__all__ = [
    "ALL",
    "RULES",
    "Call",
    "CallLog",
    "FileSink",
    "FinalState",
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
    "record",
    "recovery",
    "redelivery",
]
