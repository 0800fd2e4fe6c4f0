"""Files appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ...errors import UsageError

Content = str | bytes | memoryview


def write_atomically(path: str | Path, *content: Content) -> None:
    """Writes text (UTF-8) or bytes, one part after the other, under another name in the same folder, then renames.

    Whoever reads `path` sees the old content or the new, never a part; a failure leaves nothing behind. Raises
    UsageError where the folder does not exist or may not be written.
    """
    path = Path(path)
    try:
        _replace(path, content)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=str(path)) from error


def _replace(path: Path, content: Sequence[Content]) -> None:
    handle, scratch = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            for part in content:
                file.write(part.encode() if isinstance(part, str) else part)
        Path(scratch).chmod(0o666 & ~_umask())
        Path(scratch).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(scratch).unlink()
        raise


def _umask() -> int:
    """The process's mask; reading it means setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
