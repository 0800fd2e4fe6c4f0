"""Where in the user's code an operation was written, and the name of the variable it is assigned to."""

from __future__ import annotations

import dis
import re
import sys
from functools import cache, lru_cache
from pathlib import PurePath
from types import CodeType, FrameType

from ..errors import TapestryError

_PACKAGE = __name__.partition(".")[0]
_BINDS = f"{_PACKAGE}.dsl.program"
_LINE = re.compile(r"(\.py|>):\d+")


def user_frame() -> FrameType | None:
    """The innermost frame outside this package; None beyond the call that binds the program."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if not _in_package(module):
            return frame
        if module == _BINDS and frame.f_code.co_name == "bind":
            return None
        frame = frame.f_back
    return None


def locate(error: TapestryError, otherwise: str) -> None:
    """Give an error that names no line that of the user's innermost expression on its way, or ``otherwise``."""
    if _LINE.search(f"{error.where} {error.what}"):
        return
    found = otherwise
    step = error.__traceback__
    while step is not None:
        if not _in_package(step.tb_frame.f_globals.get("__name__")):
            found = f"{PurePath(step.tb_frame.f_code.co_filename).name}:{step.tb_lineno}"
        step = step.tb_next
    error.where = located(error.where, found) if error.where and error.where != otherwise else found


@cache
def _in_package(module: str | None) -> bool:
    return module == _PACKAGE or str(module).startswith(f"{_PACKAGE}.")


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
