"""Strategies of all ranks at once: what each rank reads, writes and takes is what its shard alone does."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry.planner import load_machine
from tapestry.planner.strategy.columns import column, columns, different
from tapestry.planner.strategy.cost import compute_seconds, touched
from tapestry.planner.strategy.layouts import Layout, Layouts
from tapestry.planner.strategy.mesh import Mesh
from tapestry.planner.strategy.strategies import StrategyTable
from tapestry.planner.strategy.work import Works
from tapestry.program import Program
from tapestry.space import Box, IntSet, Region
from tapestry.testing import programs

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))

import convnet  # type: ignore[import-not-found]
import llama  # type: ignore[import-not-found]

MACHINE = load_machine("h200x8-2node")
SMALL = {"layers": 1, "tokens": 24, "d": 16, "heads": 4, "kv_heads": 2, "ffn": 20}
MESHES = [(3,), (2, 2), (2, 3), (2, 2, 2), (4, 4)]
KNOWN: list[Program] = [llama.forward.bind(**SMALL), llama.train_step.bind(**SMALL), convnet.forward.bind()]


@settings(max_examples=25)
@given(st.one_of(st.sampled_from(KNOWN), programs()), st.sampled_from(MESHES), st.data())
def test_a_strategy_is_what_its_shards_are(program: Program, shape: tuple[int, ...], data: st.DataObject) -> None:
    mesh = Mesh.of(shape, 16)
    table = StrategyTable(program, mesh, Works(MACHINE, mesh.size), Layouts(mesh))
    for op in program.operations[:12]:
        strategy = table.strategy(op, data.draw(st.sampled_from(table.candidates(op))))
        alone = [
            touched(op, program, shard, partial=strategy.writes.parts is not None) for shard in strategy.shards
        ]  # fmt: skip
        seconds = [compute_seconds(op, program, MACHINE, shard, mesh.size) if shard.points else 0.0 for shard in alone]
        assert list(strategy.points) == [shard.points for shard in alone]
        assert list(strategy.seconds) == seconds
        for name, need in zip(op.operands, strategy.needs, strict=True):
            _same(need, [table._whole_records(name, shard.reads[name].region) for shard in alone])
        _same(strategy.writes, [shard.written for shard in alone])
        assert strategy.exact == all(image.exact for shard in alone for image in shard.reads.values())


def test_equal_axes_are_one_object_whatever_came_between() -> None:
    """Layouts are told apart by it: more axes than any cache holds make no second one."""
    regions, sets, codes = [Box((0,), (3,)).region()] * 2, [IntSet.of(range(3))], np.zeros(2, dtype=np.int64)
    found = columns((3,), regions)
    assert found is not None
    for n in range(10_000):
        column([IntSet.of(range(n, n + 4))], codes)
    assert column(sets, codes) is found[0]
    assert columns((3,), regions) == found


def _same(layout: Layout, regions: list[Region]) -> None:
    """Regions, and what is told of them by columns."""
    assert list(layout.regions) == regions
    assert layout.sizes.tolist() == [region.size for region in layout.regions]
    assert layout.storage_size == max((g.size for g in layout.storage.values() if g is not None), default=0)
    if layout.by_axes is not None:
        found, which = different(layout.by_axes)
        assert [found[k] for k in which.tolist()] == regions
        assert Layouts(Mesh((len(regions),), ("mesh0",))).of(layout.shape, layout.regions).by_axes == layout.by_axes
