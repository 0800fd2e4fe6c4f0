"""The host compiler, for tests that compile the kernels' own text; they skip where there is none.

A library is compiled once a run: whichever worker asks first compiles it, and the others find it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import which

import pytest

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parents[1] / "kernels" / "include"
EMULATION = HERE / "emulation"
MACHINE = (EMULATION / "machine.cpp", EMULATION / "copies.cpp")
EMULATED = ("-std=c++20", "-O1", "-w", "-fvisibility=hidden", f"-I{EMULATION}")

DOOR = """
extern "C" __attribute__((visibility("default"))) const char* run_NAME(
    const unsigned* grid, const unsigned* block, const void* const* given, unsigned seed, unsigned cluster) {
  return run_grid(NAME, grid, block, given, seed, cluster);
}
"""


@functools.cache
def compiler() -> str:
    """The path of g++. Without it nothing here can be tested: skip, and say so."""
    found = which("g++")
    if found is None:
        pytest.skip("no host C++ compiler: the kernels' text is compiled by these tests", allow_module_level=True)
    return found


def compile_text(text: str, *options: str, linked: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
    """Compile C++ from stdin, with the package's headers, and link objects to it."""
    return _compile(text, "-x", "c++", "-", "-x", "none", *map(str, linked), *options)


def _compile(text: str, *options: str) -> subprocess.CompletedProcess[str]:
    spoken = {**os.environ, "LC_ALL": "C"}  # messages in plain English with plain quotes
    command = [compiler(), *options, f"-I{INCLUDE}"]  # last: what the emulation has in its place comes first
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=300, env=spoken)


_folders: list[Path] = []


def share(folder: Path) -> None:
    """Where the libraries of this run are: the workers of a run name the same folder."""
    _folders[:] = [folder]


def library(text: str, *options: str, linked: Sequence[Path] = ()) -> ctypes.CDLL:
    """A library of `extern "C"` functions. The text is shown where it does not compile."""
    what = ("-shared", "-fPIC", *options, "-x", "c++", "-", "-x", "none", *map(str, linked))
    return ctypes.CDLL(str(_made(text, what, ".so")))


def compiled(path: Path, *options: str) -> Path:
    """The object of a file, to be linked to libraries."""
    return _made(path.read_text(encoding="utf-8"), ("-c", "-fPIC", *options, str(path)), ".o")


def begun(header: Path, *options: str) -> tuple[str, ...]:
    """The options, and one that begins a text with a header, which is parsed once for all texts."""
    what = ("-fPIC", *options, "-x", "c++-header", str(header))
    return (*options, "-include", str(_made(header.read_text(encoding="utf-8"), what, ".hpp.gch").with_suffix("")))


def emulated(text: str, *names: str) -> ctypes.CDLL:
    """Kernels and the machine that runs them (`emulation/machine.hpp`): `run_NAME` launches the kernel NAME."""
    memory = "extern __shared__ __align__(1024) unsigned char memory[];"
    text = text.replace(memory, "unsigned char* memory = emulated::shared_memory;")
    doors = [DOOR.replace("NAME", name) for name in names]
    machine = [compiled(path, *EMULATED) for path in MACHINE]
    loaded = library("\n".join([text, *doors]), *begun(EMULATION / "run.hpp", *EMULATED), linked=machine)
    for name in names:
        getattr(loaded, f"run_{name}").restype = ctypes.c_char_p
    return loaded


def _made(text: str, options: Sequence[str], suffix: str) -> Path:
    """What the compiler makes of a text, or of a file with that text."""
    (folder,) = _folders
    digest = hashlib.sha256("\0".join([text, *options]).encode()).hexdigest()[:24]
    path = folder / f"{digest}{suffix}"
    with _alone(folder / f"{digest}.lock"):
        if not path.exists():
            part = folder / f"{digest}.part"
            done = _compile(text, "-o", str(part), *options)
            assert done.returncode == 0, f"{done.stderr[:3000]}\n{text}"
            part.replace(path)
    return path


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
