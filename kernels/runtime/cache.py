"""Compiled kernels and what was chosen, kept on disk, shared by any number of processes.

An entry is one file named by its key: a magic number, the SHA-256 of the rest, the length of a JSON head, the head, the
image. It is written to a temporary file and renamed, so a reader sees all of it or nothing; an entry whose digest is
wrong is removed and made again. What cannot be written is not cached, and said once.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import struct
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE = "TAPESTRY_CACHE"
LIMIT = 1 << 30  # bytes of entries kept by default
UNSEEN = 64  # a process puts this part of the limit before it counts again what is there
_MAGIC = b"TAPESTRY"
_SUFFIX = ".kernel"
_STALE_S = 3600  # a temporary file this old was left by a process that died
_CLAIMED = 5  # digits of a key that are claimed as one: with two, kernels of one model waited for one another
_PATIENCE_S = 120  # how long to wait for another process that compiles the same


@dataclass(frozen=True)
class Record:
    """What is kept of a compiled kernel: the image and a JSON head (log, entry name)."""

    image: bytes
    head: dict[str, Any]


def directory() -> Path | None:
    """Where entries are kept: `$TAPESTRY_CACHE` (`off`: nowhere), or `tapestry/kernels` in the user's caches."""
    named = os.environ.get(VARIABLE)
    if named:
        return None if named == "off" else Path(named)
    return user_cache() / "tapestry" / "kernels"


def user_cache() -> Path:
    """The platform's directory for what a user's programs can make again."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


@functools.cache
def at(folder: Path | None) -> Cache | None:
    """The cache in a directory, or none where there is no directory: one for all who ask, so that it complains once."""
    return None if folder is None else Cache(folder)


class Cache:
    """The entries of one directory. Every method is safe with other threads and processes in the same directory."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder, self.limit = folder, limit
        self._complained = False
        self._unseen = limit  # bytes put since it was last counted what is there: much, as others have put theirs

    def get(self, key: str) -> Record | None:
        """The entry of a key, or None. An entry that does not read back is removed."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        record = _unpack(data)
        with contextlib.suppress(OSError):
            if record is None:
                path.unlink()
            else:
                os.utime(path)  # the least recently used go first
        return record

    def put(self, key: str, record: Record) -> None:
        """Keep an entry, and evict the least recently used beyond the limit. Failing that, warn once and go on."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            data = _pack(record)
            self._write(self._path(key), data)
            self._unseen += len(data)
            if self._unseen > self.limit // UNSEEN:
                self._evict()
                self._unseen = 0
        except OSError as error:
            self._complain(error)

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[None]:
        """Hold a key while its entry is made, so that many processes starting together compile it once.

        Only a courtesy: where files cannot be locked, or the holder is too slow, the work is done twice.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError, ImportError):
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(_locked(self.folder / f"{key[:_CLAIMED]}.lock"))
            yield

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}{_SUFFIX}"

    def _write(self, path: Path, data: bytes) -> None:
        handle, name = tempfile.mkstemp(prefix=path.stem[:16], suffix=".tmp", dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _evict(self) -> None:
        """Down to three quarters of the limit, so that it is not at every entry that something must go."""
        now = time.time()
        kept = []
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):  # another process may have removed it
                found = path.stat()
                if path.suffix == _SUFFIX:
                    kept.append((found.st_mtime, found.st_size, path))
                elif path.suffix in (".tmp", ".lock") and now - found.st_mtime > _STALE_S:
                    path.unlink()  # where a claim is still held, its work may be done twice
        total = sum(size for _, size, _ in kept)
        if total <= self.limit:
            return
        for _, size, path in sorted(kept):
            if total <= self.limit * 3 // 4:
                break
            path.unlink(missing_ok=True)
            total -= size

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            warnings.warn(
                f"compiled kernels are not kept: {self.folder}: {error.strerror or error}; set {VARIABLE} to a"
                " directory that can be written, or to off",
                RuntimeWarning,
                stacklevel=2,
            )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """An advisory lock that goes with the process. Raises `ImportError` where there is none (Windows)."""
    import fcntl

    with path.open("ab") as file:
        end = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
        yield


def _pack(record: Record) -> bytes:
    head = json.dumps(record.head, sort_keys=True).encode()
    body = struct.pack("<I", len(head)) + head + record.image
    return _MAGIC + hashlib.sha256(body).digest() + body


def _unpack(data: bytes) -> Record | None:
    start = len(_MAGIC) + 32
    if len(data) < start + 4 or not data.startswith(_MAGIC):
        return None
    body = data[start:]
    if hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        return None
    (length,) = struct.unpack_from("<I", body)
    return Record(body[4 + length :], json.loads(body[4 : 4 + length]))
