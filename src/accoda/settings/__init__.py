"""Live settings: every knob of a worker and its queues, from wherever it is set.

knobs.py       the table of all settings, and what a value may be
places.py      where a setting stands: `worker/queue/{name}/{knob}` and its deeper form
entries.py     from what a source says to typed values, or to a complaint that names the line
tomlfile.py, yamlfile.py, onlineconf.py    the readers
files.py       one file: read, looked at again, kept when it breaks
variables.py   the environment and the command line
snapshot.py    all sources at one moment, and the lookup
live.py        `Settings`: the snapshot that changes
"""

from accoda.settings.entries import Value
from accoda.settings.knobs import KNOBS, Knob
from accoda.settings.live import Settings
from accoda.settings.snapshot import Snapshot

__all__ = ["KNOBS", "Knob", "Settings", "Snapshot", "Value"]
