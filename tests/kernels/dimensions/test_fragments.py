"""Tensor-core fragments: who holds what, and that the rows named to ldmatrix bring exactly that.

The oracle is the 8 x 8 matrix of which the PTX ISA builds everything: lane l holds elements 2 (l mod 4) and the next of
row l div 4. In NumPy that is a reshape.
"""

import ctypes

import numpy as np
import numpy.typing as npt
import pytest

from .toolchain import compiler, shared_library

compiler()
Ints = npt.NDArray[np.int64]
TEXT = """
#include <tapestry/fragment.cuh>
using namespace tapestry;
using M = Dim<struct M_>; using N = Dim<struct N_>; using K = Dim<struct K_>;
using M8 = Fold<M, 8>; using N8 = Fold<N, 8>; using K8 = Fold<K, 8>;
template <class I, class J> struct Pair {
    template <class C> static void put(C c, int* out) {
        out[0] = c.template get<I>().get(), out[1] = c.template get<J>().get();
    }
};
#define OPERAND(name, type, I, J, I8, J8) \\
    extern "C" void name##_element(unsigned lane, int r, int half, int* out) { \\
        Pair<I, J>::put(type::element(lane, r, half), out); \\
    } \\
    extern "C" void name##_column(unsigned lane, int* out) { Pair<I8, J8>::put(type::column(lane), out); }
#define ROW(name, type, I, J) \\
    extern "C" void name##_row(unsigned lane, int* out) { Pair<I, J>::put(type::row(lane), out); }
using A16 = FragmentA<M, K, 16>; using A8 = FragmentA<M, K, 8>;
using B16 = FragmentB<K, N, 16>; using B8 = FragmentB<K, N, 8>;
using C = FragmentC<M, N>;
OPERAND(A16, A16, M, K, K, M8) OPERAND(A8, A8, M, K, K, M8) OPERAND(B16, B16, K, N, K, N8) OPERAND(B8, B8, K, N, K, N8)
ROW(A16, A16, M, K8) ROW(A8, A8, M, K8) ROW(B16, B16, N, K8) ROW(B8, B8, N, K8) ROW(C, C, M, N8)
extern "C" void C_element(unsigned lane, int r, int, int* out) { Pair<M, N>::put(C::element(lane, r), out); }
static_assert(sizeof(A16) == 16 && sizeof(A8) == 8 && sizeof(B16) == 8 && sizeof(B8) == 4 && sizeof(C) == 16, "");
"""
# The 8 x 8 matrices of an operand in the order of the registers, as (row block, column block).
BLOCKS = {
    "A16": [(0, 0), (1, 0), (0, 1), (1, 1)],
    "A8": [(0, 0), (1, 0)],
    "B16": [(0, 0), (1, 0)],
    "B8": [(0, 0)],
}
EXTENTS = {"A16": (16, 16), "A8": (16, 8), "B16": (16, 8), "B8": (8, 8)}
LANES = range(32)


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    return shared_library(TEXT)


def ask(library: ctypes.CDLL, name: str, *numbers: int) -> tuple[int, int]:
    out = (ctypes.c_int * 2)()
    getattr(library, name)(*numbers, out)
    return out[0], out[1]


def held(library: ctypes.CDLL, name: str) -> Ints:
    """[register, lane, half] -> number of the element, row by row."""
    columns = EXTENTS[name][1]
    elements = [
        [[ask(library, f"{name}_element", lane, r, half) for half in range(2)] for lane in LANES]
        for r in range(len(BLOCKS[name]))
    ]
    return np.array([[[i * columns + j for i, j in lane] for lane in r] for r in elements])


def matrix(name: str) -> Ints:
    rows, columns = EXTENTS[name]
    return np.arange(rows * columns).reshape(rows, columns)


def lanes_of(block: Ints) -> Ints:
    """An 8 x 8 matrix as 32 lanes hold it: [lane, half]."""
    return block.reshape(32, 2)


