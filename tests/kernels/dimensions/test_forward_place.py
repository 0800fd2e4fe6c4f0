"""Where the forward kernel reads and writes, compiled for the host and compared with what the convolution asks for.

The kernel's own text is compiled by g++ with a few words of CUDA explained to it; a lane is an argument.
"""

import ctypes
import functools
from collections.abc import Callable
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from tapestry.kernels.convolution.configuration import ForwardConfiguration, footprint, group_block
from tapestry.kernels.convolution.forward import constants, kernel_text
from tapestry.kernels.convolution.forward_dimensions import specification
from tapestry.kernels.convolution.launch import TapLine, Taps
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.dimensions.declarations import declarations

from .toolchain import compile_text, compiler, shared_library

compiler()
Builder = Callable[..., ctypes.CDLL]
SHIM = """
#define __device__
#define __forceinline__ inline
struct { unsigned x; } threadIdx;
struct Barrier { unsigned address; };
inline int max(int a, int b) { return a < b ? b : a; }
namespace spec {
struct Half { static unsigned pack(float, float) { return 0; } };
constexpr int ACTIVATION = 0;
}
namespace tapestry {
template <int> float activate(float x) { return x; }
template <class> float low_half(unsigned) { return 0; }
template <class> float high_half(unsigned) { return 0; }
}
using namespace tapestry;
"""
STORES = "namespace tapestry { inline void store_octet(unsigned, const unsigned (&)[4]) {} }\n"
DOOR = """
extern "C" void input(int warp, int lane, int t, int pair, long long* out) {
    threadIdx.x = lane;
    out[0] = Place(warp).row(t, pair).in_tile(0u).address();
}
extern "C" void output(int warp, int lane, int piece, int row, long long* out) {
    threadIdx.x = lane;
    out[0] = Place(warp).out().at(RowParity(row), Piece(piece)).in_tile(0u).address();
}
extern "C" void weights(const unsigned short* data, int channels, int base, int warp, int lane, unsigned* out) {
    threadIdx.x = lane;
    const Place place(warp);
    const Weights stored{data, channels};
    Filter filter;
    filter.load(stored, base + C(place.group).get(), place.octet_in_group(), lane);
    for (RowParity a(0); a < RowParity(spec::CELL_ROWS); ++a)
        for (ColumnParity b(0); b < ColumnParity(spec::CELL_COLUMNS); ++b)
            for (int o = 0; o < spec::CHANNEL_OCTETS; ++o)
                for (TapY r(0); r < TapY(spec::R); ++r)
                    for (Step step(0); step < Step(spec::STEPS); ++step, ++out)
                        if (meets(a, r) && meets(b, step))
                            *out = filter.part[a.get()][b.get()][o][r.get()][step.get()];
}
extern "C" void affine(const float* scales, int base, int channels, int warp, int lane, float* out) {
    threadIdx.x = lane;
    Affine affine;
    affine.load(scales, scales, K(Place(warp).octet) + Sums::element(lane, 0).get<K>() + base, channels);
    for (int o = 0; o < spec::CHANNEL_OCTETS; ++o)
        for (int i = 0; i < 2; ++i) *out++ = affine.scale[o][i];
}
"""


def places_text() -> str:
    """The parts of the kernel's text that say where things are."""
    return "".join(kernel_text(f"forward_{part}.cu") for part in ("cells", "weights", "place"))


