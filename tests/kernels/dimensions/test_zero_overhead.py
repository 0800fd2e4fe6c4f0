"""Types cost nothing: the machine code of a typed kernel is that of its hand-written twin.

Both are compiled by NVRTC for sm_90 (no GPU is needed). Where everything is known at compile time the code is the same
to the last bit; with run-time extents the loops are, and what comes before them may be ordered otherwise.
"""

import struct

import pytest

from tapestry.kernels.errors import Unavailable
from tapestry.kernels.runtime.compiler import Compiled, compile_source

from .toolchain import compile_text

HEAD = """
#include <tapestry/compound.cuh>
#include <tapestry/fragment.cuh>
#include <tapestry/tensor.cuh>
using namespace tapestry;
using N = Dim<struct N_>; using Y = Dim<struct Y_>; using X = Dim<struct X_>; using Q = Dim<struct Q_>;
using C = Dim<struct C_>; using R = Dim<struct R_>; using Step = Dim<struct Step_>; using Warp = Dim<struct Warp_>;
using C8 = Fold<C, 8>; using Unit = Fold<Q, 8>; using Q8 = Module<Q, 8>;
"""

# The row that a lane names to ldmatrix in a swizzled tile of 64 channels, for a filter tap.
TILE_TYPED = """
using Tile = SharedTensor<Octet, Packed<Extent<X, 72>, Extent<C8, 8>>, Swizzle<128>>;
using Lane = Compound<Extent<Step, 2>, Extent<Unit, 2>, Extent<Q8, 8>>;
extern "C" __global__ void kernel(unsigned* out, unsigned tile, int first, int chunk) {
    const Lane lane(threadIdx.x % 32);
    const Q q = unfold(Unit(first) + lane.get<Unit>(), lane.get<Q8>());
    const X x = cast<X>(q) + cast<X>(lane.get<Step>());
    const auto row = Tile(tile)[coord(x, C8(chunk))];
    for (int unit = 0; unit < 4; ++unit) out[threadIdx.x + 32 * unit] = row.settle()[Fold<X, 8>(unit)].address();
}
"""
TILE_BY_HAND = """
extern "C" __global__ void kernel(unsigned* out, unsigned tile, int first, int chunk) {
    const unsigned lane = threadIdx.x % 32;
    const int x = (first + (lane >> 3 & 1)) * 8 + (lane & 7) + (lane >> 4);
    const unsigned linear = tile + (x * 8 + chunk) * 16, row = linear ^ (linear >> 3 & 112);
    for (int unit = 0; unit < 4; ++unit) out[threadIdx.x + 32 * unit] = row + unit * 1024;
}
"""

# Elements of an image with run-time extents, indexed by the parts of a linear thread index.
IMAGE_TYPED = """
using Image = Packed<Extent<N>, Extent<Y>, Extent<X>, Extent<C, 64>>;
using Thread = Compound<Extent<X, 16>, Extent<C, 64>>;
extern "C" __global__ void kernel(const float* in, float* out, int n, int h, int w) {
    const Image image{X(w), Y(h), N(n)};
    const Tensor<const float, Image> source(in, image);
    const Tensor<float, Image> target(out, image);
    const auto thread = Thread(threadIdx.x).coord();
    const X x(blockIdx.x * 16);
    if (x + thread.get<X>() >= image.extent<X>()) return;
    auto from = source[coord(N(blockIdx.z), Y(0), x, C(0)) + thread];
    auto to = target[coord(N(blockIdx.z), Y(0), x, C(0)) + thread];
    for (Y y : range(Y(h))) {
        *to = *from;
        from += Y(1), to += Y(1);
    }
}
"""
IMAGE_BY_HAND = """
extern "C" __global__ void kernel(const float* in, float* out, int n, int h, int w) {
    const int c = threadIdx.x % 64, x = blockIdx.x * 16 + threadIdx.x / 64;
    if (x >= w) return;
    const long long row = (long long)w * 64, first = blockIdx.z * (h * row) + x * 64 + c;
    const float* from = in + first;
    float* to = out + first;
    for (int y = 0; y < h; ++y) {
        *to = *from;
        from += row, to += row;
    }
}
"""

# A circle of open rows in registers, walked by an unrolled loop.
REGISTERS_TYPED = """
extern "C" __global__ void kernel(const float* in, float* out) {
    Array<float, Extent<R, 3>, Extent<Unit, 2>> open{};
    for (int row = 0; row < 30; row += 3)
        unrolled<Y, 3>([&](auto phase) {
            unrolled<R, 3>([&](auto r) {
                for (Unit u : range(Unit(2))) {
                    const R slot((phase.get() + 3 - r.get()) % 3);
                    const float product = in[(row + phase.get()) * 64 + u.get() * 32 + threadIdx.x] * (r.get() + 1);
                    open(u, slot) = r.get() == 0 ? product : open(u, slot) + product;
                }
            });
        });
    for (R r : range(R(3)))
        for (Unit u : range(Unit(2))) out[(r.get() * 2 + u.get()) * 32 + threadIdx.x] = open(r, u);
}
"""
REGISTERS_BY_HAND = """
extern "C" __global__ void kernel(const float* in, float* out) {
    float open[3][2] = {};
    for (int row = 0; row < 30; row += 3)
#pragma unroll
        for (int phase = 0; phase < 3; ++phase)
#pragma unroll
            for (int r = 0; r < 3; ++r)
#pragma unroll
                for (int u = 0; u < 2; ++u) {
                    const int slot = (phase + 3 - r) % 3;
                    const float product = in[(row + phase) * 64 + u * 32 + threadIdx.x] * (r + 1);
                    open[slot][u] = r == 0 ? product : open[slot][u] + product;
                }
#pragma unroll
    for (int r = 0; r < 3; ++r)
#pragma unroll
        for (int u = 0; u < 2; ++u) out[(r * 2 + u) * 32 + threadIdx.x] = open[r][u];
}
"""

