"""A SQLite file: whether it exists, is ours, can be written, and is on a good disk. Nothing is created.

The file is opened read-only. If it has no log it is declared immutable, since SQLite would otherwise create its two
companions (`-wal`, `-shm`) beside it. If it has one, the layout may be only in the log, so it is read with it.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from urllib.parse import SplitResult, quote

import apsw

from accoda.operations.doctor.findings import Finding, Looked, has_problem, layout, may_open, note, ok, problem, warning
from accoda.operations.words import length
from accoda.storage.common.urls import options
from accoda.storage.sqlite.clock_steps import told
from accoda.storage.sqlite.connection import APPLICATION_ID, DURABILITY, LAYOUT, SAFE_SQLITE
from accoda.storage.sqlite.open import file_of

MUCH_LOG = 256 << 20
LITTLE_SPACE, NO_SPACE = 1 << 30, 100 << 20
NETWORKS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "ncpfs"})
DAY = 86_400_000  # ms
PASSING = frozenset({"tmpfs", "ramfs"})


async def look(parts: SplitResult, url: str) -> Looked:
    durability = options(parts, durability=DURABILITY)["durability"]
    path = file_of(parts)
    findings = [_library(), _durability(durability), *_place(path)]
    if has_problem(findings):
        return Looked(findings)
    findings += [*_space(path), *_file_system(path)]
    if not path.exists():
        findings.append(problem("store", f"there is no file {path} yet", f"make it: accoda migrate {url}"))
        return Looked(findings)
    inside = _inside(path, url)
    return Looked(findings + inside, may_open(findings + inside))


def _library() -> Finding:
    found = f"SQLite {apsw.sqlite_lib_version()}"
    if apsw.SQLITE_VERSION_NUMBER < SAFE_SQLITE:
        advice = "several processes can damage a file with it: pip install --force-reinstall 'apsw>=3.51.3'"
        return problem("library", found, advice)
    return ok("library", found)


def _durability(chosen: str) -> Finding:
    if chosen == "fast":
        advice = "leave durability=fast out of the URL if an acknowledged job must survive a power cut"
        return note("durability", "fast: a power cut may lose the last moments", advice)
    return ok("durability", "full: what was acknowledged survives a power cut")


def _place(path: Path) -> list[Finding]:
    folder = path.parent
    if not folder.is_dir():
        return [problem("folder", f"there is no folder {folder}", f"mkdir -p {folder}")]
    if path.is_dir():
        return [problem("file", f"{path} is a folder", f"name a file in it: {path / 'accoda.db'}")]
    user = _user()
    if not os.access(folder, os.W_OK | os.X_OK):
        advice = f"SQLite keeps its log beside the file: chown {user} {folder}, or chmod u+wx {folder}"
        return [problem("folder", f"{folder} cannot be written by {user}", advice)]
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        return [problem("file", f"{path} cannot be written by {user}", f"chown {user} {path}*, or chmod u+rw {path}*")]
    return _others(path)


def _others(path: Path) -> list[Finding]:
    mode = path.stat().st_mode if path.exists() else 0
    may = [word for bit, word in ((0o004, "read"), (0o002, "write")) if mode & bit]
    if may:
        found = f"every user of this machine may {' and '.join(may)} {path.name}"
        return [note("permissions", found, f"payloads are in it: chmod o-rwx {path}*")]
    return []


def _user() -> str:
    return os.environ.get("USER") or str(getattr(os, "getuid", lambda: "this user")())


def _space(path: Path) -> list[Finding]:
    free = shutil.disk_usage(path.parent).free
    found = f"{free / (1 << 30):.1f} GiB free"
    if free < NO_SPACE:
        return [problem("disk", found, "free some: without space nothing can be enqueued or settled")]
    if free < LITTLE_SPACE:
        return [warning("disk", found, "free some, or move the file: the log alone may need 64 MiB and more")]
    return [ok("disk", found)]


def _file_system(path: Path) -> list[Finding]:
    kind = file_system(path.parent)
    if kind in NETWORKS or kind.startswith("fuse.nfs"):
        found = f"{path.parent} is on a network file system ({kind})"
        advice = "SQLite's locks and shared memory do not work there: use a local disk, or PostgreSQL or Redis"
        return [problem("file system", found, advice)]
    if kind in PASSING:
        found = f"{path.parent} is in memory ({kind})"
        return [warning("file system", found, "all jobs are gone after a restart of the machine: use a disk")]
    return [ok("file system", kind)] if kind else []


def file_system(folder: Path, mounts: Path = Path("/proc/mounts")) -> str:
    """The kind of file system that a folder is on; empty if unknown."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    place, best, kind = str(folder.resolve()), "", ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount = fields[1].encode().decode("unicode_escape", "replace")  # a space in a path is \040 there
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):  # of several on one path the last is on top
            best, kind = mount, fields[2]
    return kind


