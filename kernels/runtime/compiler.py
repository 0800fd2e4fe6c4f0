"""CUDA C++ to machine code: compiled once a machine, kept on disk, with a report of what each kernel uses."""

from __future__ import annotations

import functools
import hashlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import CompileError, WrongValue
from .architecture import architecture
from .binary import Entry, entries
from .bindings import nvrtc
from .cache import Cache, Record, at, directory
from .diagnostics import describe
from .headers import package_headers, reachable
from .report import Resources, read_report

STANDARD = ("--std=c++20", "--device-as-default-execution-space")

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_FORMAT = "1"  # of the entries on disk: part of their key
_memory: dict[tuple[object, ...], Compiled] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Compiled:
    """A compiled source. `name` is the kernel asked for, `entry` its name in the image, `arch` what it was made for.

    `cubin` is machine code, or portable assembly where `arch` is one (`compute_90`); `log` is the compiler's.
    """

    name: str
    entry: str
    arch: str
    cubin: bytes
    log: str
    key: str

    @functools.cached_property
    def entries(self) -> Mapping[str, Entry]:
        """Every kernel of the image, by its name there."""
        return entries(self.cubin)

    @functools.cached_property
    def report(self) -> Mapping[str, Resources]:
        """What each kernel uses. Empty for portable assembly, which the driver assembles."""
        return read_report(self.log)

    @property
    def resources(self) -> Resources:
        """What the kernel asked for uses. Raises `WrongValue` for portable assembly."""
        if self.entry not in self.report:
            raise WrongValue(
                "the resources of portable assembly are not known before it is loaded",
                where=self.name,
                expected="machine code: arch='sm_NN'",
                came=self.arch,
            )
        return self.report[self.entry]

    @property
    def registers(self) -> int:
        """Registers a thread."""
        return self.resources.registers

    @property
    def spill_stores(self) -> int:
        """Bytes of spilled registers written, a thread."""
        return self.resources.spill_stores

    @property
    def spill_loads(self) -> int:
        """Bytes of spilled registers read back, a thread."""
        return self.resources.spill_loads

    @property
    def stack(self) -> int:
        """Bytes of stack frame, a thread: a register array with a run-time index, say."""
        return self.resources.stack

    @property
    def shared(self) -> int:
        """Bytes of static shared memory."""
        return self.resources.shared


@dataclass(frozen=True)
class Recipe:
    """A kernel that can be compiled for any architecture: what `compile_source` takes.

    `feature` is `a` where it needs what only the very architecture has that it is compiled for.
    """

    name: str
    source: str
    options: tuple[str, ...] = ()
    feature: str = ""

    def target(self, arch: str) -> str:
        """The architecture it is compiled for, for a GPU of `arch`."""
        return arch if arch.endswith(self.feature) else arch + self.feature

    def compile(self, arch: str = "sm_90", build: Build | None = None) -> Compiled:
        """Compile it, by a compiler that is not this process's own where one is given, or find it in the cache."""
        if build is not None:
            return compile_beside(self, arch, at(directory()), build)
        return compile_source(self.source, name=self.name, arch=self.target(arch), options=self.options)


def compile_source(
    source: str,
    *,
    name: str,
    arch: str = "sm_90",
    headers: Mapping[str, str] | None = None,
    options: Sequence[str] = (),
) -> Compiled:
    """Compile the kernel `name` of a CUDA C++ source.

    `name` is a kernel declared `extern "C"`, or a C++ expression that names an instance (`conv<8, 3>`). `headers` are
    texts by the names they are included with, beside the package's own (`#include <tapestry/dim.cuh>`). `options` are
    NVRTC's, after the standard ones. No GPU is needed.

    Raises `CompileError` with the generated lines a complaint is about, `MissingCuPy`, `MissingNVRTC`, `WrongValue`
    (the architecture). The result is kept in memory and on disk (`runtime/cache.py`).
    """
    known = (name, arch, tuple(options), source, tuple(headers.items()) if headers else None)
    found = _memory.get(known)
    if found is None:
        found = _remember(known, _cached(_request(source, name, arch, headers, options), at(directory()), here))
    return found


def compile_beside(recipe: Recipe, arch: str, cache: Cache | None, build: Build | None = None) -> Compiled:
    """`recipe.compile`, by way of a cache that is not this process's own, and of a compiler that is not (`build`)."""
    target = recipe.target(arch)
    known = (recipe.name, target, recipe.options, recipe.source, None)
    request = _request(recipe.source, recipe.name, target, None, recipe.options)
    return _memory.get(known) or _remember(known, _cached(request, cache, build or here))


def _remember(known: tuple[object, ...], made: Compiled) -> Compiled:
    with _lock:
        return _memory.setdefault(known, made)


def is_cached(recipe: Recipe, arch: str) -> bool:
    """Whether `compile_source` would find it without compiling."""
    target = recipe.target(arch)
    if (recipe.name, target, recipe.options, recipe.source, None) in _memory:
        return True
    cache = at(directory())
    key = _request(recipe.source, recipe.name, target, None, recipe.options).key
    return cache is not None and cache.get(key) is not None