# Where the four sums of a fragment go.
FRAGMENT_TYPED = """
using Out = Packed<Extent<Q, 64>, Extent<C, 64>>;
extern "C" __global__ void kernel(float* out, float value) {
    using Sums = FragmentC<Q, C>;
    const Tensor<float, Out> tensor(out);
    for (int r = 0; r < 4; ++r) *tensor[Sums::element(threadIdx.x, r)] = value * r;
}
"""
FRAGMENT_BY_HAND = """
extern "C" __global__ void kernel(float* out, float value) {
    const int row = threadIdx.x >> 2, column = (threadIdx.x & 3) * 2;
    for (int r = 0; r < 4; ++r) out[(row + 8 * (r >> 1)) * 64 + column + (r & 1)] = value * r;
}
"""

TWINS = {
    "swizzled tile": (TILE_TYPED, TILE_BY_HAND),
    "image with run-time extents": (IMAGE_TYPED, IMAGE_BY_HAND),
    "registers": (REGISTERS_TYPED, REGISTERS_BY_HAND),
    "fragment": (FRAGMENT_TYPED, FRAGMENT_BY_HAND),
}


def build(text: str) -> Compiled:
    try:
        return compile_source(HEAD + text, name="kernel", arch="sm_90")
    except Unavailable as missing:
        pytest.skip(f"no run-time compiler: {missing}")


def machine_code(compiled: Compiled) -> bytes:
    """The section .text.kernel of the cubin, a little-endian 64-bit ELF file."""
    image = compiled.cubin
    (offset,) = struct.unpack_from("<Q", image, 40)
    size, count, names = struct.unpack_from("<HHH", image, 58)
    headers = [struct.unpack_from("<IIQQQQ", image, offset + i * size) for i in range(count)]
    strings = headers[names][4]
    for name, _, _, _, start, length in headers:
        label = image[strings + name : image.index(b"\0", strings + name)]
        if label == b".text.kernel":
            return image[start : start + length]
    raise AssertionError("the cubin has no .text.kernel")


def instructions(code: bytes) -> int:
    """Instructions of sixteen bytes, without the no-operations that fill up the section."""
    return sum(code[at : at + 2] != b"\x18\x79" for at in range(0, len(code), 16))


@pytest.mark.parametrize("name", ["swizzled tile", "registers", "fragment"])
def test_the_typed_kernel_is_its_twin(name: str) -> None:
    typed, by_hand = (build(text) for text in TWINS[name])
    assert machine_code(typed) == machine_code(by_hand)


def test_run_time_extents_cost_no_register_and_nothing_in_the_loop() -> None:
    typed, by_hand = (build(text) for text in TWINS["image with run-time extents"])
    assert typed.registers <= by_hand.registers
    assert (typed.spill_loads, typed.stack) == (0, 0)
    assert instructions(machine_code(typed)) <= 1.02 * instructions(machine_code(by_hand))


def test_no_trait_becomes_a_variable_of_the_module() -> None:
    typed = build(IMAGE_TYPED)
    assert b"tapestry" not in typed.cubin


def test_a_tensor_is_as_large_as_what_is_not_known_of_it() -> None:
    """One pointer, or one shared address; run-time extents and strides take their own room and no more."""
    sizes = """
using Tile = Packed<Extent<X, 72>, Extent<C8, 8>>;
static_assert(sizeof(Tensor<float, Tile>) == 8 && sizeof(SharedTensor<Octet, Tile, Swizzle<128>>) == 4, "");
static_assert(sizeof(Tensor<float, Packed<Extent<X>, Extent<C8, 8>>>) == 16, "a pointer and one extent");
static_assert(sizeof(X) == 4 && sizeof(coord(X(1), C8(2))) == 8 && sizeof(Compound<Extent<X, 2>>) == 4, "");
static_assert(sizeof(Octet) == 16 && alignof(Octet) == 16 && sizeof(Quad) == 16 && alignof(Quad) == 16, "");
static_assert(sizeof(Array<float, Extent<X, 3>, Extent<R, 2>>) == 24, "");
"""
    done = compile_text(HEAD + sizes, "-fsyntax-only")
    assert done.returncode == 0, done.stderr
