"""Ranks do not outlive the process that launched them.

The launcher holds a lock on a file of its folder, which the system lets go however the launcher ends. Ranks look
whether they can have it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import sleep

_NAME = "launched"
LOOK_S = 0.5


@contextmanager
def launching(folder: Path) -> Iterator[None]:
    """Inside, the ranks of a folder know that their launcher lives."""
    with (folder / _NAME).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def watch(folder: Path) -> None:
    """End this process, and remove the folder, once the launcher is gone."""
    Thread(target=_watch, args=(folder,), daemon=True).start()


def _watch(folder: Path) -> None:
    while not _orphaned(folder):
        sleep(LOOK_S)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _orphaned(folder: Path) -> bool:
    try:
        with (folder / _NAME).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # another rank removed the folder
    return True
