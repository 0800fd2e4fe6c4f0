"""The weight gradient without a GPU: which cuts are legal, and what the compiler says of the kernels."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.kernels.convolution import weight_gradient
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.convolution.weight_gradient_candidates import configurations
from tapestry.kernels.convolution.weight_gradient_configuration import (
    Cut,
    WeightGradientConfiguration,
    legal,
    live_rows,
)
from tapestry.kernels.cost.gpu import tuned_gpu
from tapestry.kernels.errors import WrongValue
from tapestry.kernels.runtime.compiler import compile_source

from ..machine_code import (
    ALWAYS,
    ARRIVAL,
    BARRIER,
    BRANCH,
    LOAD_MATRICES,
    Instruction,
    arrivals_before_their_loads,
    instructions,
)
from ..shapes import SHAPES

SHARED = tuned_gpu().shared_per_block


# The cuts.


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_has_legal_cuts_and_the_plain_one_last(name: str) -> None:
    problem = SHAPES[name]
    found = configurations(problem, tuned_gpu())
    assert found[-1].direct
    assert not any(chosen.direct for chosen in found[:-1])
    assert len(set(found)) == len(found)
    assert (len(found) > 1) == (problem.c % 8 == 0)
    for chosen in found[:-1]:
        cut = Cut(problem, chosen)
        assert legal(cut, SHARED)
        assert chosen.residents * (cut.shared_bytes + 2048) <= 233472
        assert cut.threads <= 1024
        assert 1 <= chosen.splits <= cut.image_blocks * cut.column_tiles * problem.p
        assert cut.column_tiles * 8 * chosen.units >= problem.q
        assert cut.image_blocks * chosen.images >= problem.n
        assert chosen.images == 1 or cut.column_tiles == 1
        assert cut.consumers % chosen.share == 0
        assert chosen.channel_block % max(8, problem.width) == 0
        assert (chosen.row_parts - 1) * cut.filter_rows < problem.r
        assert not chosen.together or (chosen.splits <= 8 and weight_gradient.workspace_bytes(problem, chosen) == 0)


def test_the_order_of_the_cuts_does_not_change() -> None:
    problem = SHAPES["table.64x64x64k3"]
    before = configurations(problem, tuned_gpu())
    configurations.cache_clear()
    assert configurations(problem, tuned_gpu()) == before


@given(
    h=st.integers(1, 12), r=st.integers(1, 5), top=st.integers(-9, 12), bottom=st.integers(-9, 12),
    stride=st.sampled_from([1, 2]), dilation=st.sampled_from([1, 2]),
)  # fmt: skip
def test_live_rows_are_those_that_meet_the_input(
    h: int, r: int, top: int, bottom: int, stride: int, dilation: int
) -> None:
    if h + top + bottom < dilation * (r - 1) + 1:
        return
    problem = ConvolutionProblem(1, h, 9, 8, 1, r, 1, (stride, 1), (dilation, 1), (top, bottom, 0, 0))
    meets = [p for p in range(problem.p) if any(0 <= p * stride + tap * dilation - top < h for tap in range(r))]
    found = live_rows(problem)
    assert set(meets) <= set(found)
    if dilation == 1 and meets:
        assert (found[0], found[-1]) == (meets[0], meets[-1])


SMALL = ["groups.1", "groups.3.width1", "groups.5.width4", "extent.1x1", "batch.1.width32", "groups.256.width32"]


@pytest.mark.parametrize("name", SMALL)
def test_small_problems_and_those_of_many_channels_can_do_with_one_launch(name: str) -> None:
    assert configurations(SHAPES[name], tuned_gpu())[0].together


def test_large_problems_of_few_channels_take_two_launches() -> None:
    assert not any(chosen.together for chosen in configurations(SHAPES["table.64x64x64k3"], tuned_gpu()))


@given(name=st.sampled_from(sorted(SHAPES)), data=st.data())
def test_the_ranks_of_a_cluster_have_room_for_all_that_they_add(name: str, data: st.DataObject) -> None:
    options = [chosen for chosen in configurations(SHAPES[name], tuned_gpu()) if chosen.together and not chosen.direct]
    if not options:
        return
    cut = Cut(SHAPES[name], data.draw(st.sampled_from(options)))
    chosen, given = cut.configuration, 16 * 32
    fragments = cut.consumers // chosen.share * cut.fragments
    owned = [len(range(rank, fragments, chosen.splits)) for rank in range(chosen.splits)]
    assert sum(owned) == fragments
    assert max(owned) == cut.turns
    ring = chosen.stages * cut.stage_bytes if chosen.splits > 1 else 0
    assert cut.shared_bytes >= ring + chosen.splits * chosen.share * max(owned) * given


# The compiled kernels.

HEAVY: list[tuple[str, dict[str, int]]] = [
    ("table.64x64x64k3", {}),
    ("table.64x64x64k5", {"channel_block": 64}),
    ("filter.7x7", {}),
    ("filter.3x5", {"share": 2}),
    ("filter.width16.7x7", {}),
    ("filter.width32.7x7", {}),
    ("filter.width32.5x5", {"row_parts": 3}),
    ("dilation2.width32", {"row_parts": 2}),
    ("stride2.depthwise.k7", {"channel_block": 64}),
    ("groups.32.width4", {"residents": 2}),
    ("bf16.k5.width16", {"share": 2}),
    ("groups.64.width32", {"together": True}),
    ("groups.256.width32", {"together": True, "row_parts": 1, "splits": 1}),
    ("extent.17x9.width32", {"together": True, "splits": 8}),
    ("batch.1", {"together": True, "splits": 4, "share": 1}),
    ("extent.31x29.depthwise", {"together": True, "splits": 8}),
]


def pick(problem: ConvolutionProblem, **wanted: int) -> WeightGradientConfiguration:
    """The cut with most registers to its limit among those with these values."""
    options = [
        chosen
        for chosen in configurations(problem, tuned_gpu())
        if not chosen.direct and all(getattr(chosen, name) == value for name, value in wanted.items())
    ]
    return max(options, key=lambda chosen: Cut(problem, chosen).registers / Cut(problem, chosen).register_limit)


@pytest.mark.parametrize(("name", "wanted"), HEAVY)
def test_nothing_is_spilled_where_registers_are_scarcest(name: str, wanted: dict[str, int]) -> None:
    problem = SHAPES[name]
    chosen = pick(problem, **wanted)
    first = weight_gradient.kernel_names(chosen, False)[0]
    made = compile_source(weight_gradient.source(problem, chosen), name=first)
    names = {name for partial in (False, True) for name in weight_gradient.kernel_names(chosen, partial)}
    assert set(made.report) == names
    for entry in names:
        used = made.report[entry]
        assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0), (entry, chosen)
    assert made.shared <= 1024
    assert made.registers <= Cut(problem, chosen).register_limit
    assert arrivals_before_their_loads(instructions(made.cubin, first)) == []


# A stage is given back when its last matrix is there: the machine code is read.

RACY = ["table.64x64x64k3", "padding.0.k1", "filter.6x1", "filter.7x1", "batch.3", "stride2.k5", "groups.64.width32"]


@pytest.mark.parametrize("name", RACY)
def test_no_stage_is_given_back_before_its_last_matrix_is_there(name: str) -> None:
    problem = SHAPES[name]
    for chosen in configurations(problem, tuned_gpu())[:40:13]:
        first = weight_gradient.kernel_names(chosen, False)[0]
        made = compile_source(weight_gradient.source(problem, chosen), name=first)
        code = instructions(made.cubin, first)
        assert any(found.opcode == LOAD_MATRICES for found in code)
        assert sum(found.arrives for found in code) > 2  # those of the loading warps are two
        assert arrivals_before_their_loads(code) == [], chosen


ADDRESS, UNCONDITIONAL, NOTHING = 0x10, 0x7 << 12, 7 << 17 | 7 << 20


def code_of(*instructions: tuple[int, int]) -> list[Instruction]:
    return [Instruction(ADDRESS * at, *words) for at, words in enumerate(instructions)]


def load(board: int, predicate: int = UNCONDITIONAL) -> tuple[int, int]:
    return LOAD_MATRICES | predicate, board << 46


def wait(board: int) -> tuple[int, int]:
    return 0x810 | UNCONDITIONAL, NOTHING | 7 << 46 | 1 << 52 + board


def branch(words: int, predicate: int = UNCONDITIONAL) -> tuple[int, int]:
    return BRANCH | predicate | words * 4 << 16, ALWAYS << 23


ARRIVE = (BARRIER | UNCONDITIONAL, ARRIVAL << 16 | 7 << 46)
SET_P0 = (0x20C | UNCONDITIONAL, 7 << 20 | 7 << 46)


@pytest.mark.parametrize(
    ("code", "early"),
    [
        (code_of(load(1), ARRIVE), [1]),
        (code_of(load(1), wait(1), ARRIVE), []),
        (code_of(load(1), wait(2), ARRIVE), [2]),
        (code_of(load(1), load(2), wait(2), ARRIVE), []),  # answers come in order
        (code_of(load(1), load(2), wait(1), ARRIVE), [3]),
        (code_of(load(1), branch(1), wait(1), ARRIVE), [3]),
        (code_of(load(1), branch(1, 0 << 12), wait(1), ARRIVE), [3]),
        (code_of(load(1, 0 << 12), branch(1, 8 << 12), wait(1), ARRIVE), []),  # loaded where it does not jump
        (code_of(load(1, 0 << 12), SET_P0, branch(1, 8 << 12), wait(1), ARRIVE), [4]),
    ],
)
def test_arrivals_ahead_of_matrices_are_found(code: list[Instruction], early: list[int]) -> None:
    assert arrivals_before_their_loads(code) == [ADDRESS * at for at in early]


def test_problems_of_other_extents_share_a_source() -> None:
    small = ConvolutionProblem(4, 16, 64, 64, 8, 3, 3, padding=(1, 1, 1, 1))
    large = ConvolutionProblem(64, 200, 64, 512, 64, 3, 3, padding=(2, 0, 1, 1))
    chosen = next(chosen for chosen in configurations(small, tuned_gpu()) if not chosen.together)
    assert weight_gradient.source(small, chosen) == weight_gradient.source(large, replace(chosen, splits=7))


def test_a_configuration_of_another_problem_is_refused() -> None:
    problem = SHAPES["table.64x64x64k3"]
    chosen = configurations(problem, tuned_gpu())[0]
    weight_gradient.require(problem, chosen, SHARED)
    for wrong in (replace(chosen, stages=99), replace(chosen, units=3), replace(chosen, share=3)):
        with pytest.raises(WrongValue, match="configuration of another problem"):
            weight_gradient.require(problem, wrong, SHARED)
    with pytest.raises(WrongValue, match="configuration of another problem"):
        weight_gradient.require(replace(problem, c=12, groups=12), chosen, SHARED)
