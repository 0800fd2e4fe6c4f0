"""A process that compiles, and does nothing else: run by its path, so that it begins without importing the package.

In come pickled (source, file, header texts, header names, name expression or "", options, portable), out go pickled
(error or "", log, image, entry); the first thing out is whether there is a compiler of the version that was asked for.
Threads of one process wait for one another in NVRTC: 34 kernels took 8.4 s on 16 threads for 31 s of work.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_REFUSED = 6  # NVRTC_ERROR_COMPILATION: the source is wrong, not the compiler


def serve(libraries: Sequence[str], version: tuple[int, int]) -> None:
    """Answer what comes in on stdin until it is closed, with the first of the libraries that is of a version."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library may print is no answer
    nvrtc = _loaded(libraries, version)
    _answer(answers, nvrtc is not None)
    while nvrtc is not None:
        try:
            _answer(answers, compiled(nvrtc, *pickle.load(sys.stdin.buffer)))
        except (EOFError, OSError):  # nobody asks any more, or it cannot: whoever asked goes on without it
            return


def _answer(answers: Any, what: object) -> None:
    pickle.dump(what, answers)
    answers.flush()


def _loaded(libraries: Sequence[str], version: tuple[int, int]) -> Any:
    for path in libraries:
        try:
            # What the library opens by its bare name while it compiles lies beside it.
            for beside in Path(path).parent.glob("libnvrtc-builtins.so*"):
                ctypes.CDLL(str(beside))
            nvrtc = ctypes.CDLL(path)
        except OSError:
            continue
        major, minor = ctypes.c_int(), ctypes.c_int()
        if not nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) and (major.value, minor.value) == version:
            nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
            return nvrtc
    return None


def compiled(
    nvrtc: Any,
    source: bytes,
    file: bytes,
    texts: Sequence[bytes],
    names: Sequence[bytes],
    expression: bytes,
    options: Sequence[bytes],
    portable: bool,
) -> tuple[str, str, bytes, str]:
    """(error or "", log, image, the name in the image of what the expression names). Raises OSError where it cannot."""
    program = ctypes.c_void_p()
    status = nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, file, len(texts), _strings(texts), _strings(names))
    if status:
        raise OSError(_words(nvrtc, status))
    try:
        if expression:
            nvrtc.nvrtcAddNameExpression(program, expression)
        status = nvrtc.nvrtcCompileProgram(program, len(options), _strings(options))
        log = _fetched(nvrtc, "ProgramLog", program).decode(errors="replace")
        if status == _REFUSED:
            return _words(nvrtc, status), log, b"", ""
        if status:
            raise OSError(_words(nvrtc, status))
        lowered = ctypes.c_char_p()
        if expression:
            nvrtc.nvrtcGetLoweredName(program, expression, ctypes.byref(lowered))
        image = _fetched(nvrtc, "PTX" if portable else "CUBIN", program)
        return "", log, image, (lowered.value or b"").decode()
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _strings(values: Sequence[bytes]) -> Any:
    return (ctypes.c_char_p * max(1, len(values)))(*values)


def _words(nvrtc: Any, status: int) -> str:
    """What the library calls an error."""
    named: bytes = nvrtc.nvrtcGetErrorString(status)
    return named.decode()


def _fetched(nvrtc: Any, what: str, program: ctypes.c_void_p) -> bytes:
    """Without a last zero, which CuPy leaves out of images too."""
    size = ctypes.c_size_t()
    getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size))
    room = ctypes.create_string_buffer(size.value)
    getattr(nvrtc, f"nvrtcGet{what}")(program, room)
    return room.raw.removesuffix(b"\0")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks is interrupted, and ends this
    serve(sys.argv[3:], (int(sys.argv[1]), int(sys.argv[2])))
    os._exit(0)  # no word of a pipe that is closed
