"""Arguments as the driver reads them: through the array of pointers, as wide as the kernel declares them."""

from __future__ import annotations

import ctypes
import struct
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.kernels.errors import WrongType, WrongValue
from tapestry.kernels.runtime.arguments import Arguments
from tapestry.kernels.runtime.array import DeviceArray
from tapestry.kernels.runtime.compiler import compile_source


def seen(arguments: Arguments) -> list[bytes]:
    """Each parameter's bytes, the way a launch finds them."""
    count = len(arguments.sizes)
    pointers = (ctypes.c_uint64 * count).from_address(arguments.address)
    return [ctypes.string_at(pointers[index], size) for index, size in enumerate(arguments.sizes)]


def packed(sizes: tuple[int, ...], *values: Any) -> list[bytes]:
    arguments = Arguments("kernel", sizes)
    arguments.pack(values)
    return seen(arguments)


class Value(NamedTuple):
    """One argument: how C declares it, what Python passes, the bytes expected."""

    declared: str
    passed: Any
    expected: bytes


def integers() -> st.SearchStrategy[Value]:
    kinds = {
        "signed char": np.int8, "unsigned char": np.uint8, "short": np.int16, "unsigned short": np.uint16,
        "int": np.int32, "unsigned": np.uint32, "long long": np.int64, "unsigned long long": np.uint64,
    }  # fmt: skip

    def of(declared: str) -> st.SearchStrategy[Value]:
        kind = kinds[declared]
        limits = np.iinfo(kind)
        numbers = st.integers(int(limits.min), int(limits.max))
        plain = numbers.map(lambda number: Value(declared, number, kind(number).tobytes()))
        return plain | numbers.map(lambda number: Value(declared, kind(number), kind(number).tobytes()))

    return st.sampled_from(sorted(kinds)).flatmap(of)


def floats() -> st.SearchStrategy[Value]:
    single = st.floats(width=32).map(lambda number: Value("float", number, np.float32(number).tobytes()))
    double = st.floats().map(lambda number: Value("double", np.float64(number), np.float64(number).tobytes()))
    return single | double


def structures() -> st.SearchStrategy[Value]:
    def of(size: int) -> st.SearchStrategy[Value]:
        data = st.binary(min_size=size, max_size=size)
        declared = f"Bytes<{size}>"
        raw = data.map(lambda value: Value(declared, value, value))
        return raw | data.map(lambda value: Value(declared, np.frombuffer(value, f"V{size}")[0], value))

    return st.sampled_from([1, 3, 12, 64, 128]).flatmap(of)


@settings(deadline=None, max_examples=300)
@given(st.lists(integers() | floats() | structures(), max_size=12))
def test_every_argument_arrives_as_c_would_lay_it_out(values: list[Value]) -> None:
    arguments = Arguments("kernel", [len(value.expected) for value in values])
    for _ in range(2):  # the layout is made once and used again
        arguments.pack([value.passed for value in values])
        assert seen(arguments) == [value.expected for value in values]


