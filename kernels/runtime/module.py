"""Compiled kernels on a device: loaded once, launched on the caller's stream.

A launch allocates nothing on the device and waits for nothing, so it can be captured in a graph. The first use of a
kernel on a device loads it, which cannot: load (or launch once) before capturing.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ..errors import LaunchError, TooLarge, WrongDevice, WrongValue
from .architecture import architecture
from .arguments import Arguments
from .bindings import driver, runtime
from .compiler import Compiled
from .device import current_device, properties
from .libcuda import LaunchAttributes, launch_with, packed
from .stream import stream_pointer

Extent = int | tuple[int, ...]

_MAX_DYNAMIC_SHARED = 8  # the driver's attribute of a function
_LARGE_CLUSTERS = 14  # likewise: more than 8 blocks of a cluster
_GRID = (2**31 - 1, 65535, 65535)
_BLOCK = (1024, 1024, 64)
_CLUSTER = (8, 8, 8)
_CLUSTER_BLOCKS = 8  # in all: what every GPU that has clusters takes
_PLAIN = LaunchAttributes()
_STREAMS = 64  # that a prepared launch is laid out for at a time
_loaded: dict[tuple[str, str, int], Kernel] = {}
_lock = threading.Lock()


def load(compiled: Compiled, device: int | None = None) -> Kernel:
    """The kernel on a device (the calling thread's where none is named): loaded at the first call, then remembered."""
    where = current_device() if device is None else device
    key = (compiled.key, compiled.entry, where)
    found = _loaded.get(key)
    if found is None:
        with _lock:
            found = _loaded.get(key)
            if found is None:
                found = _loaded[key] = Kernel(compiled, where)
    return found


class Kernel:
    """A kernel on one device. Safe to launch from several threads."""

    def __init__(self, compiled: Compiled, device: int) -> None:
        _require_architecture(compiled, device)
        self.compiled, self.device, self.entry = compiled, device, compiled.entries[compiled.entry]
        self._launch = driver().launchKernel
        self._current = driver().ctxGetCurrent
        with _device(device):
            self._context = self._current()
            self._module, self._function = _open(compiled)
        self._arguments = Arguments(compiled.name, self.entry.parameters)
        self._turn = threading.Lock()
        self._shapes: dict[tuple[Extent, Extent, int], tuple[int, ...]] = {}
        self._shared = 0  # bytes of dynamic shared memory the driver was asked to allow

    def launch(
        self,
        grid: Extent,
        block: Extent,
        args: Sequence[Any],
        shared: int = 0,
        stream: object = None,
        programmatic: bool = False,
        cluster: Extent = 1,
    ) -> None:
        """Run the kernel: `grid` blocks of `block` threads with `shared` bytes of dynamic shared memory.

        `args` go to the parameters in order (see `Arguments`). `stream` is as in `stream_pointer`. A `programmatic`
        launch may start before the kernel ahead of it has ended, and waits for its memory itself. The blocks of a
        `cluster`, which divides the grid along each axis, run at once. Raises `WrongType`, `WrongValue`, `TooLarge`,
        `LaunchError`.
        """
        numbers = self._shape(grid, block, shared)
        attributes = self._attributes(numbers, programmatic, cluster)
        handle = self._stream(stream)
        with self._turn:  # the driver copies the arguments before it returns
            self._arguments.pack(args)
            self._run(numbers, handle, self._arguments.address, attributes)

    def prepare(
        self,
        grid: Extent,
        block: Extent,
        args: Sequence[Any],
        shared: int = 0,
        programmatic: bool = False,
        cluster: Extent = 1,
    ) -> Prepared:
        """The same launch, checked and packed once, to be repeated."""
        arguments = self._arguments.another()
        arguments.pack(args)
        numbers = self._shape(grid, block, shared)
        return Prepared(self, numbers, arguments, self._attributes(numbers, programmatic, cluster))

    def allow_large_clusters(self) -> None:
        """Let the kernel run in clusters of 16 blocks, which some GPUs take (the launch says whether this one does)."""
        with _device(self.device):
            driver().funcSetAttribute(self._function.ptr, _LARGE_CLUSTERS, 1)

    def _stream(self, stream: object) -> int:
        return stream if type(stream) is int else stream_pointer(stream, device=self.device)

    def _run(self, numbers: tuple[int, ...], stream: int, arguments: int, attributes: LaunchAttributes) -> None:
        send = self._send if attributes is _PLAIN else self._send_with
        if self._current() == self._context:
            send(numbers, stream, arguments, attributes)
        else:  # another device is current, or none yet in this thread
            with _device(self.device):
                send(numbers, stream, arguments, attributes)

    def _send(self, numbers: tuple[int, ...], stream: int, arguments: int, _: LaunchAttributes) -> None:
        try:
            self._launch(self._function.ptr, *numbers, stream, arguments, 0)
        except driver().CUDADriverError as error:
            raise self._refused(numbers, str(error)) from error

    def _send_with(self, numbers: tuple[int, ...], stream: int, arguments: int, attributes: LaunchAttributes) -> None:
        status = launch_with(self._function.ptr, numbers, stream, arguments, attributes)()
        if status:
            raise self._refused(numbers, f"error {status}")

    def _attributes(self, numbers: tuple[int, ...], programmatic: bool, cluster: Extent) -> LaunchAttributes:
        if not programmatic and cluster == 1:
            return _PLAIN
        blocks = _extents(cluster, _CLUSTER, "cluster", self.compiled.name)
        ragged = any(count % size for count, size in zip(numbers, blocks, strict=False))
        if ragged or math.prod(blocks) > _CLUSTER_BLOCKS:
            raise WrongValue(
                "not a cluster of this grid",
                where=self.compiled.name,
                expected=f"at most {_CLUSTER_BLOCKS} blocks, a divisor of the grid {numbers[:3]} along each axis",
                came=blocks,
            )
        wanted = LaunchAttributes(programmatic, blocks)
        return _PLAIN if wanted == _PLAIN else wanted

    def _shape(self, grid: Extent, block: Extent, shared: int) -> tuple[int, ...]:
        """Grid, block and dynamic shared memory as the driver takes them; checked once for each that comes."""
        try:
            return self._shapes[grid, block, shared]
        except KeyError:
            numbers = self._checked(grid, block, shared)
            if len(self._shapes) > 4096:
                self._shapes.clear()
            self._shapes[grid, block, shared] = numbers
            return numbers

    def _checked(self, grid: Extent, block: Extent, shared: int) -> tuple[int, ...]:
        where = self.compiled.name
        blocks, threads = _extents(grid, _GRID, "grid", where), _extents(block, _BLOCK, "block", where)
        count, most = threads[0] * threads[1] * threads[2], self.entry.threads or _BLOCK[0]
        if count > most:
            raise TooLarge("too many threads in a block", where=where, expected=f"at most {most}", came=count)
        self._allow(shared)
        return (*blocks, *threads, shared)

    def _allow(self, shared: int) -> None:
        """Beyond 48 KiB, static and dynamic together, a kernel has to ask; asking for less does no harm."""
        used = self.compiled.report.get(self.compiled.entry)
        room = properties(self.device).shared_per_block - (used.shared if used else 0)
        if not 0 <= shared <= room:
            raise TooLarge(
                "more dynamic shared memory than a block can have",
                where=self.compiled.name,
                expected=f"0 to {room} bytes on {properties(self.device).name}",
                came=shared,
            )
        if shared > self._shared:
            with _device(self.device):
                driver().funcSetAttribute(self._function.ptr, _MAX_DYNAMIC_SHARED, shared)
            self._shared = shared

    def _refused(self, numbers: tuple[int, ...], error: str) -> LaunchError:
        return LaunchError(
            f"the driver refused the launch: {error}",
            where=self.compiled.name,
            came=f"grid {numbers[:3]}, block {numbers[3:6]}, {numbers[6]} bytes of shared memory, device {self.device}",
        )


class Described(NamedTuple):
    """A launch as the driver takes it: handles, grid with block and shared bytes, attributes, arguments as words, and
    the bytes at which parameters begin among them.
    """

    context: int
    function: int
    numbers: tuple[int, ...]
    attributes: bytes
    words: memoryview
    offsets: tuple[int, ...]


class Prepared:
    """A launch whose arguments are fixed. It keeps no array alive."""

    __slots__ = ("_arguments", "_attributes", "_kernel", "_numbers", "_on")

    def __init__(
        self, kernel: Kernel, numbers: tuple[int, ...], arguments: Arguments, attributes: LaunchAttributes
    ) -> None:
        self._kernel, self._numbers, self._arguments = kernel, numbers, arguments
        self._attributes = attributes
        self._on: dict[int, Callable[[], int]] = {}  # stream -> the launch on it, with attributes

    @property
    def words(self) -> memoryview:
        """The arguments as 64-bit words: what is written there holds for the launches that follow."""
        return self._arguments.words

    def described(self) -> Described:
        """What it takes to launch it by other means."""
        kernel, arguments = self._kernel, self._arguments
        return Described(
            kernel._context,
            kernel._function.ptr,
            self._numbers,
            packed(self._attributes),
            self.words,
            arguments.offsets,
        )

    def launch(self, stream: object = None) -> None:
        """Run it once more. `stream` is as in `stream_pointer`."""
        kernel = self._kernel
        handle = stream if type(stream) is int else kernel._stream(stream)
        again = self._on.get(handle)
        if again is None or kernel._current() != kernel._context:
            self._first(handle)
        elif status := again():
            raise kernel._refused(self._numbers, f"error {status}")

    def _first(self, stream: int) -> None:
        """On a stream that it was not on, where another device is current, or without attributes."""
        kernel, address = self._kernel, self._arguments.address
        if self._attributes is _PLAIN:
            kernel._run(self._numbers, stream, address, _PLAIN)
            return
        if len(self._on) >= _STREAMS:
            self._on.clear()
        again = launch_with(kernel._function.ptr, self._numbers, stream, address, self._attributes)
        self._on[stream] = again
        with _device(kernel.device):
            status = again()
        if status:
            raise kernel._refused(self._numbers, f"error {status}")


def _open(compiled: Compiled) -> tuple[Any, Any]:
    from cupy.cuda.function import Module

    module = Module()
    try:
        module.load(compiled.cubin)
        return module, module.get_function(compiled.entry)
    except Exception as error:
        raise LaunchError(
            f"the driver refused the kernel: {error}", where=compiled.name, came=f"code for {compiled.arch}"
        ) from error


def _require_architecture(compiled: Compiled, device: int) -> None:
    made, capability = architecture(compiled.arch), properties(device).capability
    number = 10 * capability[0] + capability[1]
    same = made.number == number if made.feature else made.portable or made.number // 10 == capability[0]
    if not same or made.number > number:
        raise WrongDevice(
            "compiled for another architecture",
            where=compiled.name,
            expected=f"a device that runs {compiled.arch}",
            came=f"device {device}: {properties(device).name}, sm_{number}",
            hint="compile with arch=device_architecture(device)",
        )


def _extents(given: Extent, most: tuple[int, int, int], what: str, where: str) -> tuple[int, int, int]:
    listed = (given,) if isinstance(given, int) else tuple(given)
    if not 1 <= len(listed) <= 3 or any(not 1 <= int(extent) <= top for extent, top in zip(listed, most, strict=False)):
        raise WrongValue(f"not a {what}", where=where, expected=f"up to three extents from 1 to {most}", came=given)
    x, y, z = (*map(int, listed), 1, 1)[:3]
    return x, y, z


@contextlib.contextmanager
def _device(device: int) -> Iterator[None]:
    """Make a device the calling thread's, and its context current, for a while."""
    before = runtime().getDevice()
    runtime().setDevice(device)
    try:
        yield
    finally:
        runtime().setDevice(before)