def _inside(path: Path, url: str) -> list[Finding]:
    try:
        connection = _read_only(path)
    except apsw.Error as error:
        return [problem("file", f"{path} cannot be opened: {error}", "check the permissions of file and folder")]
    try:
        found = _layout(connection, path, url)
        if not has_problem(found):
            found += _clock(connection, path)
        return [*found, *_journal(connection, path)]
    except apsw.NotADBError:
        return [problem("file", f"{path} is not a SQLite database", "choose another file for the queue")]
    except apsw.CorruptError as error:
        advice = f"keep a copy, then try: sqlite3 {path.name} .recover"
        return [problem("file", f"{path} is damaged ({error})", advice)]
    except apsw.BusyError:
        return [warning("file", "stayed locked by another program", "find the one that holds a transaction open")]
    except apsw.Error as error:
        return [problem("file", f"{path} cannot be read: {error}", "check the permissions of file and folder")]
    finally:
        connection.close()


def _read_only(path: Path) -> apsw.Connection:
    log = Path(f"{path}-wal")
    has_log = log.exists() and log.stat().st_size > 0
    name = f"file:{quote(str(path.absolute()))}?mode=ro{'' if has_log else '&immutable=1'}"
    connection = apsw.Connection(name, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.set_busy_timeout(2000)
    return connection


def _layout(connection: apsw.Connection, path: Path, url: str) -> list[Finding]:
    tables = connection.execute("SELECT count(*) FROM sqlite_schema").get
    owner, version = connection.pragma("application_id"), int(connection.pragma("user_version"))
    if owner != APPLICATION_ID:
        if tables or owner:
            return [problem("file", f"{path} belongs to another program", "choose another file for the queue")]
        return [problem("layout", "the file is empty", f"accoda migrate {url}")]
    return [layout(version, LAYOUT, url)]


def _clock(connection: apsw.Connection, path: Path) -> list[Finding]:
    """A step of this machine's clock in the last day."""
    row = connection.execute("SELECT stepped_at, stepped_by FROM host_clock WHERE stepped_at IS NOT NULL").fetchone()
    age = time.time_ns() // 1_000_000 - row[0] if row else DAY
    if row is None or age >= DAY:
        return []
    advice = "check start times that were given while it was wrong, and let NTP keep it: timedatectl set-ntp true"
    return [warning("clock", f"{length(max(0, age) / 1000)} ago {told(row[1], path.name)}", advice)]


def _journal(connection: apsw.Connection, path: Path) -> list[Finding]:
    # Read from the header: a file that is declared immutable has no journal.
    with path.open("rb") as file:
        head = file.read(20)
    if len(head) == 20 and head[18:20] != b"\2\2":
        return [warning("journal", "not WAL: another program has changed it", "the next worker sets it back to WAL")]
    log = Path(f"{path}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size > MUCH_LOG:
        found = f"the log has {size >> 20} MiB"
        return [warning("journal", found, "a long transaction holds it: find the program that has it open")]
    return [ok("journal", f"WAL, {size >> 10} KiB")]
