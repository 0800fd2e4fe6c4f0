"""Loading and launching, against a driver that only takes notes: what it is told, and what it is not asked."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tapestry.kernels.errors import LaunchError, TooLarge, WrongDevice, WrongType, WrongValue
from tapestry.kernels.runtime import module
from tapestry.kernels.runtime.array import DeviceArray
from tapestry.kernels.runtime.compiler import Compiled, compile_source
from tapestry.kernels.runtime.device import DeviceProperties

SOURCE = 'extern "C" __global__ void __launch_bounds__(256) f(float* y, int n, float a) { if (n) *y = a; }'
H200 = DeviceProperties("NVIDIA H200", (9, 0), 132, 60 << 20, 227 << 10, 228 << 10, 65536, 2048, 141 << 30)
STREAM = 0x5EED


class DriverError(Exception):
    """What CuPy's bindings raise."""


class Driver:
    """Notes every call. Context numbers are 100 + device, 0 in a thread that has none."""

    CUDADriverError = DriverError

    def __init__(self) -> None:
        self.launches: list[tuple[Any, ...]] = []
        self.attributes: list[tuple[int, int]] = []
        self.device, self.context = 0, 100
        self.fail = False

    def ctxGetCurrent(self) -> int:
        return self.context

    def getDevice(self) -> int:
        return self.device

    def setDevice(self, device: int) -> None:
        self.device, self.context = device, 100 + device

    def funcSetAttribute(self, function: int, attribute: int, value: int) -> None:
        self.attributes.append((attribute, value))

    def occupancyMaxActiveBlocksPerMultiprocessor(self, function: int, threads: int, shared: int) -> int:
        return 2048 // threads

    def launchKernel(self, function: int, *rest: int) -> None:
        if self.fail:
            raise DriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        *numbers, stream, arguments, extra = rest
        assert extra == 0
        pointers = (ctypes.c_uint64 * 3).from_address(arguments)
        values = [ctypes.string_at(address, size) for address, size in zip(pointers, (8, 4, 4), strict=True)]
        self.launches.append((self.context, tuple(numbers), stream, *values))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """The driver that takes notes, and two H200s."""
    fake = Driver()
    monkeypatch.setattr(module, "driver", lambda: fake)
    monkeypatch.setattr(module, "runtime", lambda: fake)
    monkeypatch.setattr(module, "properties", lambda device: H200)
    monkeypatch.setattr(module, "current_device", lambda: fake.device)
    monkeypatch.setattr(module, "_open", lambda compiled: (None, SimpleNamespace(ptr=0xF)))
    module._loaded.clear()
    yield fake
    module._loaded.clear()


@pytest.fixture
def compiled() -> Compiled:
    return compile_source(SOURCE, name="f")


def bits(pointer: int, n: int) -> tuple[bytes, bytes]:
    return pointer.to_bytes(8, "little"), n.to_bytes(4, "little")


ONE = bytes.fromhex("0000803f")


def test_the_driver_is_told_grid_block_stream_and_arguments(driver: Driver, compiled: Compiled) -> None:
    kernel = module.load(compiled)
    kernel.launch((3, 2), 128, (0x1000, 7, 1.0), stream=STREAM)
    assert driver.launches == [(100, (3, 2, 1, 128, 1, 1, 0), STREAM, *bits(0x1000, 7), ONE)]


def test_arrays_are_arguments_and_streams_of_libraries_are_streams(driver: Driver, compiled: Compiled) -> None:
    kernel = module.load(compiled, 0)
    y = DeviceArray(0x2000, (8,), (4,), "f32", 0)
    for stream in (SimpleNamespace(ptr=STREAM), SimpleNamespace(cuda_stream=STREAM), STREAM):
        kernel.launch(1, 32, (y, 8, 1.0), stream=stream)
    assert driver.launches == [(100, (1, 1, 1, 32, 1, 1, 0), STREAM, *bits(0x2000, 8), ONE)] * 3
    with pytest.raises(WrongType, match="not a stream"):
        kernel.launch(1, 32, (y, 8, 1.0), stream="default")


def test_a_prepared_launch_repeats_what_was_prepared(driver: Driver, compiled: Compiled) -> None:
    kernel = module.load(compiled)
    first = kernel.prepare(2, 64, (0x1000, 1, 1.0), shared=1024)
    second = kernel.prepare(2, 64, (0x2000, 2, 1.0))
    kernel.launch(1, 32, (0x3000, 3, 1.0), stream=0)
    first.launch(STREAM)
    second.launch(STREAM)
    assert [launch[3:5] for launch in driver.launches] == [bits(0x3000, 3), bits(0x1000, 1), bits(0x2000, 2)]
    assert [launch[1][-1] for launch in driver.launches] == [0, 1024, 0]


def test_large_clusters_are_asked_for(driver: Driver, compiled: Compiled) -> None:
    module.load(compiled).allow_large_clusters()
    assert driver.attributes == [(14, 1)]  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED


def test_a_kernel_is_loaded_once_a_device(driver: Driver, compiled: Compiled) -> None:
    assert module.load(compiled) is module.load(compiled, 0)
    assert module.load(compiled, 1) is not module.load(compiled, 0)
    assert module.load(compiled, 1).device == 1
    assert driver.device == 0


def test_a_launch_runs_on_the_kernels_device_and_leaves_the_callers(driver: Driver, compiled: Compiled) -> None:
    kernel = module.load(compiled, 1)
    kernel.launch(1, 32, (0, 0, 1.0), stream=STREAM)
    assert driver.launches[0][0] == 101
    assert (driver.device, driver.context) == (0, 100)


