"""The host compiler, for tests that compile the kernels' own text; they skip where there is none.

Whichever process asks first for a library compiles it, and the others find it, in later runs too, until something that
it may be made of changes.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import itertools
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from shutil import which

import pytest

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parents[1] / "kernels" / "include"
EMULATION = HERE / "emulation"
MACHINE = (EMULATION / "machine.cpp", EMULATION / "copies.cpp")
# Everything that a text may include.
INCLUDED, SUFFIXES = (INCLUDE.parent, HERE), {".cpp", ".cu", ".cuh", ".h", ".hpp"}
KEPT, KEPT_FOR_S = HERE.parents[1] / "build" / "libraries", 30 * 24 * 3600
EMULATED = ("-std=c++20", "-O1", "-w", "-fvisibility=hidden", f"-I{EMULATION}")

DOOR = """
extern "C" __attribute__((visibility("default"))) const char* run_NAME(
    const unsigned* grid, const unsigned* block, const void* const* given, unsigned seed, unsigned cluster) {
  return run_grid(NAME, grid, block, given, seed, cluster);
}
extern "C" __attribute__((visibility("default"))) unsigned parameter_NAME(unsigned index) {
  return parameter_bytes(NAME, index);
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


def forget(folder: Path = KEPT) -> None:
    """Remove what no run has asked for of late."""
    for path in folder.glob("*"):
        with contextlib.suppress(FileNotFoundError):  # another process does the same
            if path.stat().st_mtime < time.time() - KEPT_FOR_S:
                path.unlink()


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
    """Kernels and the machine that runs them (`emulation/machine.hpp`): `run_NAME` launches the kernel NAME.

    `run_NAME.sizes` are the bytes of the kernel's parameters.
    """
    memory = "extern __shared__ __align__(1024) unsigned char memory[];"
    text = text.replace(memory, "unsigned char* memory = emulated::shared_memory;")
    doors = [DOOR.replace("NAME", name) for name in names]
    machine = [compiled(path, *EMULATED) for path in MACHINE]
    loaded = library("\n".join([text, *doors]), *begun(EMULATION / "run.hpp", *EMULATED), linked=machine)
    for name in names:
        entry, size = getattr(loaded, f"run_{name}"), getattr(loaded, f"parameter_{name}")
        entry.restype = ctypes.c_char_p
        entry.sizes = tuple(itertools.takewhile(bool, map(size, itertools.count())))
    return loaded


def _made(text: str, options: Sequence[str], suffix: str) -> Path:
    """What the compiler makes of a text, or of a file with that text."""
    KEPT.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256("\0".join([_surroundings(), text, *options]).encode()).hexdigest()[:24]
    path = KEPT / f"{digest}{suffix}"
    with _alone(KEPT / f"{digest}.lock"):
        if not path.exists():
            part = KEPT / f"{digest}.part"
            done = _compile(text, "-o", str(part), *options)
            assert done.returncode == 0, f"{done.stderr[:3000]}\n{text}"
            part.replace(path)
        path.touch()
    return path


@functools.cache
def _surroundings() -> str:
    """Names who compiles, and all that may be included."""
    command = [compiler(), "--version"]
    found = hashlib.sha256(subprocess.run(command, capture_output=True, check=True).stdout)
    for path in sorted(path for folder in INCLUDED for path in folder.rglob("*") if path.suffix in SUFFIXES):
        found.update(f"{path}\0{path.read_text(encoding='utf-8')}\0".encode())
    return found.hexdigest()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
