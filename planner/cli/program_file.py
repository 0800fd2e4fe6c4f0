"""A program out of a Python file: `FILE.py:PROGRAM`."""

from __future__ import annotations

import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType

from ...dsl.program import ProgramFunction
from ...errors import TapestryError, UsageError, close_match
from ...imports import run_file
from ...program import Program
from .guard import full_text


def load_program(spec: str, settings: dict[str, str] | None = None) -> Program:
    """Imports FILE.py as a module and binds the program PROGRAM of it with the settings.

    Raises UsageError when the file does not exist or does not import (with the line), when it has no such program (the
    ones it has are listed), or when the settings are not the program's.
    """
    file, separator, name = spec.rpartition(":")
    if not separator or not file or not name:
        raise UsageError(f"a program is given as FILE.py:PROGRAM, not {spec!r}", hint=_programs_of(Path(spec)))
    found = _find(import_file(Path(file)), file, name)
    if isinstance(found, Program):
        if settings:
            raise UsageError("--set, but the program has nothing left to set", where=spec, sides={"given": settings})
        return found
    return _bind(found, Path(file), settings or {})


def _bind(program: ProgramFunction, path: Path, settings: dict[str, str]) -> Program:
    try:
        return program.bind_text(settings)
    except UsageError:
        raise
    except TapestryError as error:  # a program that contradicts itself is bad input, whatever else the error may be
        raise UsageError(full_text(error), where=str(path)) from error
    except Exception as error:
        raise UsageError(f"fails when bound: {type(error).__name__}: {error}", where=_place(error, path)) from error


def import_file(path: Path) -> ModuleType:
    """The module of a file. UsageError where it does not import, with the line."""
    if not path.is_file():
        raise UsageError("no such program file", where=str(path))
    try:
        with redirect_stdout(sys.stderr):  # stdout is for the command's own data
            return run_file(path)
    except TapestryError as error:
        raise UsageError(full_text(error), where=_place(error, path)) from error
    except (Exception, SystemExit) as error:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        raise UsageError(f"does not import: {type(error).__name__}: {message}", where=_place(error, path)) from error


def _place(error: BaseException, path: Path) -> str:
    """FILE:LINE of the innermost line of the file itself that was being executed."""
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).resolve() == path.resolve():
        return f"{path}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == path.resolve()]
    return f"{path}:{lines[-1]}" if lines else str(path)


def _find(module: ModuleType, file: str, name: str) -> Program | ProgramFunction:
    programs = _programs(module)
    if name in programs:
        return programs[name]
    if hasattr(module, name):
        kind = type(getattr(module, name)).__name__
        raise UsageError(f"{name!r} is not a program but of type {kind}", where=file, hint=_known(name, programs))
    raise UsageError(f"no program {name!r}", where=file, hint=_known(name, programs))


def _programs_of(path: Path) -> str | None:
    """How the programs of a file are given, where it is one."""
    if path.suffix != ".py" or not path.is_file():
        return None
    return " or ".join(f"{path}:{name}" for name in sorted(_programs(import_file(path)))) or None


def _programs(module: ModuleType) -> dict[str, Program | ProgramFunction]:
    return {key: value for key, value in vars(module).items() if isinstance(value, Program | ProgramFunction)}


def _known(name: str, programs: dict[str, Program | ProgramFunction]) -> str:
    return close_match(name, sorted(programs)) or "the file holds no program; decorate one with @tapestry.program"
