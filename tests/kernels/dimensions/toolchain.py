"""The host compiler, for tests that compile the typed dimensions; skips where there is none."""

import ctypes
import functools
import os
import subprocess
from importlib.resources import files
from pathlib import Path
from shutil import which

import pytest

INCLUDE = Path(str(files("tapestry.kernels") / "include"))


@functools.cache
def compiler() -> str:
    """The path of g++. Without it nothing here can be tested: skip, and say so."""
    found = which("g++")
    if found is None:
        pytest.skip("no g++: the typed dimensions are compiled by these tests", allow_module_level=True)
    return found


def compile_text(text: str, *options: str, standard: int = 17) -> subprocess.CompletedProcess[str]:
    """Compile C++ from stdin. Warnings are errors."""
    command = [
        compiler(),
        f"-std=c++{standard}",
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{INCLUDE}",
        *options,
        "-x",
        "c++",
        "-",
    ]
    spoken = {**os.environ, "LC_ALL": "C"}  # messages in plain English with plain quotes
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=300, env=spoken)


def shared_library(text: str, folder: Path, *options: str) -> ctypes.CDLL:
    """A library of `extern "C"` functions. The text is shown where it does not compile."""
    path = folder / "library.so"
    done = compile_text(text, "-O0", "-shared", "-fPIC", "-o", str(path), *options)
    assert done.returncode == 0, f"{done.stderr}\n{text}"
    return ctypes.CDLL(str(path))
