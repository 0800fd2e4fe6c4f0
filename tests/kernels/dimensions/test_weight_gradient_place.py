"""Where the weight gradient reads rows and leaves sums, compiled for the host: what the product asks for."""

import ctypes
import functools
from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from tapestry.kernels.convolution.forward import kernel_text
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.weight_gradient import source
from tapestry.kernels.convolution.weight_gradient_candidates import configurations
from tapestry.kernels.convolution.weight_gradient_configuration import Cut
from tapestry.kernels.cost.gpu import tuned_gpu

from .toolchain import compiler, shared_library

compiler()
Builder = Callable[[str], ctypes.CDLL]
SHIM = """
#define __device__
#define __forceinline__ inline
struct float4 { float x, y, z, w; };
"""
DOOR = """
extern "C" unsigned x_row(int warp, int lane, int own_steps, int step, int pair) {
    const WarpPlace at(warp);
    const WarpOctets octets(at.get<C8>(), at.get<K8Block>());
    const auto place = x_place(lane, Step(at.get<Share>().get() * own_steps), TapPair(pair), octets.x);
    return steps_on(place, Step(step)).in_tile(0u).address();
}
extern "C" unsigned dy_row(int warp, int lane, int own_steps, int block, int step) {
    const WarpPlace at(warp);
    const WarpOctets octets(at.get<C8>(), at.get<K8Block>());
    return dy_place(lane, Step(at.get<Share>().get() * own_steps), octets.dy + block)[Step(step)].in_tile(0u).address();
}
extern "C" void octets(int warp, int* out) {
    const WarpPlace at(warp);
    const WarpOctets octets(at.get<C8>(), at.get<K8Block>());
    out[0] = octets.x.get(), out[1] = octets.dy.get(), out[2] = at.get<Share>().get();
}
extern "C" long long left_at(int block, int warp, int lane, int out_block, int r, int pair) {
    const auto base = reinterpret_cast<float4*>(1ll << 32);
    const WarpPlace at(warp);
    const auto warps = coord(BlockAndPart(block), at.get<C8>(), at.get<K8Block>());
    const auto mine = warps + coord(Lane(lane), K8m(0), TapY(0), TapPair(0));
    const auto own = Partials(base, Partials::L{BlockAndPart(block + 1)})[mine];
    return own[coord(K8m(out_block), TapY(r), TapPair(pair))].address() - base;
}
extern "C" int folded(unsigned index, int channel_blocks, int channels, int* out) {
    int count = 0;
    const PartialPlace place(index);
    const int both = place.get<BlockAndPart>().get();
    const Quadruple quadruple(place, both % channel_blocks, both / channel_blocks);
    quadruple.write(float4{0, 1, 2, 3}, channels, [&](long long at, float value) {
        out[2 * count] = int(at), out[2 * count + 1] = int(value), ++count;
    });
    return count;
}
"""


def problem(
    width: int = 8, c: int = 64, s: int = 3, stride: int = 1, dilation: int = 1, hw: int = 32
) -> ConvolutionProblem:
    return ConvolutionProblem(
        n=4, h=hw, w=hw, c=c, groups=c // width, r=3, s=s, stride=(stride, stride), dilation=(dilation, dilation)
    )


PROBLEMS: dict[str, ConvolutionProblem] = {
    "64 channels": problem(),
    "small images": problem(hw=9),
    "tiny images": problem(hw=5),
    "even taps": problem(s=4),
    "stride 2": problem(stride=2, s=5),
    "dilation 2": problem(dilation=2),
    "ragged channels": problem(c=72),
    "width 16": problem(width=16),
    "width 32": problem(width=32),
    "width 2": problem(width=2, c=8),
}


