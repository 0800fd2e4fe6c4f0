"""Python files that declare something, run as modules: programs by the command line, block kernels by every process."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from .blocks import BLOCKS
from .errors import UsageError
from .program import Block, Program

# The files whose block kernels the ranks of a run have to know, joined as paths are.
DECLARING = "TAPESTRY_IMPORT"


def run_file(path: Path) -> ModuleType:
    """The module of a file. Raises UsageError for a file that is none, and whatever it raises itself."""
    if not path.is_file():
        raise UsageError("no such file", where=str(path))
    name = f"_tapestry_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError("not a Python file (its name does not end in .py)", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # the source of the functions in it is looked up there
    sys.path.insert(0, str(path.resolve().parent))  # as for a script, modules beside it can be imported
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


def declaring_files(programs: Iterable[Program]) -> str:
    """The value of `DECLARING` for the block kernels of programs.

    UsageError for one that was declared where no other process can read it.
    """
    found: dict[str, None] = {}
    bodies_of = (op.body for program in programs for op in program.operations)
    for kernel in dict.fromkeys(body.kernel for body in bodies_of if isinstance(body, Block)):
        bodies = BLOCKS[kernel].bodies
        if bodies is None or not bodies.home:
            continue
        if not Path(bodies.home).is_file():
            what = f"the block kernel {kernel} is unknown to other processes"
            hint = "move the call of tp.block to a file of its own and import that"
            raise UsageError(what, sides={"declared in": bodies.home}, hint=hint)
        found[str(Path(bodies.home).resolve())] = None
    return os.pathsep.join(found)


def import_declared() -> None:
    """Run the files that `DECLARING` lists, those left out whose kernels are here."""
    homes = [entry.bodies.home for entry in BLOCKS.values() if entry.bodies is not None]
    here = {str(Path(home).resolve()) for home in homes if home}
    for file in filter(None, os.environ.get(DECLARING, "").split(os.pathsep)):
        if file not in here:
            run_file(Path(file))