def problem(
    width: int = 8, c: int = 64, s: int = 3, stride: int = 1, dilation: int = 1, cell: tuple[int, int] = (1, 1)
) -> ConvolutionProblem:
    steps = {"stride": (stride, stride), "dilation": (dilation, dilation)}
    return ConvolutionProblem(n=4, h=32, w=32, c=c, groups=c // width, r=3, s=s, **steps, cell=cell)


Case = tuple[ConvolutionProblem, ForwardConfiguration]
CASES: dict[str, Case] = {
    "64 channels": (problem(), ForwardConfiguration()),
    "even taps": (problem(s=4), ForwardConfiguration()),
    "stride 2": (problem(stride=2, s=5), ForwardConfiguration(units=4, tiles=2)),
    "dilation 2": (problem(dilation=2), ForwardConfiguration(units=6, tiles=2)),
    "32 channels": (problem(c=32), ForwardConfiguration(channels=32)),
    "16 channels": (problem(c=16), ForwardConfiguration(channels=16)),
    "8 channels": (problem(c=8), ForwardConfiguration(channels=8, units=2, tiles=1)),
    "ragged channels": (problem(c=72), ForwardConfiguration(units=2, tiles=1)),
    "four images": (problem(), ForwardConfiguration(images=4, units=2, tiles=2)),
    "eight images of one unit": (problem(), ForwardConfiguration(images=8, units=1, tiles=2)),
    "three units": (problem(), ForwardConfiguration(units=3, tiles=2)),
    "images share a tile": (problem(width=1, c=96, stride=2), ForwardConfiguration(channels=32, images=2, units=7)),
    "an odd unit": (problem(width=1, c=192, stride=2, s=5), ForwardConfiguration(channels=32, units=5, tiles=1)),
    "three units of two": (problem(stride=2), ForwardConfiguration(images=2, units=3)),
    "four units of four": (problem(s=5), ForwardConfiguration(channels=32, images=4, units=4)),
    "width 16": (problem(width=16), ForwardConfiguration(octets=2, tiles=2)),
    "width 32": (problem(width=32), ForwardConfiguration(octets=2, tiles=2)),
    "width 4": (problem(width=4), ForwardConfiguration()),
    "width 1": (problem(width=1), ForwardConfiguration()),
    "cells": (problem(s=2, cell=(2, 2)), ForwardConfiguration(units=4, tiles=2)),
    "columns in cells": (problem(c=32, cell=(1, 2)), ForwardConfiguration(channels=32, units=3, tiles=1)),
    "rows in cells": (problem(c=16, cell=(2, 1)), ForwardConfiguration(channels=16, images=3, units=1, tiles=2)),
    "ragged cells": (problem(c=32, s=2, cell=(2, 2)), ForwardConfiguration(channels=32, images=3, units=3, tiles=4)),
    "wide cells": (problem(width=16, cell=(2, 2)), ForwardConfiguration(images=2, units=1, tiles=1, octets=2)),
    "thin cells": (problem(c=8, s=4, cell=(2, 2)), ForwardConfiguration(channels=8, units=5, tiles=2)),
}


@pytest.fixture(scope="module")
def build() -> Builder:
    """Compiles a case once for all tests."""

    @functools.cache
    def built(name: str, transposed: bool = False) -> ctypes.CDLL:
        wanted, cut = CASES[name]
        flags = {"TRANSPOSED": transposed, "SHARDED": False}
        flags |= {"SCALE": True, "BIAS": True, "RESIDUAL": False}
        declared = declarations(
            specification(wanted, cut, {**constants(wanted, cut, taps_of(wanted, transposed)), **flags})
        )
        text = declared + SHIM + STORES + places_text() + DOOR
        return shared_library(text, "-Wno-unused", "-Wno-unknown-pragmas")

    return built


def taps_of(wanted: ConvolutionProblem, transposed: bool) -> Taps:
    """A filter of one row more than is used, read from its second row on; transposed, from its last row up.

    A cell of two columns has its even taps in one parity and the odd ones in the other, as strided gradients have.
    """
    rows = TapLine(wanted.r + 1, wanted.r, -1) if transposed else TapLine(wanted.r + 1, 1)
    if wanted.cell[1] == 2:
        return Taps(rows, TapLine(2 * wanted.s - 1, 2 * wanted.s - 2, -2, 1))
    return Taps(rows, TapLine(wanted.s, wanted.s - 1, -1) if transposed else TapLine(wanted.s))


def ask(function: object, *numbers: int) -> int:
    out = ctypes.c_longlong(-1)
    function(*numbers, ctypes.byref(out))  # type: ignore[operator]
    return out.value


def swizzled(position: int, chunk: int, cut: ForwardConfiguration) -> int:
    """Where the copy engine puts a chunk of a position: in lines of 128 bytes, j xor i in runs of the row's length."""
    run, linear = cut.channels // 8, position * cut.channels // 8 + chunk
    line, at = divmod(linear, 8)
    return 16 * (8 * line + at // run * run + (at % run ^ line % run))


def warps(case: Case) -> int:
    return footprint(*case).threads // 32 - 2


def octet_of(case: Case, warp: int) -> int:
    """First octet of channels that a computing warp writes."""
    cut = case[1]
    return warp % (cut.channels // 8 // cut.octets) * cut.octets


def first_tile(case: Case, warp: int) -> int:
    cut = case[1]
    return warp // (cut.channels // 8 // cut.octets) * cut.tiles


@pytest.mark.parametrize("name", CASES)
def test_a_lane_names_the_row_that_its_product_reads(name: str, build: Builder) -> None:
    """Matrix m of a pair of steps holds unit 2 * tile + m mod 2 under step 2 * pair + m div 2, one column a row."""
    case = wanted, cut = CASES[name]
    library, box = build(name), footprint(*case).box_x
    octets = group_block(wanted) // 8
    steps, units = wanted.s * octets, cut.images * cut.units
    end = 2 * cut.channels * (cut.images * box + (2 * cut.tiles - 1) * max(8 * wanted.stride[1], -(-box // cut.units)))
    for warp, lane, t in product(range(warps(case)), range(32), range(cut.tiles)):
        unit = 2 * (first_tile(case, warp) + t) + lane // 8 % 2
        image, column = divmod(unit, cut.units)
        for pair in range((steps + 1) // 2):
            step = 2 * pair + lane // 16
            if unit >= units or step >= steps:  # what lies there is not used, but must lie near the tile
                assert 0 <= ask(library.input, warp, lane, t, pair) < end
                continue
            tap, octet = divmod(step, octets)
            x = (8 * column + lane % 8) * wanted.stride[1] + tap * wanted.dilation[1]
            chunk = octet_of(case, warp) // octets * octets + octet
            assert ask(library.input, warp, lane, t, pair) == swizzled(image * box + x, chunk, cut), (
                warp,
                lane,
                t,
                pair,
            )


@pytest.mark.parametrize("name", CASES)
def test_a_lane_names_the_row_that_its_sums_fill(name: str, build: Builder) -> None:
    """Matrix m of two pieces is unit m mod 2 of the tile of piece e + m div 2, and its octet and column of the cells.

    The box is images x rows of a cell x columns of the tile; what lies beyond the last unit goes behind it, into the
    room of one unit.
    """
    case = wanted, cut = CASES[name]
    (rows, columns), library = wanted.cell, build(name)
    pieces, box = cut.tiles * cut.octets * columns, cut.images * cut.units * 8 * rows * columns
    for warp, lane, piece, row in product(range(warps(case)), range(32), range(0, pieces, 2), range(rows)):
        own, column = divmod(piece + lane // 16, columns)
        tile, octet = divmod(own, cut.octets)
        if tile >= cut.tiles:
            continue  # stored by two matrices
        image, unit = divmod(2 * (first_tile(case, warp) + tile) + lane // 8 % 2, cut.units)
        position = (image * rows + row) * cut.units * 8 * columns + (unit * 8 + lane % 8) * columns + column
        if image >= cut.images:
            position = box + lane % 8 * columns + column
        chunk = octet_of(case, warp) + octet
        assert ask(library.output, warp, lane, piece, row) == swizzled(position, chunk, cut), (warp, lane, piece, row)


def filter_of(wanted: ConvolutionProblem, rows: int, columns: int) -> npt.NDArray[np.uint16]:
    count = wanted.c * rows * columns * wanted.width
    return (
        (np.arange(count, dtype=np.uint64) * 40503 % 65521 + 1).astype(np.uint16).reshape(wanted.c, rows, columns, -1)
    )


def tap_value(wanted: ConvolutionProblem, stored: npt.NDArray[np.uint16], k: int, c: int, row: int, column: int) -> int:
    """The stored number that joins channels k and c of the whole tensor under a stored tap, or 0."""
    if max(k, c) >= wanted.c or k // wanted.width != c // wanted.width:
        return 0
    return int(stored[k, row, column, c % wanted.width])


@pytest.mark.parametrize(
    ("name", "transposed"),
    [(name, False) for name in CASES]
    + [(name, True) for name in ("64 channels", "ragged channels", "width 32", "width 1", "cells", "wide cells")],
)
def test_a_lane_holds_the_weights_of_its_channels(name: str, transposed: bool, build: Builder) -> None:
    """Lane l holds channel l div 4 of an octet written, and two neighbouring channels read, from 2 (l mod 4) on."""
    case = wanted, cut = CASES[name]
    library, octets = build(name, transposed), group_block(wanted) // 8
    taps = taps_of(wanted, transposed)
    stored = filter_of(wanted, taps.rows.stored, taps.columns.stored)
    cells = list(product(*map(range, wanted.cell)))
    base = 64 if wanted.c > 64 else 0
    for warp, lane in product(range(warps(case)), range(0, 32, 3)):
        out = (ctypes.c_uint * (len(cells) * cut.octets * wanted.r * wanted.s * octets))()
        library.weights(ctypes.c_void_p(stored.ctypes.data), wanted.c, base, warp, lane, out)
        first = octet_of(case, warp)
        expected = []
        places = product(cells, range(cut.octets), range(wanted.r), range(wanted.s), range(octets))
        for (a, b), o, r, tap, octet in places:
            k = base + 8 * (first + o) + lane // 4
            c = base + 8 * (first // octets * octets + octet) + 2 * (lane % 4)
            row, column = taps.rows.tap(a, r), taps.columns.tap(b, tap)
            if row is None or column is None:
                expected.append(0)
                continue
            pair = [(c, k) if transposed else (k, c) for c in (c, c + 1)]
            low, high = (tap_value(wanted, stored, *channels, row, column) for channels in pair)
            expected.append(low | high << 16)
        assert list(out) == expected, (warp, lane)


@pytest.mark.parametrize("name", ["64 channels", "ragged channels", "width 16"])
def test_a_lane_holds_the_scale_of_its_channels(name: str, build: Builder) -> None:
    case = wanted, cut = CASES[name]
    library = build(name)
    base = 64 if wanted.c > 64 else 0
    scales = np.arange(1, wanted.c + 1, dtype=np.float32)
    for warp, lane in product(range(warps(case)), range(32)):
        out = (ctypes.c_float * (2 * cut.octets))()
        library.affine(ctypes.c_void_p(scales.ctypes.data), base, wanted.c, warp, lane, out)
        channels = [
            base + 8 * (octet_of(case, warp) + o) + 2 * (lane % 4) + i for o in range(cut.octets) for i in range(2)
        ]
        assert list(out) == [k + 1 if k < wanted.c else 0 for k in channels]


CELL_MISTAKES = {
    "sums by the other parity": ("sums(b, 0, 0, a);", "sums(a, 0, 0, b);", "no match for call"),
    "a tap of the other direction": ("stored_tap(a, TapX(0));", "stored_tap(b, TapX(0));", "no matching function"),
    "a parity that meets a row": ("meets(b, TapY(0));", "meets(a, TapY(0));", "no matching function"),
    "a parity for an output row": ("Row y = a;", "Row y = unfold(P(3), a);", "conversion from"),
    "parities of two directions": ("unfold(Q(3), a);", "unfold(Q(3), b);", "parts of two dimensions do not unfold"),
    "a cell and a parity added": ("P(3) + a;", "unfold(P(3), a);", "only indices of one dimension are added"),
    "a tap as it is stored": ("meets(a, StoredY(0));", "meets(a, TapY(0));", "no matching function"),
    "a row's place for a column's": ("to.at(b, Piece(0));", "to.at(a, Piece(0));", "cannot convert"),
    "a step within a swizzle": (
        "to.at(a, Piece(0))[b];",
        "to.at(a, Piece(0))[a];",
        "multiples of the swizzle's period",
    ),
}


@pytest.mark.parametrize("name", CELL_MISTAKES)
def test_parities_of_a_cell_do_not_mix(name: str) -> None:
    wanted, cut = CASES["cells"]
    flags = dict.fromkeys(("TRANSPOSED", "SHARDED", "SCALE", "BIAS", "RESIDUAL"), False)
    given = {**constants(wanted, cut, taps_of(wanted, False)), **flags}
    text = declarations(specification(wanted, cut, given)) + SHIM + STORES
    text += places_text()
    body = "void body(Accumulators sums, OutputPlaces to, RowParity a, ColumnParity b) { "
    wrong, right, phrase = CELL_MISTAKES[name]
    refused, taken = (compile_text(f"{text}\n{body}{line} }}", "-w", "-fsyntax-only") for line in (wrong, right))
    assert taken.returncode == 0, taken.stderr
    assert refused.returncode != 0
    assert phrase in refused.stderr, refused.stderr
