"""Contributions from several hosts are folded within each host first, and what they make there between hosts."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f16, f32
from tapestry.dsl.program import ProgramFunction
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.check import check
from tapestry.planner.check.report import Code
from tapestry.planner.format import Document, LayoutText, Transfer
from tapestry.planner.machine import Link, Machine
from tapestry.program import Pin


@tp.program
def product(x: f32[Tensor, "n d"], w: f32[Tensor, "d k"]) -> Tensor:
    return tp.relu(tp.matmul(x, w))


@tp.program
def half(x: f16[Tensor, "n d"], w: f16[Tensor, "d k"]) -> Tensor:
    return tp.relu(tp.matmul(x, w))


def two_hosts() -> Machine:
    """The link between them is slow, starts cost next to nothing."""
    links = Link("wire", 100.0, 1e-9, "host"), Link("network", 1.0, 1e-9, "cluster")
    device = replace(load_machine("cpu-4").device, launch_overhead_s=1e-9)
    return Machine("two hosts", "", device, 2, 4, links)


def planned(program: ProgramFunction) -> Plan:
    """The summed dimension is cut over all ranks; the result is wanted whole on each."""
    bound = program.bind(n=64, d=64, k=64)
    summing, after = bound.operations
    apart = tuple((f"mesh{k}", *summing.reduce_dims) for k in range(2))
    pins = [Pin("op", summing.name, apart), Pin("op", after.name, (("mesh0", None), ("mesh1", None)))]
    return plan(bound, two_hosts(), mesh=(2, 4), pins=pins, pieces=False)


def folds(found: Plan) -> list[Transfer]:
    tasks = (task for task in found.document.tasks if isinstance(task, Transfer))
    return [task for task in tasks if found.document.layouts[task.have].parts is not None]


@pytest.mark.parametrize("program", [product, half], ids=["elements", "records"])
def test_a_sum_crosses_to_each_host_once(program: ProgramFunction) -> None:
    found = planned(program)
    first, second = folds(found)
    assert first.target == second.source
    assert set(found.document.layouts[first.need].parts or ()) == {0, 1}
    assert found.check().ok, str(found.check())
    rng = np.random.default_rng(0)
    inputs = {
        name: rng.integers(-3, 4, (64, 64)).astype(np.float32 if program is product else np.float16) for name in "xw"
    }
    (out,) = found.run(inputs, device="numpy").outputs.values()
    np.testing.assert_array_equal(out, np.maximum(inputs["x"].astype(np.float32) @ inputs["w"].astype(np.float32), 0))


def numbered(found: Plan, layout: str, parts: tuple[int, ...]) -> Document:
    """The plan where the parts of a layout are numbered otherwise."""
    document = found.document
    changed = LayoutText(document.layouts[layout].regions, parts)
    return msgspec.structs.replace(document, layouts={**document.layouts, layout: changed})


@pytest.mark.parametrize("parts", [(0, 0, 0, 1, 1, 1, 1, 1), (0, 0, 0, 0, 1, 1, 1, 2)])
def test_shares_that_leave_out_a_rank_do_not_make_up_the_sum(parts: tuple[int, ...]) -> None:
    """One rank folds with the other host, or alone."""
    found = planned(product)
    assert Code.PARTS in check(numbered(found, folds(found)[0].need, parts)).codes


def test_one_share_of_all_is_the_sum() -> None:
    """All fold together, each what it needs: that is another plan, right but for its figures."""
    found = planned(product)
    codes = check(numbered(found, folds(found)[0].need, (0,) * 8)).codes
    assert codes <= {Code.TRAFFIC, Code.KIND, Code.LINKS, Code.PREDICTED}


def test_a_larger_share_is_held_as_records() -> None:
    found = planned(half)
    (first, _) = folds(found)
    buffers = tuple(
        msgspec.structs.replace(buffer, record=None) if buffer.name == first.target else buffer
        for buffer in found.document.buffers
    )
    assert Code.RECORD in check(msgspec.structs.replace(found.document, buffers=buffers)).codes
