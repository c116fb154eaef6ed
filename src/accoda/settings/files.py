"""One settings file: read whole or not at all, looked at again for the price of one stat, kept when it breaks."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import time
from collections.abc import Mapping
from pathlib import PurePath
from typing import NamedTuple

from accoda.errors import SettingsError
from accoda.settings.entries import Found, Value, gather, gather_shared
from accoda.settings.onlineconf import read_cdb, read_conf
from accoda.settings.places import Path, Place
from accoda.settings.tomlfile import read_toml
from accoda.settings.yamlfile import read_yaml

log = logging.getLogger("accoda.settings")

SUFFIXES = (".toml", ".yaml", ".yml", ".cdb", ".conf")
_SHARED = (".cdb", ".conf")
_LARGEST = {True: 256 << 20, False: 1 << 20}  # a shared tree may be large; a file of our own settings is not
_SETTLED = 50_000_000  # nanoseconds; more than the step of any file system's clock in use


class Mark(NamedTuple):
    """What a stat tells about a version of the file. A rename changes the inode; a new mode changes only `ctime`."""

    device: int
    inode: int
    size: int
    mtime: int
    ctime: int


class SettingsFile:
    """A file, its last good values, and what is wrong with it at present."""

    def __init__(self, path: str, service: Path) -> None:
        self.path = path
        self.values: Mapping[Place, Value] = {}
        self.problems: tuple[str, ...] = ()  # why the file as it is now is not used
        self.warnings: tuple[str, ...] = ()
        self._service = service
        self._suffix = PurePath(path).suffix.lower()
        self._mark: Mark | None = None  # None: there is no file
        self._certain = False  # if not, the mark could stand for a later version too, and the file is read again
        self._digest = b""
        if self._suffix not in SUFFIXES:
            raise SettingsError(f"{path}: a settings file ends in one of {', '.join(SUFFIXES)}")

    @property
    def shared(self) -> bool:
        """It is an OnlineConf module."""
        return self._suffix in _SHARED

    def load(self) -> None:
        """Read it for the first time. Whatever is wrong is an error."""
        try:
            data = self._read()
            self._digest = _digest(data)
            self._accept(self._parse(data))
        except SettingsError as error:
            self.problems = error.problems
            raise

    def stale(self) -> bool:
        """Whether a look at the content is due: one stat."""
        return not self._certain or self._stat() != self._mark

    def refresh(self) -> bool:
        """Read it again if it changed. True if its values, or where they stand, are others than before.

        A file that is gone or broken leaves the values that were good, and that is said once for each change.
        """
        mark = self._stat()
        if mark == self._mark and self._certain:
            return False
        self._mark, self._certain = mark, True
        try:
            if mark is None:
                raise SettingsError(f"{self.path}: the file is gone")
            data = self._read()
        except SettingsError as error:
            if self._digest or error.problems != self.problems:
                self._refuse(error.problems)
            self._digest = b""  # whatever comes next is news
            return False
        digest = _digest(data)
        if digest == self._digest:  # touched, or renamed to the same content
            return False
        self._digest = digest
        try:
            # Who writes in place empties the file first. Nobody takes all settings back by leaving nothing at all.
            if self.values and not data.strip():
                raise SettingsError(f"{self.path}: the file is empty; to take all settings back, leave a comment in it")
            return self._accept(self._parse(data))
        except SettingsError as error:
            self._refuse(error.problems)
            return False

    def _accept(self, found: Found) -> bool:
        if self.problems:
            log.info("settings: %s is good again and in force", self.path)
        for warning in found.warnings:
            if warning not in self.warnings:
                log.warning("settings: %s", warning)
        before, self.values = self.values, found.values
        self.problems, self.warnings = (), found.warnings
        return before != found.values

    def _refuse(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        log.warning("settings: %s; the values read before stay in force", "; ".join(problems))

    def _parse(self, data: bytes) -> Found:
        if self.shared:
            read = read_cdb if self._suffix == ".cdb" else read_conf
            return gather_shared(read(data, self._service, self.path), self._service)
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise SettingsError(f"{self.path}: not UTF-8: {error.reason} at byte {error.start}") from error
        entries = read_toml(text, self.path) if self._suffix == ".toml" else read_yaml(text, self.path)
        return gather(entries, self._service, self.path)

    def _stat(self) -> Mark | None:
        try:
            return _mark(os.stat(self.path))  # noqa: PTH116 - half the price of a Path, and paid twice a second for ever
        except (OSError, ValueError):
            return None

    def _read(self) -> bytes:
        """The content. Remembers the mark to know this version by, and whether it could stand for a later one too."""
        try:
            # Asked before it is opened: to open a pipe would wait for a writer.
            if not stat.S_ISREG(os.stat(self.path).st_mode):  # noqa: PTH116
                raise SettingsError(f"{self.path}: not a file")
            limit = _LARGEST[self.shared]
            with open(self.path, "rb") as file:  # noqa: PTH123 - the path is shown as it was given
                before = _mark(os.fstat(file.fileno()))
                data = file.read(limit + 1)
                after = _mark(os.fstat(file.fileno()))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise SettingsError(f"{self.path}: cannot be read: {reason}") from error
        if len(data) > limit:
            raise SettingsError(f"{self.path}: larger than {limit >> 20} MB, which no settings are")
        # A write within the same step of the file system's clock leaves the same mark. While the mark is that young, or
        # if the file changed under our eyes, it is read again at the next look; the digest makes that cheap.
        age = time.time_ns() - max(after.mtime, after.ctime)
        self._mark, self._certain = after, before == after and not 0 <= age < _SETTLED
        return data


def _mark(found: os.stat_result) -> Mark:
    return Mark(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
