"""The forward kernel's filter in shared memory, compiled for the host: what lies where, and what ldmatrix makes of it.

The kernel's own text brings a filter into a piece of host memory; what the lanes' addresses name is taken as the
instruction takes it, and compared with the filter as it is stored.
"""

import ctypes
import functools
from collections.abc import Callable
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from tapestry.kernels.convolution.configuration import ForwardConfiguration, filter_bytes
from tapestry.kernels.convolution.forward import constants, filter_flags, kernel_text
from tapestry.kernels.convolution.forward_dimensions import specification
from tapestry.kernels.convolution.launch import Taps
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.dimensions.declarations import declarations

from .test_forward_place import SHIM, first_tile, octet_of, places_text, swizzled, tap_value, warps
from .toolchain import compiler, shared_library

compiler()
Builder = Callable[[str, bool], ctypes.CDLL]
Halves = npt.NDArray[np.uint16]
COPIES = """
namespace tapestry {
unsigned char* memory;
inline void copy_octet(unsigned to, const void* from, bool there) {
    for (int i = 0; i < 16; ++i) memory[to + i] = there ? static_cast<const unsigned char*>(from)[i] : 0;
}
inline void store_octet(unsigned to, const unsigned (&words)[4]) { copy_octet(to, words, true); }
inline void wait_copies() {}
inline void meet(int, int) {}
inline void load_matrices(unsigned (&)[4], unsigned) {}
inline void load_matrices(unsigned (&)[2], unsigned) {}
inline void load_transposed(unsigned&, unsigned&, unsigned&, unsigned&, unsigned) {}
inline void load_transposed(unsigned&, unsigned&, unsigned) {}
}
"""
DOOR = """
extern "C" void bring(const unsigned short* data, int channels, int base, int threads, unsigned char* into) {
    memory = into;
    for (int thread = 0; thread < threads; ++thread) bring_filter({data, channels}, Outer(base), 0u, thread, threads);
}
extern "C" int loads() { return TAP_LOADS; }
extern "C" unsigned fragment(int warp, int lane, int load, int r, int s) {
    threadIdx.x = lane;
    FilterPlace places[TAP_LOADS];
    place_fragments(places, Place(warp), 0u);
    return places[load][StoredY(r)][StoredX(s)].address();
}
extern "C" unsigned input(int warp, int lane, int t, int s, int pair) {
    threadIdx.x = lane;
    const Place place(warp);
    const InputCorner corner = input_corner(lane, place.tile + t, Pair(0), place.group);
    return corner[cast<X>(TapX(s) * spec::DILATION_X)][C8(2 * pair)].in_tile(0u).address();
}
"""


