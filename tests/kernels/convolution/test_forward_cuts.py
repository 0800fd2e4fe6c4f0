"""The forward kernel without a GPU: problems, cuts, sources, and what the compiler reports of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.kernels.convolution import candidates, forward, launch, sharded
from tapestry.kernels.convolution.configuration import (
    Filter,
    ForwardConfiguration,
    footprint,
    legal,
    register_limit,
)
from tapestry.kernels.convolution.input_gradient import walk
from tapestry.kernels.convolution.problem import BadConvolution, ConvolutionProblem
from tapestry.kernels.cost.gpu import known_gpu, tuned_gpu
from tapestry.kernels.cost.model import choose
from tapestry.kernels.runtime.compiler import compile_source

from ..shapes import SHAPES, TABLE

SHARED = tuned_gpu().shared_per_block

PLACES: tuple[Filter, ...] = get_args(Filter)
problems = st.builds(
    lambda n, h, w, width, blocks, r, s, stride, dilation, padding: ConvolutionProblem(
        n, h + r * 2, w + s * 2, 8 * width * blocks, 8 * blocks, r, s, stride, dilation, padding
    ),
    st.integers(1, 40),
    st.integers(1, 70),
    st.integers(1, 300),
    st.sampled_from((1, 2, 4, 8)),
    st.integers(1, 20),
    st.integers(1, 5),
    st.integers(1, 5),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.tuples(*[st.integers(0, 4)] * 4),
)


def windows(extent: int, taps: int, stride: int, dilation: int, before: int, after: int) -> list[set[int]]:
    """The input rows of every output row, by laying the filter on the padded rows one step after the other."""
    found = []
    start = -before
    while start + dilation * (taps - 1) < extent + after:
        found.append({start + dilation * tap for tap in range(taps)})
        start += stride
    return found


@given(problems)
@settings(deadline=None, max_examples=50)
def test_output_extents_are_the_places_where_the_filter_fits(problem: ConvolutionProblem) -> None:
    top, bottom, left, right = problem.padding
    assert problem.p == len(windows(problem.h, problem.r, problem.stride[0], problem.dilation[0], top, bottom))
    assert problem.q == len(windows(problem.w, problem.s, problem.stride[1], problem.dilation[1], left, right))


@given(problems, st.integers(0, 4), st.integers(0, 4))
@settings(deadline=None, max_examples=50)
def test_interior_rows_read_no_halo_and_parts_cover_all_rows_once(
    problem: ConvolutionProblem, above: int, below: int
) -> None:
    top, bottom, _, _ = problem.padding
    reads = windows(problem.h, problem.r, problem.stride[0], problem.dilation[0], top, bottom)
    inner, outer = sharded.parts(problem, above, below)
    halo = {*range(-above, 0), *range(problem.h, problem.h + below)}
    assert not any(reads[row] & halo for part in inner for row in range(part.begin, part.end))
    assert sorted(row for part in inner + outer for row in range(part.begin, part.end)) == list(range(problem.p))


@pytest.mark.parametrize("rows", [(0, 20), (3, 20), (0, 17)])
def test_interior_is_as_large_as_it_can_be(rows: tuple[int, int]) -> None:
    problem = ConvolutionProblem(1, 20, 20, 8, 1, 7, 7, padding=(3, 3, 3, 3))
    above, below = rows[0], 20 - rows[1]
    assert sharded.interior(problem, above, below) == (3 if above else 0, 17 if below else 20)


@given(problems, st.integers(0, 3), st.integers(1, 3))
@settings(deadline=None, max_examples=50)
def test_a_strip_is_a_problem_of_so_many_output_rows(problem: ConvolutionProblem, begin: int, count: int) -> None:
    strip = sharded.strip(problem, launch.Rows(begin, begin + count))
    assert (strip.p, strip.q) == (count, problem.q)


@pytest.mark.parametrize(
    ("n", "h", "c", "size"), [(64, 32, 64, 3), (256, 32, 64, 3), (32, 64, 256, 5), (8, 256, 64, 5)]
)
def test_a_boundary_is_cut_for_its_few_rows(n: int, h: int, c: int, size: int) -> None:
    """Cut as the whole is, its rows would be the chunks of four to eight blocks of the grid."""
    gpu = known_gpu("H200")
    assert gpu is not None
    problem = ConvolutionProblem(n, h, 2 * h, c, c // 8, size, size, padding=(size // 2,) * 4)
    (rows,) = sharded.parts(problem, size // 2, 0)[1]
    chosen = choose(sharded.strip(problem, rows), "forward", gpu)
    assert chosen is not None
    assert launch.grid(problem, chosen, rows, gpu.sms).blocks >= 100


@given(problems)
@settings(deadline=None, max_examples=20)
def test_every_candidate_is_legal_and_walks_every_row(problem: ConvolutionProblem) -> None:
    found = candidates.configurations(problem, tuned_gpu())
    assert found == candidates.configurations(problem, tuned_gpu())
    assert 1 <= len(found) <= candidates.MOST
    for cut in found:
        assert legal(problem, cut, SHARED)
        assert footprint(problem, cut).shared <= SHARED
        cells = launch.grid(problem, cut, launch.Rows(0, problem.p), tuned_gpu().sms)
        assert cells.image_blocks * cut.images >= problem.n
        assert cells.column_tiles * cut.units * 8 >= problem.q
        assert 1 <= cells.blocks <= cells.channel_blocks * cells.image_blocks * cells.column_tiles * problem.p


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_of_the_list_has_candidates_where_the_copy_engine_reads_it(name: str) -> None:
    problem = SHAPES[name]
    for walked in (problem, walk(problem).problem):
        assert bool(candidates.configurations(walked, tuned_gpu())) == (walked.c % 8 == 0)


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_filters_of_narrow_groups_stay_out_of_shared_memory(width: int) -> None:
    problem = same(3, width, 1)
    assert {cut.filter for cut in candidates.configurations(problem, tuned_gpu())} == {"registers"}
    for kept in PLACES:
        cut = ForwardConfiguration(64, 1, 4, 2, 1, filter=kept)
        assert legal(problem, cut, SHARED) == (kept == "registers")


@pytest.mark.parametrize("cut", [ForwardConfiguration(64, 1, 4, 2, 2), ForwardConfiguration(32, 2, 4, 1, 4)], ids=repr)
def test_a_filter_in_shared_memory_takes_its_bytes_and_no_registers(cut: ForwardConfiguration) -> None:
    problem = same(7, 32, 1)
    plain, kept = footprint(problem, cut), footprint(problem, replace(cut, filter="shared"))
    assert kept.shared - plain.shared == cut.channels * 7 * 7 * 32 * 2
    assert kept.registers < plain.registers - 100
    assert not any(legal(problem, replace(cut, filter=place), SHARED) for place in ("registers", "staged"))
    assert legal(problem, replace(cut, filter="shared"), SHARED) == (kept.shared <= SHARED)
    assert not legal(problem, replace(cut, filter="shared", late=True), SHARED)


@given(st.integers(0, SHARED), st.integers(1, 8), st.integers(1, 132 * 32))
def test_no_more_blocks_than_are_to_be_fit_a_multiprocessor(shared: int, residents: int, blocks: int) -> None:
    gpu, reserved = tuned_gpu(), 1024
    taken = launch.uncrowded(shared, residents, blocks, gpu) + reserved
    most = max(residents, -(-blocks // gpu.sms))
    assert taken >= shared + reserved
    assert (most + 1) * taken > gpu.shared_per_sm
    if most * (shared + reserved) <= gpu.shared_per_sm:
        assert most * taken <= gpu.shared_per_sm


def test_sources_are_the_same_every_time_and_do_not_depend_on_extents() -> None:
    small, large = (ConvolutionProblem(n, 32, 32, 64, 8, 3, 3, padding=(1,) * 4) for n in (1, 9))
    cut = ForwardConfiguration()
    assert forward.source(small, cut) == forward.source(large, cut)
    assert forward.source(small, cut) != forward.source(small, cut, bias=True)


def same(size: int, width: int, stride: int) -> ConvolutionProblem:
    """A convolution whose output has the input's extents over the stride."""
    return ConvolutionProblem(8, 28, 28, 128, 128 // width, size, size, (stride,) * 2, padding=(size // 2,) * 4)


FUSED = [
    {},
    {"transposed": True},
    {"scale": True, "bias": True, "residual": True, "activation": "gelu"},
    {"sharded": True},
]
SPREAD = [
    (f"{size}x{size} width {width} stride {stride}", number, same(size, width, stride))
    for number, (size, width, stride) in enumerate(
        ((1, 8, 1), (3, 8, 2), (3, 32, 1), (5, 1, 2), (5, 16, 1), (5, 32, 1), (7, 1, 1), (7, 16, 1), (7, 8, 2))
    )
]


@pytest.mark.parametrize("problem", TABLE.values(), ids=TABLE)
def test_the_first_guesses_of_the_table_do_not_spill(problem: ConvolutionProblem) -> None:
    cut = candidates.configurations(problem, tuned_gpu())[0]
    compiled = compile_source(forward.source(problem, cut), name="forward")
    assert (compiled.spill_stores, compiled.spill_loads, compiled.stack) == (0, 0, 0), cut


@pytest.mark.parametrize(("number", "problem"), [pytest.param(n, p, id=name) for name, n, p in SPREAD])
def test_the_compiler_reports_no_spills(number: int, problem: ConvolutionProblem) -> None:
    """One of the candidates, with one of the fused variants: no stack, no spills, registers as launched."""
    found = candidates.configurations(problem, tuned_gpu())
    cut = found[(7 * number) % len(found)]
    compiled = compile_source(forward.source(problem, cut, **FUSED[number % len(FUSED)]), name="forward")
    assert (compiled.spill_stores, compiled.spill_loads, compiled.stack) == (0, 0, 0), cut
    assert compiled.registers * footprint(problem, cut).threads * cut.blocks <= 65536


@pytest.mark.parametrize("kept", ["staged", "shared"])
@pytest.mark.parametrize(
    ("number", "name"),
    list(enumerate(["filter.width32.7x7", "stride2.width32", "filter.width16.7x7", "resnext101_32x8d.stage0"])),
)
def test_filters_in_shared_memory_do_not_spill(number: int, name: str, kept: str) -> None:
    """The best and another candidate of a kind, plain, fused and transposed."""
    walked = walk(SHAPES[name])
    for problem, flags in (
        (SHAPES[name], FUSED[number % 2 * 2]),
        (walked.problem, {"transposed": True, "taps": walked.taps}),
    ):
        found = [cut for cut in candidates.configurations(problem, tuned_gpu()) if cut.filter == kept]
        for cut in {found[0], found[7 * number % len(found)]} if found else ():
            compiled = compile_source(forward.source(problem, cut, **flags), name="forward")
            assert (compiled.spill_stores, compiled.spill_loads, compiled.stack) == (0, 0, 0), cut
            assert compiled.registers * footprint(problem, cut).threads * cut.blocks <= 65536


STRIDED = [
    (f"{size}x{size} width {width}", number, same(size, width, 2))
    for number, (size, width) in enumerate(
        ((1, 8), (2, 4), (3, 8), (3, 16), (3, 32), (4, 8), (5, 8), (5, 16), (5, 32), (7, 1), (7, 16), (7, 32))
    )
]


@pytest.mark.parametrize(
    ("number", "problem"),
    [
        pytest.param(0, TABLE["table.64x64x64k3"], id="stride 1"),
        *(pytest.param(n, p, id=name) for name, n, p in STRIDED),
    ],
)
def test_input_gradients_do_not_spill(number: int, problem: ConvolutionProblem) -> None:
    """The guess, and the configuration with the most registers of those that are the tightest for their blocks."""
    walked = walk(problem)
    found = candidates.configurations(walked.problem, tuned_gpu())

    def room(cut: ForwardConfiguration) -> int:
        taken = footprint(walked.problem, cut)
        return register_limit(taken.threads, cut.blocks) - taken.registers

    for cut in {found[0], min(found, key=room), found[(7 * number) % len(found)]}:
        source = forward.source(walked.problem, cut, transposed=True, taps=walked.taps)
        compiled = compile_source(source, name="forward")
        assert (compiled.spill_stores, compiled.spill_loads, compiled.stack) == (0, 0, 0), cut
        assert compiled.registers * footprint(walked.problem, cut).threads * cut.blocks <= 65536


def test_strided_gradients_of_every_filter_and_width_have_configurations() -> None:
    sizes = range(1, 8)
    missing = [
        (r, s, width)
        for r, s, width in product(sizes, sizes, (1, 8, 16, 32))
        if not candidates.configurations(
            walk(ConvolutionProblem(8, 30, 30, 128, 128 // width, r, s, (2, 2), padding=(1, 1, 1, 1))).problem,
            tuned_gpu(),
        )
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"groups": 5}, ("channels do not divide", "multiple of 5", "64")),
        ({"c": 256, "groups": 1}, ("group width", "128", "256")),
        ({"r": 8}, ("filter extent r", "1 to 7", "8")),
        ({"stride": (3, 1)}, ("stride", "1 or 2", "3")),
        ({"dtype": "f32"}, ("dtype", "f16 or bf16", "f32")),
        ({"h": 2, "r": 5}, ("does not fit", "p (output rows)", "-")),
        ({"n": 2**20}, ("elements of the input", "2147483647")),
        ({"padding": (1, 1)}, ("padding", "4 ints", "(1, 1)")),
        ({"w": 8.0}, ("w is not an integer", "int", "float")),
    ],
)
def test_bad_problems_say_what_was_expected_and_what_came(changes: dict[str, object], words: tuple[str, ...]) -> None:
    usual: dict[str, object] = {"n": 1, "h": 8, "w": 8, "c": 64, "groups": 8, "r": 3, "s": 3}
    with pytest.raises(BadConvolution) as caught:
        ConvolutionProblem(**{**usual, **changes})  # type: ignore[arg-type]
    assert all(word in str(caught.value) for word in words), str(caught.value)
