"""Swizzles: the copy engine's permutation, and no two rows of an ldmatrix in one bank.

A shared-memory access of 16 bytes a lane is served in groups of eight lanes; it is free of conflicts exactly if the
eight chunks of a group lie in different sixteenths of 128 bytes (32 banks of 4 bytes).
"""

import ctypes
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from .toolchain import compiler, shared_library

compiler()
Ints = npt.NDArray[np.int64]
ROWS = {0: 16, 32: 32, 64: 64, 128: 128}  # bytes of a position, by the swizzle that belongs to it
POSITIONS = 64
TEXT = """
#include <tapestry/tensor.cuh>
using namespace tapestry;
using X = Dim<struct X_>; using C8 = Dim<struct C8_>; using X8 = Fold<X, 8>; using X8m = Module<X, 8>;
extern "C" unsigned apply_0(unsigned a) { return Swizzle<0>::apply(a); }
extern "C" unsigned apply_32(unsigned a) { return Swizzle<32>::apply(a); }
extern "C" unsigned apply_64(unsigned a) { return Swizzle<64>::apply(a); }
extern "C" unsigned apply_128(unsigned a) { return Swizzle<128>::apply(a); }
template <int chunks, class S> struct Case {
    using Tile = SharedTensor<Octet, Packed<Extent<X, 64>, Extent<C8, chunks>>, S>;
    static unsigned chunk(int x, int c) { return Tile(4096u)[coord(X(x), C8(c))].address(); }
    static unsigned settled(int x, int c) {
        const auto row = Tile(4096u)[coord(X(X8m(X(x))), C8(c))].settle();
        return row[X8(X(x))].address();
    }
    static unsigned walked(int x, int c) {
        auto at = Tile(4096u)[coord(X(0), C8(0))];
        for (int i = 0; i < x; ++i) at += X(1);
        return at[C8(c)].address();
    }
    static long long generic(int x, int c) {
        const auto memory = reinterpret_cast<Octet*>(1ull << 32);
        using Pointed = Tensor<Octet, Packed<Extent<X, 64>, Extent<C8, chunks>>, S>;
        return reinterpret_cast<long long>(Pointed(memory)[coord(X(x), C8(c))].address()) - (1ll << 32) + 4096;
    }
};
#define CASE(name, chunks) \\
    extern "C" void tile_##name(int x, int c, long long* out) { \\
        using T = Case<chunks, Swizzle<name>>; \\
        out[0] = T::chunk(x, c), out[1] = T::settled(x, c), out[2] = T::walked(x, c), out[3] = T::generic(x, c); \\
    }
CASE(0, 1) CASE(32, 2) CASE(64, 4) CASE(128, 8)
using Plain = SharedTensor<Octet, Packed<Extent<X, 64>, Extent<C8, 8>>>;
extern "C" unsigned plain(int x, int c) { return Plain(0u)[coord(X(x), C8(c))].address(); }
"""


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return shared_library(TEXT)


def tile_addresses(library: ctypes.CDLL, swizzle: int) -> Ints:
    """[position, chunk, way of asking] -> address less the buffer's."""
    chunks = ROWS[swizzle] // 16
    found = np.zeros((POSITIONS, chunks, 4), dtype=np.int64)
    function = getattr(library, f"tile_{swizzle}")
    for x, c in product(range(POSITIONS), range(chunks)):
        out = (ctypes.c_longlong * 4)()
        function(x, c, out)
        found[x, c] = np.array(out) - 4096
    return found


def copy_engine(swizzle: int) -> Ints:
    """[position, chunk] -> the address at which the copy engine puts it, by tables.

    A line of 128 bytes holds eight chunks of 16 bytes, in runs of swizzle / 16. Inside a run of line i, chunk j stands
    at j xor i, both modulo the run's length (PTX ISA, tensor swizzling modes).
    """
    run = max(swizzle // 16, 1)
    lines = np.arange(POSITIONS * ROWS[swizzle] // 16).reshape(-1, 8)
    placed = np.empty_like(lines)
    for i, line in enumerate(lines):
        for j, chunk in enumerate(line):
            placed[i, j // run * run + ((j % run) ^ (i % run))] = chunk
    where = np.empty(placed.size, dtype=np.int64)
    where[placed.ravel()] = np.arange(placed.size)
    return where.reshape(POSITIONS, ROWS[swizzle] // 16) * 16


def conflicts(addresses: Ints) -> bool:
    """Eight 16-byte chunks, two of them in one group of banks."""
    return len(set(addresses // 16 % 8)) < 8


@pytest.mark.parametrize("swizzle", ROWS)
def test_the_tile_is_laid_out_as_the_copy_engine_writes_it(library: ctypes.CDLL, swizzle: int) -> None:
    expected = copy_engine(swizzle)
    asked = tile_addresses(library, swizzle)
    for way, name in enumerate(("coordinate", "settled and stepped", "walked", "by pointer")):
        np.testing.assert_array_equal(asked[:, :, way], expected, err_msg=name)


@pytest.mark.parametrize("swizzle", ROWS)
def test_a_swizzle_is_a_permutation_that_repeats_and_undoes_itself(library: ctypes.CDLL, swizzle: int) -> None:
    function = getattr(library, f"apply_{swizzle}")
    function.restype = ctypes.c_uint
    address = np.arange(0, 4096)
    once = np.array([function(int(a)) for a in address])
    assert sorted(once) == list(address)
    period = swizzle * 8 or 16
    np.testing.assert_array_equal(once[period:] - period, once[:-period])
    np.testing.assert_array_equal(once // 128, address // 128)  # no chunk leaves its line
    np.testing.assert_array_equal([function(int(a)) for a in once], address)


@pytest.mark.parametrize("swizzle", ROWS)
def test_eight_neighbouring_positions_never_meet_in_a_bank(library: ctypes.CDLL, swizzle: int) -> None:
    tile = tile_addresses(library, swizzle)[:, :, 0]
    for first, chunk in product(range(POSITIONS - 7), range(tile.shape[1])):
        assert not conflicts(tile[first : first + 8, chunk]), (first, chunk)


def test_without_a_swizzle_they_would(library: ctypes.CDLL) -> None:
    assert conflicts(np.array([library.plain(x, 0) for x in range(8)]))


@pytest.mark.parametrize(("swizzle", "stride"), [(128, 2), (64, 2), (32, 2), (0, 2)])
def test_every_second_position_meets_one_other_at_most(library: ctypes.CDLL, swizzle: int, stride: int) -> None:
    """A convolution of stride 2 reads every second position: two passes, for every swizzle."""
    tile = tile_addresses(library, swizzle)[:, :, 0]
    for first, chunk in product(range(POSITIONS - 7 * stride), range(tile.shape[1])):
        banks = tile[first : first + 8 * stride : stride, chunk] // 16 % 8
        assert np.bincount(banks, minlength=8).max() <= 2
