"""Writing files: whole or not at all, and never over something that nobody meant to lose."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from .errors import UsageError

Content = str | bytes | memoryview


def write_file(path: str | Path, *content: Content, replace: bool = False) -> None:
    """Writes text (UTF-8) or bytes, one part after the other.

    A regular file is written under another name in the same folder and then renamed: whoever reads `path` sees the old
    content or the new, never a part, and a failure leaves nothing behind. A character device or a pipe is written to
    and stays what it is.

    Raises UsageError where a file is there already (unless ``replace``), where the name is that of a symbolic link to a
    file, a folder or a disk, and where the folder does not exist or may not be written.
    """
    path = Path(path)
    try:
        if _takes_a_stream(path, replace=replace):
            _stream(path, content)
        else:
            _rename_over(path, content, replace=replace)
    except FileExistsError:  # it came between the look and the write
        raise _taken(path) from None
    except OSError as error:
        raise _unwritable(path, error) from error


def demand_writable(path: str | Path, *, replace: bool = False) -> None:
    """Raises what `write_file` would, as far as it can be told before there is anything to write."""
    path = Path(path)
    try:
        if not _takes_a_stream(path, replace=replace):
            path.parent.stat()
    except OSError as error:
        raise _unwritable(path, error) from error


def _takes_a_stream(path: Path, *, replace: bool) -> bool:
    """Whether the path is that of a device or pipe. UsageError where nothing may be written at all."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = 0
    if stat.S_ISCHR(mode) or stat.S_ISFIFO(mode):
        return True
    if path.is_symlink():
        hint = "name the file that it points to, or remove the link"
        raise UsageError("is a symbolic link, which is not written through", where=str(path), hint=hint)
    if stat.S_ISREG(mode) and not replace:
        raise _taken(path)
    if mode and not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "neither a file nor something that takes a stream"
        raise UsageError(f"cannot be written: it is {what}", where=str(path))
    return False


def _stream(path: Path, content: Sequence[Content]) -> None:
    """Neither made nor cut off: what does not exist any more by now is an error."""
    with os.fdopen(os.open(path, os.O_WRONLY), "wb") as file:
        _write(file, content)


def _rename_over(path: Path, content: Sequence[Content], *, replace: bool) -> None:
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            _write(file, content)
        Path(scratch).chmod(0o666 & ~_umask())
        if replace:
            Path(scratch).replace(path)
        else:
            _rename_to_new(Path(scratch), path)
    except BaseException:
        with suppress(OSError):
            Path(scratch).unlink()
        raise


def _rename_to_new(scratch: Path, path: Path) -> None:
    """A rename that replaces nothing: FileExistsError where the name is taken."""
    try:
        os.link(scratch, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without links; between look and rename somebody may be quicker there
        if os.path.lexists(path):
            raise FileExistsError from None
        scratch.replace(path)
    else:
        scratch.unlink()


def _write(file: BinaryIO, content: Sequence[Content]) -> None:
    for part in content:
        file.write(part.encode() if isinstance(part, str) else part)


def _taken(path: Path) -> UsageError:
    return UsageError("is there already", where=str(path), hint="--force replaces it")


def _unwritable(path: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot be written: {error.strerror}", where=str(path))


def _umask() -> int:
    """The process's mask; reading it means setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
