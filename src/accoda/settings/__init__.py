"""Live settings: every knob of a worker and its queues, from any source.

knobs.py       the table of all settings and their values
paths.py       the path of a setting: `worker/queue/{name}/{knob}` and its deeper form
entries.py     from the values of a source to typed settings, or to errors that name the line
readers.py, yaml_tree.py, onlineconf.py    the parsers
files.py       one file: read, checked for changes, its last good values kept
variables.py   the environment and the command line
live.py        `Snapshot`: all sources at one moment; `Settings`: the snapshot that follows its files
"""

from accoda.settings.entries import Value
from accoda.settings.knobs import KNOBS, Knob
from accoda.settings.live import Settings, Snapshot

__all__ = ["KNOBS", "Knob", "Settings", "Snapshot", "Value"]
