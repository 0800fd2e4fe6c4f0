"""The quick orders: every packing of theirs is one, each lower than those before."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings

from tapestry.planner.solvers.pack import Buffer, minimize_peak
from tapestry.planner.solvers.pack.bounds import pin_conflict
from tapestry.planner.solvers.pack.check import check_packing
from tapestry.planner.solvers.pack.greedy import greedy_packings
from tapestry.planner.solvers.pack.groups import grouped, share_greedily

from .problems import problems


@settings(max_examples=300, deadline=None)
@given(problems(most=8))
def test_each_is_a_packing_and_lower_than_those_before(buffers: list[Buffer]) -> None:
    if pin_conflict(buffers, None) is not None:
        return
    for pairs in ([], share_greedily(buffers)):
        groups = grouped(buffers, pairs)
        found = list(greedy_packings(buffers, groups)) if groups is not None else []
        for offsets, peak in found:
            named = {b.name: at for b, at in zip(buffers, offsets, strict=True)}
            assert check_packing(buffers, named, peak) == []
        assert all(later < earlier for (_, earlier), (_, later) in pairwise(found))


@pytest.mark.parametrize("seed", [36, 58, 59])
def test_steps_of_training_that_are_packed_to_the_last_unit_by_what_can_lie_lowest(seed: int) -> None:
    """Forward each layer leaves one activation and a scratch buffer; backward they die in reverse, beside gradients."""
    source, layers = random.Random(seed), 12
    buffers = []
    for k in range(layers):
        end = 4 * layers - 2 * k
        buffers.append(Buffer(f"kept{k}", 2 * k, end, source.randint(1, 9)))
        buffers.append(Buffer(f"scratch{k}", 2 * k, 2 * k + 2, source.randint(1, 9)))
        buffers.append(Buffer(f"gradient{k}", end - 3, end + 1, source.randint(1, 9)))
    packing = minimize_peak(buffers)
    assert packing.peak == packing.lower_bound
    assert check_packing(buffers, packing.offsets, packing.peak) == []
