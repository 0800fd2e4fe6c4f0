"""The extension of torch that repeats prepared calls without Python: compiled by the user's compiler, kept on disk.

Compiling takes some twenty seconds of one processor, once for each version of torch and of the sources here.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.util
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from functools import partial
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import Any

import torch

from ..runtime import cache
from ..runtime.cache import Cache, Record

NAME = "tapestry_native"
_SOURCES = Path(__file__).parent.parent / "native"
_MAIN = _SOURCES / "extension.cpp"
_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_LIBRARIES = ("c10", "torch_cpu", "torch_python")


class NotBuilt(Exception):
    """There is no extension here; why."""


def compiler() -> str:
    """The command of the C++ compiler."""
    return os.environ.get("CXX", "g++")


def command(output: Path) -> list[str]:
    """What compiles the extension."""
    base = Path(torch.__file__).parent
    include = base / "include"
    abi: bool = torch._C._GLIBCXX_USE_CXX11_ABI
    return [
        *compiler().split(), *_FLAGS, f"-D_GLIBCXX_USE_CXX11_ABI={int(abi)}",
        "-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include"),
        "-isystem", sysconfig.get_paths()["include"], str(_MAIN), "-o", str(output),
        f"-L{base / 'lib'}", *(f"-l{name}" for name in _LIBRARIES),
    ]  # fmt: skip


def key() -> str:
    """What the extension depends on, as the name of an entry of the cache."""
    facts = [torch.__version__, str(torch.version.git_version), sys.version, sysconfig.get_platform(), compiler()]
    sources = [path.read_bytes() for path in sorted(_SOURCES.iterdir()) if path.suffix in (".cpp", ".h")]
    found = hashlib.sha256(repr((facts, _FLAGS)).encode())
    for source in sources:
        found.update(source)
    return f"{NAME}-{found.hexdigest()}"  # kernels, whose names are bare digests, do not wait for it


def kept() -> bytes | None:
    """The extension of an earlier process."""
    folder = cache.directory()
    record = folder and Cache(folder).get(key())
    return record.image if record else None


def made() -> bytes:
    """The extension, compiled now and kept. Raises `NotBuilt`."""
    folder, name = cache.directory(), key()
    with contextlib.ExitStack() as stack:
        if folder is not None:
            stack.enter_context(Cache(folder).claim(name))
            if there := kept():  # another process was compiling it
                return there
        image = _compiled()
        if folder is not None:
            Cache(folder).put(name, Record(image, {"name": NAME}))
    return image


def _compiled() -> bytes:
    with tempfile.TemporaryDirectory(prefix="tapestry-") as folder:
        output = Path(folder) / f"{NAME}.so"
        try:
            process = subprocess.Popen(
                command(output), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
            )
        except OSError as error:
            raise NotBuilt(f"{compiler()}: {error.strerror}") from error
        end = partial(_end, process.pid)
        atexit.register(end)  # a program that ends does not wait for it
        try:
            said, _ = process.communicate()
        finally:
            atexit.unregister(end)
        if process.returncode:
            lines = [line for line in said.decode(errors="replace").splitlines() if "error" in line]
            raise NotBuilt(f"{compiler()}: {lines[0] if lines else f'exit {process.returncode}'}")
        return output.read_bytes()


def _end(group: int) -> None:
    """End a compiler and what it has begun."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def loaded(image: bytes) -> Any:
    """The module. Raises `NotBuilt`."""
    with tempfile.TemporaryDirectory(prefix="tapestry-") as folder:
        path = Path(folder) / f"{NAME}.so"
        path.write_bytes(image)
        loader = ExtensionFileLoader(NAME, str(path))
        spec = importlib.util.spec_from_file_location(NAME, path, loader=loader)
        assert spec is not None
        try:
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
        except ImportError as error:
            raise NotBuilt(str(error)) from error
        return module