def problem(width: int, c: int, r: int = 3, s: int = 2, dilation: int = 1) -> ConvolutionProblem:
    return ConvolutionProblem(2, 32, 32, c, c // width, r, s, dilation=(1, dilation))


def shared(channels: int, octets: int, units: int = 2, tiles: int = 1, images: int = 1) -> ForwardConfiguration:
    return ForwardConfiguration(channels, images, units, tiles, octets, filter="shared")


Case = tuple[ConvolutionProblem, ForwardConfiguration]
CASES: dict[str, Case] = {
    "32 wide, an octet": (problem(32, 64), shared(32, 1)),
    "32 wide, all octets": (problem(32, 96), shared(64, 4)),
    "32 wide, two octets": (problem(32, 128, 2, 3, dilation=2), shared(64, 2, 4, 2)),
    "16 wide, an octet": (problem(16, 48), shared(16, 1)),
    "16 wide, both octets": (problem(16, 80, 1, 5), shared(64, 2, 3, 3)),
    "16 wide, images": (problem(16, 64, 2, 2), shared(32, 2, 1, 1, images=3)),
}
BOTH = [(name, transposed) for name in CASES for transposed in (False, True)]


@pytest.fixture(scope="module")
def build() -> Builder:
    """Compiles a case once for all tests."""

    @functools.cache
    def built(name: str, transposed: bool) -> ctypes.CDLL:
        wanted, cut = CASES[name]
        flags = {"TRANSPOSED": transposed, **dict.fromkeys(("SHARDED", "SCALE", "BIAS", "RESIDUAL"), False)}
        values = {**constants(wanted, cut, taps_of(wanted, transposed)), **flags, **filter_flags(cut)}
        text = declarations(specification(wanted, cut, values))
        text += SHIM + COPIES + places_text() + kernel_text("forward_filter.cu")
        text += DOOR
        library = shared_library(text, "-Wno-unused", "-Wno-unknown-pragmas")
        library.fragment.restype = library.input.restype = ctypes.c_uint
        return library

    return built


def taps_of(wanted: ConvolutionProblem, transposed: bool) -> Taps:
    return Taps.flipped(wanted.r, wanted.s) if transposed else Taps.plain(wanted.r, wanted.s)


def filter_of(wanted: ConvolutionProblem, shift: int = 0) -> Halves:
    """A filter of numbers all over, `shift` numbers past a multiple of 16 bytes."""
    count = wanted.weight_elements
    room = np.zeros(count + 16, np.uint16)
    first = -room.ctypes.data % 16 // 2 + shift
    room[first : first + count] = np.arange(count, dtype=np.uint64) * 40503 % 65521 + 1
    return room[first : first + count].reshape(wanted.weight_shape)


def brought(library: ctypes.CDLL, case: Case, stored: Halves, base: int, threads: int = 64) -> Halves:
    """The tile in shared memory, as numbers; what nobody wrote is 0xeeee."""
    memory = np.full(filter_bytes(*case) // 2, 0xEEEE, np.uint16)
    library.bring(ctypes.c_void_p(stored.ctypes.data), case[0].c, base, threads, ctypes.c_void_p(memory.ctypes.data))
    return memory


def bases(case: Case) -> range:
    """The first channels of the channel blocks."""
    return range(0, case[0].c, case[1].channels)


@pytest.mark.parametrize(("name", "transposed"), BOTH)
@pytest.mark.parametrize(("shift", "threads"), [(0, 64), (3, 96)])
def test_every_octet_comes_once_and_is_zero_beyond_the_last_channel(
    name: str, transposed: bool, shift: int, threads: int, build: Builder
) -> None:
    case = wanted, cut = CASES[name]
    stored = filter_of(wanted, shift)
    for base in bases(case):
        memory = brought(build(name, transposed), case, stored, base, threads)
        found = np.sort(memory.reshape(-1, 8)[:, 0])
        expected = [
            stored[base + outer, r, s, inner] if base + outer < wanted.c else 0
            for r, s, outer, inner in product(
                range(wanted.r), range(wanted.s), range(cut.channels), range(0, wanted.width, 8)
            )
        ]
        assert found.tolist() == sorted(expected)


@pytest.mark.parametrize(("name", "transposed"), BOTH)
def test_ldmatrix_makes_the_right_operand_of_a_tap(name: str, transposed: bool, build: Builder) -> None:
    """Fragment f of a stored tap: octet f div pairs of those it writes, k16 step f mod pairs; two matrices each."""
    case = wanted, cut = CASES[name]
    library, stored = build(name, transposed), filter_of(wanted)
    pairs, octets = wanted.width // 16, wanted.width // 8
    count = cut.octets * pairs
    assert library.loads() == -(-count // 2)
    for base, warp, r, s in product(bases(case), range(warps(case)), range(wanted.r), range(wanted.s)):
        memory = brought(library, case, stored, base)
        for load in range(library.loads()):
            rows = [library.fragment(warp, lane, load, r, s) // 2 for lane in range(32)]
            for m in range(4 if count > 1 else 2):
                matrix = np.stack([memory[row : row + 8] for row in rows[8 * m : 8 * m + 8]])
                octet, pair = divmod(2 * load + m // 2, pairs)
                first = octet_of(case, warp)
                k, c = 8 * (first + octet), 8 * (first // octets * octets + 2 * pair + m % 2)
                outer, inner = (c, k) if transposed else (k, c)
                expected = [
                    [tap_value(wanted, stored, base + outer + i, base + inner + j, r, s) for j in range(8)]
                    for i in range(8)
                ]
                assert matrix.tolist() == expected, (base, warp, load, m)


@pytest.mark.parametrize(("name", "transposed"), BOTH)
def test_eight_rows_of_a_matrix_touch_all_banks(name: str, transposed: bool, build: Builder) -> None:
    wanted, cut = CASES[name]
    library = build(name, transposed)
    matrices = 4 if cut.octets * wanted.width > 16 else 2
    everything = product(range(warps(CASES[name])), range(library.loads()), range(wanted.r), range(wanted.s))
    for (warp, load, r, s), m in product(everything, range(matrices)):
        rows = [library.fragment(warp, 8 * m + i, load, r, s) for i in range(8)]
        assert sorted(row // 16 % 8 for row in rows) == list(range(8)), (warp, load, r, s, m)


@pytest.mark.parametrize("name", CASES)
def test_a_row_of_the_input_under_any_filter_column(name: str, build: Builder) -> None:
    """Matrix m of a k16 step: unit 2 * tile + m mod 2, octet m div 2 of the step."""
    case = wanted, cut = CASES[name]
    library = build(name, False)
    box = (8 * cut.units - 1) * wanted.stride[1] + (wanted.s - 1) * wanted.dilation[1] + 1
    octets = wanted.width // 8
    for warp, lane, t, s, pair in product(
        range(warps(case)), range(32), range(cut.tiles), range(wanted.s), range(wanted.width // 16)
    ):
        unit = 2 * (first_tile(case, warp) + t) + lane // 8 % 2
        if unit >= cut.images * cut.units:
            continue  # what comes of it is not used
        image, column = divmod(unit, cut.units)
        x = (8 * column + lane % 8) * wanted.stride[1] + s * wanted.dilation[1]
        chunk = octet_of(case, warp) // octets * octets + 2 * pair + lane // 16
        assert library.input(warp, lane, t, s, pair) == swizzled(image * box + x, chunk, cut), (warp, lane, t, s)