def spread(wanted: ConvolutionProblem) -> list[Cut]:
    """The best guess and one from the middle of the list."""
    tiled = [chosen for chosen in configurations(wanted, tuned_gpu()) if not chosen.direct]
    return [Cut(wanted, tiled[at]) for at in sorted({0, len(tiled) // 2})]


CUTS = {f"{name}, {i}": cut for name, wanted in PROBLEMS.items() for i, cut in enumerate(spread(wanted))}


@pytest.fixture(scope="module")
def build() -> Builder:
    """Compiles a cut once for all tests."""

    @functools.cache
    def built(name: str) -> ctypes.CDLL:
        cut = CUTS[name]
        text = source(cut.problem, cut.configuration)
        declared = text[: text.index(kernel_text("weight_gradient_place.cu"))].replace(
            "#include <tapestry/numeric.cuh>", ""
        )
        declared = declared[: declared.index("namespace tapestry::parameters { using Half")]
        place = kernel_text("weight_gradient_place.cu")
        for header in ("async", "divisor", "mma", "registers"):
            place = place.replace(f"#include <tapestry/{header}.cuh>\n", "")
        place = place[: place.index("// A place that the compiler keeps in a register")]
        body = [SHIM, declared, place, DOOR, "}"]
        library = shared_library("\n".join(body), "-Wno-unused", "-Wno-unknown-pragmas")
        library.left_at.restype = ctypes.c_longlong
        return library

    return built


def swizzled(position: int, chunk: int, cut: Cut) -> int:
    """Where the copy engine puts a chunk of a position: in lines of 128 bytes, j xor i in runs of the row's length."""
    run, linear = cut.chunks, position * cut.chunks + chunk
    line, at = divmod(linear, 8)
    return 16 * (8 * line + at // run * run + (at % run ^ line % run))


def octets_of(library: ctypes.CDLL, warp: int) -> tuple[int, int, int]:
    out = (ctypes.c_int * 3)()
    library.octets(warp, out)
    return out[0], out[1], out[2]


@pytest.mark.parametrize("name", CUTS)
def test_warps_share_out_all_octets_and_steps_of_a_group(name: str, build: Builder) -> None:
    """Every octet of x meets every octet of dy of its group, once for every share."""
    cut = CUTS[name]
    met: Counter[tuple[int, int, int]] = Counter()
    for warp in range(cut.consumers):
        x, dy, share = octets_of(build(name), warp)
        met.update((x, dy + block, share) for block in range(cut.configuration.out_blocks))
    shares = range(cut.configuration.share)
    pairs = [
        (x, x // cut.group_chunks * cut.group_chunks + i) for x in range(cut.chunks) for i in range(cut.group_chunks)
    ]
    assert met == Counter((x, dy, share) for (x, dy), share in product(pairs, shares))


@pytest.mark.parametrize("name", CUTS)
def test_a_lane_names_the_rows_of_x_that_meet_the_rows_of_dy(name: str, build: Builder) -> None:
    """Matrix m of x is tap 2 * pair + m mod 2 of unit m div 2 of the step; rows of dy follow one another."""
    cut, library = CUTS[name], build(name)
    chosen, wanted, own = cut.configuration, cut.problem, cut.own_steps
    for warp, lane, step in product(range(cut.consumers), range(32), range(own)):
        x_octet, dy_octet, share = octets_of(library, warp)
        unit = 2 * (share * own + step) + lane // 16
        image, column = divmod(unit, chosen.units)
        for pair in range(cut.tap_pairs):
            tap = min(2 * pair + lane // 8 % 2, wanted.s - 1)
            x = image * cut.x_columns + (8 * column + lane % 8) * wanted.stride[1] + tap * wanted.dilation[1]
            assert library.x_row(warp, lane, own, step, pair) == swizzled(x, x_octet, cut), (warp, lane, step, pair)
        for block in range(chosen.out_blocks):
            position = 16 * (share * own + step) + lane
            expected = swizzled(position, dy_octet + block, cut)
            assert library.dy_row(warp, lane, own, block, step) == expected, (warp, lane, step, block)


@pytest.mark.parametrize("name", CUTS)
def test_what_warps_leave_is_folded_where_it_belongs(name: str, build: Builder) -> None:
    """Sum i of lane l of a fragment: channel l div 4 of x and 2 (l mod 4) + i mod 2 of dy, tap 2 * pair + i div 2."""
    cut, library = CUTS[name], build(name)
    chosen, wanted = cut.configuration, cut.problem
    seen = np.zeros(wanted.weight_elements, dtype=int)
    inner = range(chosen.out_blocks), range(cut.filter_rows), range(cut.tap_pairs)
    for part, block, warp in product(range(chosen.row_parts), range(cut.channel_blocks), range(cut.consumers)):
        x_octet, dy_octet, share = octets_of(library, warp)
        for lane, out_block, row, pair in product(range(32) if share == 0 else (), *inner):
            index = library.left_at(part * cut.channel_blocks + block, warp, lane, out_block, row, pair)
            out = (ctypes.c_int * 8)()
            count = library.folded(index, cut.channel_blocks, wanted.c, out)
            expected = []
            for i in range(4):
                c = block * chosen.channel_block + 8 * x_octet + lane // 4
                k = block * chosen.channel_block + 8 * (dy_octet + out_block) + 2 * (lane % 4) + i % 2
                r, s = part * cut.filter_rows + row, 2 * pair + i // 2
                inside = max(c, k) < wanted.c and r < wanted.r and s < wanted.s
                if inside and c // wanted.width == k // wanted.width:
                    expected += [((k * wanted.r + r) * wanted.s + s) * wanted.width + c % wanted.width, i]
            assert list(out)[: 2 * count] == expected, (part, block, warp, lane)
            seen[expected[::2]] += 1
    assert (seen == 1).all()
