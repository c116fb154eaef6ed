"""The scheduler of the examples, as a newcomer starts it: on a Redis server of its own, and on SQLite without one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_jobs_run_by_priority_and_at_their_time_and_the_store_shows_them(store: str, tmp_path: Path) -> None:
    if store == "redis" and (shutil.which("redis-server") is None or shutil.which("redis-cli") is None):
        pytest.skip("there is no redis-server on this machine")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ACCODA_", "PYTEST_"))}
    if store == "sqlite":
        environment["PATH"] = str(tmp_path)  # without redis-server
    done = subprocess.run(
        [sys.executable, "-m", "examples.scheduler"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    out = done.stdout
    # By priority, whatever the order in which they came; the report at its time.
    ran = [line.split(": ")[1] for line in out.splitlines() if line.startswith("  worker: ")]
    assert [name for name in ran if name != "Scheduled Report"] == ["alarm", "digest", "typo", "nightly"]
    assert '"state": "done", "result": "monthly.pdf"' in out
    assert out.count('"what": "created"') == 5 and out.count('"what": "kept"') == 1
    assert "ready 4, delayed 1, taken 0, dead 0, done 0" in out
    assert "(typo): 'nobody' is no address" in out
    assert out.rstrip().endswith("ready 0, delayed 0, taken 0, dead 1, done 4")
    if store == "redis":
        shown = out.split("ZRANGE 'scheduler:queue:ready'")[1].split("$ redis-cli")[0]
        assert re.findall(r"name\\x..(alarm|digest|typo|nightly)", shown) == ["alarm", "digest", "typo", "nightly"]
        assert re.search(r"ZCARD 'scheduler:queue:delayed'\n\(integer\) 1\n", out)
    else:
        assert "redis-cli --no-raw" not in out