@pytest.mark.parametrize("name", ["A16", "A8"])
def test_left_operands_lie_in_rows(library: ctypes.CDLL, name: str) -> None:
    whole = matrix(name)
    expected = [lanes_of(whole[8 * i : 8 * i + 8, 8 * j : 8 * j + 8]) for i, j in BLOCKS[name]]
    np.testing.assert_array_equal(held(library, name), expected)


@pytest.mark.parametrize("name", ["B16", "B8"])
def test_right_operands_lie_in_columns(library: ctypes.CDLL, name: str) -> None:
    whole = matrix(name)
    expected = [lanes_of(whole[8 * i : 8 * i + 8, 8 * j : 8 * j + 8].T) for i, j in BLOCKS[name]]
    np.testing.assert_array_equal(held(library, name), expected)


def test_sums_lie_in_rows_of_pairs(library: ctypes.CDLL) -> None:
    whole = np.arange(128).reshape(16, 8)
    got = [[(lambda ij: ij[0] * 8 + ij[1])(ask(library, "C_element", lane, r, 0)) for r in range(4)] for lane in LANES]
    expected = np.hstack([lanes_of(whole[:8]), lanes_of(whole[8:])])
    np.testing.assert_array_equal(got, expected)


def load(rows: Ints, *, transposed: bool) -> Ints:
    """ldmatrix: `rows` [8 * matrices, 8] are what the lanes name, in order -> [register, lane, half]."""
    matrices = rows.reshape(-1, 8, 8)
    return np.array([lanes_of(m.T if transposed else m) for m in matrices])


@pytest.mark.parametrize("name", list(BLOCKS))
def test_the_rows_named_to_ldmatrix_bring_the_fragment(library: ctypes.CDLL, name: str) -> None:
    """Memory holds A as [M][K] and B as [N][K], so that a row of eight runs along K."""
    memory = matrix(name) if name.startswith("A") else matrix(name).T
    named = [ask(library, f"{name}_row", lane) for lane in range(8 * len(BLOCKS[name]))]
    rows = np.array([memory[i, 8 * j : 8 * j + 8] for i, j in named])
    np.testing.assert_array_equal(load(rows, transposed=False), held(library, name))


@pytest.mark.parametrize("name", list(BLOCKS))
def test_the_columns_named_to_ldmatrix_trans_bring_the_fragment(library: ctypes.CDLL, name: str) -> None:
    """Memory holds A as [K][M] and B as [K][N], so that a row of eight runs across K."""
    memory = matrix(name).T if name.startswith("A") else matrix(name)
    named = [ask(library, f"{name}_column", lane) for lane in range(8 * len(BLOCKS[name]))]
    rows = np.array([memory[k, 8 * j : 8 * j + 8] for k, j in named])
    np.testing.assert_array_equal(load(rows, transposed=True), held(library, name))


def test_stmatrix_puts_rounded_sums_in_their_rows(library: ctypes.CDLL) -> None:
    """Two matrices of 16-bit elements: register 0 of the rounded sums holds rows 0 to 7, register 1 rows 8 to 15."""
    stored = np.full((16, 8), -1)
    for lane in LANES:
        for r in range(2):
            low, high = (ask(library, "C_element", lane, 2 * r + half, 0) for half in range(2))
            row = ask(library, "C_row", 8 * r + lane // 4)
            stored[row[0], 8 * row[1] + 2 * (lane % 4)] = low[0] * 8 + low[1]
            stored[row[0], 8 * row[1] + 2 * (lane % 4) + 1] = high[0] * 8 + high[1]
    np.testing.assert_array_equal(stored, np.arange(128).reshape(16, 8))


def test_every_lane_of_a_load_names_a_row_of_the_tile(library: ctypes.CDLL) -> None:
    """Lanes that a narrower load does not ask still name rows inside, so that no address runs away."""
    for name, (rows, columns) in EXTENTS.items():
        for lane in LANES:
            outer, inner = ask(library, f"{name}_row", lane)
            assert 0 <= outer < (rows if name.startswith("A") else columns)
            assert 0 <= inner < (columns if name.startswith("A") else rows) // 8
