"""How the typed dimensions are compiled: warnings are errors."""

import ctypes
import subprocess

from .. import host_compiler

STRICT = ("-Wall", "-Wextra", "-Werror")
compiler = host_compiler.compiler


def compile_text(text: str, *options: str, standard: int = 17) -> subprocess.CompletedProcess[str]:
    """Compile C++ from stdin."""
    return host_compiler.compile_text(text, f"-std=c++{standard}", *STRICT, *options)


def shared_library(text: str, *options: str) -> ctypes.CDLL:
    """A library of `extern "C"` functions. The text is shown where it does not compile.

    What is never called is left out, which takes half the time of compiling all of it as it stands.
    """
    return host_compiler.library(text, "-std=c++17", *STRICT, "-O1", *options)
