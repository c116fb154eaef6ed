"""One settings file: used whole or not at all, checked for changes with one stat, its last good values kept."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import time
from collections.abc import Mapping
from pathlib import PurePath

from accoda.errors import SettingsError
from accoda.settings.entries import Found, Value, gather
from accoda.settings.onlineconf import read_cdb, read_conf
from accoda.settings.paths import Path, SettingPath
from accoda.settings.readers import read_toml, read_yaml

log = logging.getLogger("accoda.settings")

SUFFIXES = (".toml", ".yaml", ".yml", ".cdb", ".conf")
_SHARED = (".cdb", ".conf")
_LARGEST = {True: 256 << 20, False: 1 << 20}  # a shared tree may be large; a file of our own settings is not
_SETTLED = 50_000_000  # nanoseconds: longer than a tick of any common file system's clock


Mark = tuple[int, int, int, int, int]
"""What a stat says about a version of the file. A rename changes the inode; a new mode only changes the last number."""


class SettingsFile:
    """A file, its last good values, and what is wrong with it now."""

    def __init__(self, path: str, service: Path) -> None:
        self.path = path
        self.values: Mapping[SettingPath, Value] = {}
        self.problems: tuple[str, ...] = ()  # why the present file is not used
        self.warnings: tuple[str, ...] = ()
        self._service = service
        self._suffix = PurePath(path).suffix.lower()
        self._mark: Mark | None = None  # None: there is no file
        self._certain = False  # if not, a later version may have the same mark, and the file is read again
        self._digest = b""
        if self._suffix not in SUFFIXES:
            raise SettingsError(f"{path}: a settings file ends in one of {', '.join(SUFFIXES)}")

    @property
    def shared(self) -> bool:
        """It is an OnlineConf module."""
        return self._suffix in _SHARED

    def load(self) -> None:
        """Read it for the first time. Any problem is an error."""
        try:
            data = self._read()
            self._digest = _digest(data)
            self._accept(self._parse(data))
        except SettingsError as error:
            self.problems = error.problems
            raise

    def stale(self) -> bool:
        """Whether the content has to be read again: one stat."""
        return not self._certain or self._stat() != self._mark

    def refresh(self) -> bool:
        """Read it again if it changed. True if its values or their lines are different.

        If it is gone or broken the last good values stay, and that is logged once for each change.
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
            self._digest = b""  # so that the next version is read
            return False
        digest = _digest(data)
        if digest == self._digest:  # touched, or renamed to the same content
            return False
        self._digest = digest
        try:
            # A program that writes in place empties the file first, so an empty file is not taken seriously.
            if self.values and not data.strip():
                raise SettingsError(f"{self.path}: the file is empty; to remove all settings, leave a comment in it")
            return self._accept(self._parse(data))
        except SettingsError as error:
            self._refuse(error.problems)
            return False

    def _accept(self, found: Found) -> bool:
        if self.problems:
            log.info("settings: %s is valid again and in force", self.path)
        for warning in found.warnings:
            if warning not in self.warnings:
                log.warning("settings: %s", warning)
        before, self.values = self.values, found.values
        self.problems, self.warnings = (), found.warnings
        return before != found.values

    def _refuse(self, problems: tuple[str, ...]) -> None:
        self.problems = problems
        log.warning("settings: %s; the last good values stay in force", "; ".join(problems))

    def _parse(self, data: bytes) -> Found:
        if self.shared:
            read = read_cdb if self._suffix == ".cdb" else read_conf
            return gather(read(data, self._service, self.path), self._service, self.path, shared=True)
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise SettingsError(f"{self.path}: not UTF-8: {error.reason} at byte {error.start}") from error
        entries = read_toml(text, self.path) if self._suffix == ".toml" else read_yaml(text, self.path)
        return gather(entries, self._service, self.path)

    def _stat(self) -> Mark | None:
        try:
            return _mark(os.stat(self.path))  # noqa: PTH116 - half the cost of a Path, twice a second
        except (OSError, ValueError):
            return None

    def _read(self) -> bytes:
        """The content. Remembers the mark of this version, and whether a later one may have the same mark."""
        try:
            # Checked before it is opened: opening a pipe would wait for a writer.
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
            raise SettingsError(f"{self.path}: larger than {limit >> 20} MB")
        # A second write within one tick of the file system's clock leaves the same mark. While the mark is that young,
        # or if the file changed during the read, it is read again the next time; the digest makes that cheap.
        age = time.time_ns() - max(after[3:])
        self._mark, self._certain = after, before == after and not 0 <= age < _SETTLED
        return data


def _mark(found: os.stat_result) -> Mark:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