def test_a_thread_without_a_context_is_given_one(driver: Driver, compiled: Compiled) -> None:
    kernel = module.load(compiled)
    driver.context = 0
    kernel.launch(1, 32, (0, 0, 1.0), stream=STREAM)
    assert driver.launches[0][0] == 100


def test_more_shared_memory_is_asked_for_once(driver: Driver, compiled: Compiled) -> None:
    kernel = module.load(compiled)
    for shared in (100_000, 100_000, 80_000, 200_000):
        kernel.launch(1, 32, (0, 0, 1.0), shared=shared, stream=STREAM)
    assert [value for attribute, value in driver.attributes if attribute == 8] == [100_000, 200_000]


@pytest.mark.parametrize(
    ("grid", "block", "shared", "kind", "text"),
    [
        (1, 512, 0, TooLarge, "at most 256"),
        (1, (16, 32), 0, TooLarge, "came       512"),
        (0, 32, 0, WrongValue, "not a grid"),
        (1, 0, 0, WrongValue, "not a block"),
        ((1, 65536), 32, 0, WrongValue, "came       (1, 65536)"),
        ((1, 1, 1, 1), 32, 0, WrongValue, "up to three extents"),
        (1, 32, 1 << 20, TooLarge, "0 to 232448 bytes on NVIDIA H200"),
        (1, 32, -1, TooLarge, "came       -1"),
    ],
)
def test_what_cannot_be_launched_is_refused_before_the_driver_is_asked(
    driver: Driver, compiled: Compiled, grid: Any, block: Any, shared: int, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as caught:
        module.load(compiled).launch(grid, block, (0, 0, 1.0), shared=shared, stream=STREAM)
    assert str(caught.value).startswith("f: ")
    assert text in str(caught.value)
    assert driver.launches == []


def test_what_the_driver_refuses_says_what_it_was_asked(driver: Driver, compiled: Compiled) -> None:
    kernel = module.load(compiled)
    driver.fail = True
    with pytest.raises(LaunchError, match=r"INVALID_VALUE[\s\S]*grid \(4, 1, 1\), block \(32, 1, 1\), 16 bytes"):
        kernel.launch(4, 32, (0, 0, 1.0), shared=16, stream=STREAM)


def test_the_number_of_arguments_is_checked(driver: Driver, compiled: Compiled) -> None:
    with pytest.raises(WrongType, match=r"wrong number of arguments[\s\S]*3, of 8, 4, 4 bytes"):
        module.load(compiled).launch(1, 32, (0, 0), stream=STREAM)


@pytest.mark.parametrize(
    ("arch", "runs"), [("sm_90", True), ("sm_90a", True), ("sm_80", False), ("sm_100", False), ("compute_80", True)]
)
def test_code_for_another_architecture_is_refused(driver: Driver, arch: str, runs: bool) -> None:
    made = compile_source(SOURCE, name="f", arch=arch)
    if runs:
        assert module.load(made).entry.parameters == (8, 4, 4)
    else:
        with pytest.raises(WrongDevice, match=rf"a device that runs {arch}[\s\S]*NVIDIA H200, sm_90"):
            module.load(made)


def test_a_programmatic_launch_goes_its_own_way(
    driver: Driver, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def answer(
        function: int, numbers: tuple[int, ...], stream: int, arguments: int, attributes: Any
    ) -> Callable[[], int]:
        asked.append((function, numbers, stream, *attributes))
        status = 0 if len(asked) == 1 else 7
        return lambda: status

    monkeypatch.setattr(module, "launch_with", answer)
    kernel = module.load(compiled)
    kernel.launch(1, 32, (0, 0, 1.0), stream=STREAM, programmatic=True)
    assert asked == [(0xF, (1, 1, 1, 32, 1, 1, 0), STREAM, True, (1, 1, 1))]
    assert driver.launches == []
    with pytest.raises(LaunchError, match="error 7"):
        kernel.prepare(1, 32, (0, 0, 1.0), programmatic=True).launch(STREAM)


def test_a_prepared_launch_is_laid_out_once_a_stream(
    driver: Driver, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out: list[int] = []
    sent: list[tuple[int, int]] = []

    def lay_out(function: int, numbers: Any, stream: int, arguments: int, attributes: Any) -> Callable[[], int]:
        laid_out.append(stream)
        return lambda: sent.append((driver.context, stream)) or 0  # type: ignore[func-returns-value]

    monkeypatch.setattr(module, "launch_with", lay_out)
    prepared = module.load(compiled).prepare(1, 32, (0, 0, 1.0), programmatic=True)
    for stream in (1, 1, 2, 1, 2):
        prepared.launch(stream)
    assert laid_out == [1, 2]
    assert sent == [(100, 1), (100, 1), (100, 2), (100, 1), (100, 2)]
    driver.setDevice(1)
    prepared.launch(1)
    assert sent[-1] == (100, 1)  # on its own device, whichever is current


def test_a_cluster_goes_with_the_launch_and_divides_the_grid(
    driver: Driver, compiled: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(module, "launch_with", lambda *given: asked.append(given[-1]) or (lambda: 0))
    kernel = module.load(compiled)
    kernel.launch((3, 8), 32, (0, 0, 1.0), stream=STREAM, cluster=(1, 4))
    kernel.prepare((3, 8), 32, (0, 0, 1.0), cluster=(3,), programmatic=True).launch(STREAM)
    assert asked == [(False, (1, 4, 1)), (True, (3, 1, 1))]
    kernel.launch(1, 32, (0, 0, 1.0), stream=STREAM, cluster=(1,))
    assert len(driver.launches) == 1
    for cluster in (2, (1, 3), (3, 8), 16):
        with pytest.raises(WrongValue, match="cluster"):
            kernel.launch((3, 8), 32, (0, 0, 1.0), stream=STREAM, cluster=cluster)