def _request(source: str, name: str, arch: str, headers: Mapping[str, str] | None, options: Sequence[str]) -> Request:
    texts = reachable(source, {**package_headers(), **(headers or {})})
    return Request(name, str(architecture(arch)), source, texts, (*STANDARD, *options))


@dataclass(frozen=True)
class Request:
    """All that a compiled kernel depends on."""

    name: str
    arch: str
    source: str
    headers: Mapping[str, str]
    options: tuple[str, ...]

    @property
    def plain(self) -> bool:
        """Whether the name is a kernel's own (`extern "C"`): one image then serves all the kernels of the source."""
        return _IDENTIFIER.fullmatch(self.name) is not None

    @property
    def portable(self) -> bool:
        """Whether portable assembly is asked for, not machine code."""
        return architecture(self.arch).portable

    @property
    def flags(self) -> tuple[str, ...]:
        """All options as the compiler takes them."""
        return (
            f"--gpu-architecture={self.arch}",
            *([] if self.portable else ["--ptxas-options=-v"]),
            *self.options,
        )

    @functools.cached_property
    def key(self) -> str:
        """SHA-256 over every part with its length, so that no two requests run together."""
        version = ".".join(map(str, nvrtc().getVersion()))
        texts = [text for header in self.headers.items() for text in header]
        digest = hashlib.sha256()
        for part in (
            _FORMAT,
            version,
            "" if self.plain else self.name,
            self.arch,
            self.source,
            *self.options,
            "\0",
            *texts,
        ):
            data = part.encode()
            digest.update(len(data).to_bytes(8, "little") + data)
        return digest.hexdigest()

    @property
    def file(self) -> str:
        """What the compiler calls the source in its messages."""
        return f"{re.sub(r'[^A-Za-z0-9_]+', '_', self.name).strip('_')}.cu"


class Outcome(NamedTuple):
    """What a compiler makes of a request.

    `error` is what it calls what went wrong, or nothing; `entry` the name in the image of a template's instance, where
    one was asked for.
    """

    error: str
    log: str
    image: bytes
    entry: str


Build = Callable[[Request], Outcome]


def here(request: Request) -> Outcome:
    """Compile in this process, through CuPy."""
    compiler = nvrtc()
    texts = [text.encode() for text in request.headers.values()]
    names = [name.encode() for name in request.headers]
    program = compiler.createProgram(request.source, request.file, texts, names)
    try:
        if not request.plain:
            compiler.addNameExpression(program, request.name)
        try:
            compiler.compileProgram(program, request.flags)
        except compiler.NVRTCError as error:
            return Outcome(str(error), compiler.getProgramLog(program), b"", "")
        log = compiler.getProgramLog(program)
        entry = "" if request.plain else compiler.getLoweredName(program, request.name)
        image = compiler.getPTX(program) if request.portable else compiler.getCUBIN(program)
        return Outcome("", log, image.encode() if isinstance(image, str) else bytes(image), entry)
    finally:
        compiler.destroyProgram(program)


def _cached(request: Request, cache: Cache | None, build: Build) -> Compiled:
    if cache is None:
        return _compile(request, build)
    record = cache.get(request.key)
    if record is None:
        with cache.claim(request.key):
            record = cache.get(request.key)
            if record is None:
                made = _compile(request, build)
                cache.put(request.key, Record(made.cubin, {"entry": made.entry, "log": made.log}))
                return made
    entry = request.name if request.plain else record.head["entry"]
    _require(request, entry, record.image)
    return Compiled(request.name, entry, request.arch, record.image, record.head["log"], request.key)


def _compile(request: Request, build: Build) -> Compiled:
    made = build(request)
    if made.error:
        raise _refused(request, made.log, made.error)
    entry = made.entry or request.name
    _require(request, entry, made.image)
    return Compiled(request.name, entry, request.arch, made.image, _timeless(made.log), request.key)


def _timeless(log: str) -> str:
    """The log without how long the compiler took, so that the same request leaves the same entry."""
    return re.sub(r"ptxas info +: Compile time = [^\n]*\n", "", log.rstrip("\0"))


def _refused(request: Request, log: str, error: str) -> CompileError:
    text = describe(log, {request.file: request.source, **request.headers}) or error
    return CompileError(
        f"does not compile for {request.arch} with {' '.join(request.options)}\n{text}",
        where=request.name,
        log=log,
        source=request.source,
    )


def _require(request: Request, entry: str, image: bytes) -> None:
    found = entries(image)
    if entry not in found:
        raise CompileError(
            f"the source has no kernel of this name; it has {', '.join(sorted(found)) or 'none'}: declare it"
            ' extern "C", or name a template\'s instance',
            where=request.name,
            source=request.source,
        )


def forget() -> None:
    """Drop what this process remembers (tests; nothing on disk is touched)."""
    with _lock:
        _memory.clear()
        at.cache_clear()
