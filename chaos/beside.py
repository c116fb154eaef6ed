"""A worker of the previous release beside the new ones: its sources, from git, in a folder of their own."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

PREVIOUS = "6245355"
"""The revision that counts as the previous release: the one place to change it."""

ROOT = Path(__file__).parent.parent
INSTRUMENTS = ("src/accoda/testing/history", "src/accoda/storage/observed.py")
"""What records the calls. It is of the new release in every process, so that all write the same kind of history."""


class NoSuchRelease(Exception):
    """git, or the revision, is missing here."""


def unpack(revision: str, folder: Path) -> Path:
    """The `src` of a revision, unpacked into a folder."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", revision, "src"]
    try:
        packed = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    except FileNotFoundError as error:
        raise NoSuchRelease("git is not installed") from error
    except subprocess.CalledProcessError as error:
        reason = error.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise NoSuchRelease(f"git has no revision {revision} here: {reason[-1]}") from error
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    for place in INSTRUMENTS:
        if (ROOT / place).is_dir():
            shutil.copytree(ROOT / place, folder / place, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / place, folder / place)
    return folder / "src"
