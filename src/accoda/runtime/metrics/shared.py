"""One page for several worker processes: the supervisor's side."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accoda.runtime.metrics.families import load

if TYPE_CHECKING:
    from prometheus_client import Metric


class SharedMetrics:
    """A folder in which each child keeps its numbers, and the page with their sum.

    Start the children as new programs with `environment` in theirs (a fork has the library loaded already, and would
    count for itself alone). Tell `ended` when one is gone. The counts of the dead stay in the sum, so that no counter
    goes back; their gauges leave it.
    """

    def __init__(self) -> None:
        load()
        self._folder = Path(tempfile.mkdtemp(prefix="accoda-metrics-"))
        # A dead child's counts move from one file to another. Who reads the page meanwhile would see them twice or not
        # at all, so both hold this lock. Children write without it: each only to files of its own.
        self._lock = threading.Lock()

    @property
    def environment(self) -> dict[str, str]:
        """What a child's environment needs besides the supervisor's own."""
        return {"PROMETHEUS_MULTIPROC_DIR": str(self._folder)}

    def page(self) -> bytes:
        """The page in Prometheus' text format, over all children, dead ones included."""
        page: bytes = load().generate_latest(self)
        return page

    def collect(self) -> Iterable[Metric]:
        from prometheus_client.multiprocess import MultiProcessCollector

        with self._lock:
            # A file is empty for a moment after it was made, and for good if its process was killed just then.
            files = [str(file) for file in sorted(self._folder.glob("*.db")) if file.stat().st_size]
            merge: Any = MultiProcessCollector.merge  # the library gives it no types
            return list(merge(files))

    def ended(self, pid: int) -> None:
        """A child is gone, and will not write again. Call it once the child was waited for."""
        from prometheus_client import multiprocess

        mark_dead: Any = multiprocess.mark_process_dead
        with self._lock:
            if self._folder.exists():
                mark_dead(pid, str(self._folder))
                for kind in ("counter", "histogram", "summary"):
                    _fold(self._folder / f"{kind}_{pid}.db", self._folder / f"{kind}_dead.db")

    def close(self) -> None:
        """Remove the folder; a second time does no harm. The page is empty from then on."""
        with self._lock:
            shutil.rmtree(self._folder, ignore_errors=True)


def _fold(source: Path, target: Path) -> None:
    """Add the counts of one file to another and remove it.

    Else a child that dies and is started again for weeks would leave a file each time, all of them read for each page.
    """
    from prometheus_client import mmap_dict

    counts: Any = mmap_dict.MmapedDict
    if not source.exists():
        return
    if source.stat().st_size:
        total = counts(str(target))
        for key, value, _, _ in counts.read_all_values_from_file(str(source)):
            total.write_value(key, total.read_value(key)[0] + value, 0.0)
        total.close()
    source.unlink()
