"""Where in the user's code an operation was written, and the name of the variable it is assigned to."""

from __future__ import annotations

import dis
import re
import sys
import sysconfig
from functools import lru_cache
from pathlib import PurePath
from types import CodeType, FrameType

from ..errors import TapestryError

_PACKAGE = __name__.partition(".")[0]
_LIBRARY = sysconfig.get_path("stdlib")
_BINDS = f"{_PACKAGE}.dsl.program"
_LINE = re.compile(r"(\.py|>):\d+")


def user_frame() -> FrameType | None:
    """The innermost frame of the user's own code; None beyond the call that binds the program."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_users(frame):
            return frame
        if frame.f_code.co_name == "bind" and frame.f_globals.get("__name__") == _BINDS:
            return None
        frame = frame.f_back
    return None


def is_users(frame: FrameType) -> bool:
    """Whether a frame is neither of this package nor of Python's library, NumPy or torch, which the user only calls."""
    return _is_users(frame.f_globals.get("__name__"), frame.f_code.co_filename)


@lru_cache(maxsize=4096)
def _is_users(module: str | None, file: str) -> bool:
    if str(module).partition(".")[0] in (_PACKAGE, "numpy", "torch"):
        return False
    return not file.startswith((_LIBRARY, "<frozen ")) or "site-packages" in file


def locate(error: TapestryError, otherwise: str) -> None:
    """Give an error that names no line that of the user's innermost expression on its way, or ``otherwise``."""
    if _LINE.search(f"{error.where} {error.what}"):
        return
    found = otherwise
    step = error.__traceback__
    while step is not None:
        if is_users(step.tb_frame):
            found = f"{PurePath(step.tb_frame.f_code.co_filename).name}:{step.tb_lineno}"
        step = step.tb_next
    error.where = located(error.where, found) if error.where and error.where != otherwise else found


def place(frame: FrameType | None) -> str:
    """``file.py:line`` of a frame, or an empty string; no folder, so that programs are the same everywhere."""
    return f"{_file_name(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else ""


@lru_cache(maxsize=1024)
def _file_name(path: str) -> str:
    return PurePath(path).name


def here() -> str:
    """The place of the user's expression that is being evaluated."""
    return place(user_frame())


def located(name: str, source: str) -> str:
    """``name (file.py:line)``, or the name alone."""
    return f"{name} ({source})" if source else name


def assigned_name(frame: FrameType | None) -> str:
    """The variable that the call now running in ``frame`` is assigned to (``y = f(x)`` gives "y"), or ""."""
    return _stored_after(frame.f_code, frame.f_lasti) if frame else ""


@lru_cache(maxsize=4096)
def _stored_after(code: CodeType, offset: int) -> str:
    after = (i for i in dis.get_instructions(code) if i.offset > offset and i.opname != "CACHE")
    step = next(after, None)
    if (
        step is None
        or not step.opname.startswith("STORE_")
        or step.opname in ("STORE_SUBSCR", "STORE_ATTR", "STORE_SLICE")
    ):
        return ""
    name = step.argval[0] if isinstance(step.argval, tuple) else step.argval
    return name if isinstance(name, str) and name.isidentifier() and not name.startswith("_") else ""