@settings(deadline=None, max_examples=12)
@given(st.lists(st.lists(integers() | floats() | structures(), max_size=8), min_size=1, max_size=8))
def test_the_image_tells_the_sizes_of_every_kernels_parameters(kernels: list[list[Value]]) -> None:
    lines = ["template <int N> struct alignas(N % 64 ? 1 : 64) Bytes { unsigned char bytes[N]; };"]
    for index, values in enumerate(kernels):
        declared = ", ".join(f"{value.declared} a{at}" for at, value in enumerate(values))
        lines.append(f'extern "C" __global__ void k{index}({declared}) {{}}')
    wanted = {f"k{index}": tuple(len(value.expected) for value in values) for index, values in enumerate(kernels)}
    for arch in ("sm_90", "compute_90"):
        made = compile_source("\n".join(lines), name="k0", arch=arch)
        assert {name: entry.parameters for name, entry in made.entries.items()} == wanted


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "compute_90"])
@pytest.mark.parametrize("longest", [3840, 4032, 4096, 8192])
def test_it_tells_those_of_more_than_4_kilobytes(arch: str, longest: int) -> None:
    """They are listed otherwise then."""
    sizes = (8, longest, 4, 64)
    lines = ["template <int N> struct alignas(64) Bytes { unsigned char bytes[N]; };"]
    declared = f"long long a, Bytes<{longest}> b, int c, Bytes<64> d"
    made = compile_source("\n".join([*lines, f'extern "C" __global__ void k({declared}) {{}}']), name="k", arch=arch)
    assert made.entries["k"].parameters == sizes


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "compute_80", "compute_90"])
def test_the_image_tells_the_declared_block_size(arch: str) -> None:
    source = 'extern "C" __global__ void __launch_bounds__(192) a(int* y) {}\nextern "C" __global__ void b(int* y) {}'
    made = compile_source(source, name="a", arch=arch)
    assert {name: entry.threads for name, entry in made.entries.items()} == {"a": 192, "b": 0}


def test_structures_are_aligned_as_tensor_maps_must_be() -> None:
    arguments = Arguments("kernel", (4, 128, 8, 128))
    pointers = (ctypes.c_uint64 * 4).from_address(arguments.address)
    assert pointers[1] % 64 == pointers[3] % 64 == 0


def test_arrays_give_their_pointer_and_none_a_null_pointer() -> None:
    x = DeviceArray(0x7F00_0000_1000, (2,), (4,), "f32", 0)
    assert packed((8, 8), x, None) == [(0x7F00_0000_1000).to_bytes(8, "little"), bytes(8)]


def test_half_precision_scalars() -> None:
    brain = ml_dtypes.bfloat16(1.5)
    assert packed((2, 2, 2), 1.5, np.float16(1.5), brain) == [
        np.float16(1.5).tobytes(),
        np.float16(1.5).tobytes(),
        brain.tobytes(),
    ]


def test_a_block_may_be_packed_again_with_other_types() -> None:
    arguments = Arguments("kernel", (4, 8))
    arguments.pack((1, 2.5))
    arguments.pack((1.5, 3))
    assert seen(arguments) == [np.float32(1.5).tobytes(), (3).to_bytes(8, "little")]


@pytest.mark.parametrize(
    ("sizes", "values", "kind", "text"),
    [
        ((8, 4), (1,), WrongType, "expected   2, of 8, 4 bytes"),
        ((8,), (1, 2), WrongType, "came       2: int, int"),
        ((4,), (1 << 32,), WrongValue, "argument 0 is out of range"),
        ((4, 4), (0, -(1 << 31) - 1), WrongValue, "argument 1 is out of range"),
        ((1,), (300,), WrongValue, "an integer of 8 bits"),
        ((4,), (1e300,), WrongValue, "argument 0 is out of range"),
        ((2,), (70000.0,), WrongValue, "f16"),
        ((4,), ("four",), WrongType, "argument 0 does not fit its parameter"),
        ((128,), (1,), WrongType, "expected   128 bytes"),
        ((128,), (b"short",), WrongType, "came       5 bytes"),
        ((12,), (np.zeros((), "V16")[()],), WrongType, "came       16 bytes"),
        ((1,), (1.0,), WrongType, "argument 0"),
        ((8,), (np.zeros(3),), WrongType, "came       ndarray"),
    ],
)
def test_what_does_not_fit_is_named(
    sizes: tuple[int, ...], values: tuple[object, ...], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind) as caught:
        packed(sizes, *values)
    assert str(caught.value).startswith("kernel: ")
    assert text in str(caught.value)


def test_another_block_has_memory_of_its_own_and_packs_alike() -> None:
    first = Arguments("f", (8, 4))
    first.pack((1, 2))
    second = first.another()
    second.pack((3, 4))
    assert [struct.unpack("<qi", block.packed()) for block in (first, second)] == [(1, 2), (3, 4)]
    assert first.address != second.address
