"""Two plans side by side: every figure is that of its plan, and what changed is named, once."""

from __future__ import annotations

from typing import Any

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.planner import Plan, plan
from tapestry.planner.diff import diff
from tapestry.program import Pin, Program


@tp.program
def net(x: f32[Tensor, "n d"], *, layers: int, last: bool = False) -> Tensor:
    h = x
    for k in range(layers):
        with tp.name(f"layers.{k}"):
            w = tp.param("w", "f32", (x.shape[1], x.shape[1]), axes=("d", "e"))
            h = tp.relu(tp.einsum("nd,de->ne", h, w, name="product"))
    return tp.exp(h) if last else h


def bound(**settings: Any) -> Program:
    return net.bind(**{"n": 4096, "d": 512, "layers": 3} | settings)


def cut(dim: str, layers: int = 3) -> tuple[Pin, ...]:
    """All products cut along a dimension."""
    return tuple(Pin("op", f"layers.{k}.product", (("mesh0", dim),)) for k in range(layers))


@pytest.fixture(scope="module")
def rows() -> Plan:
    return plan(bound(), "h200x8", pins=cut("n"))


@pytest.fixture(scope="module")
def folded() -> Plan:
    return plan(bound(), "h200x8", pins=cut("d"))


def test_figures_are_those_of_the_plans(rows: Plan, folded: Plan) -> None:
    found = diff(rows, folded)
    old, new = rows.document, folded.document
    times = {time.what: (time.before, time.after) for time in found.times}
    assert times["makespan"] == (old.predicted.makespan_s, new.predicted.makespan_s)
    sizes = {size.what.strip(): (size.before, size.after) for size in found.sizes}
    assert sizes["traffic"] == (old.traffic.bytes_total, new.traffic.bytes_total)
    for kind, moved in new.traffic.bytes_by_kind.items():
        assert sizes[kind.replace("_", "-")][1] == moved
    peaks = [max(tiers["hbm"] for tiers in document.peak_bytes.values()) for document in (old, new)]
    assert sizes["memory hbm, fullest rank"] == tuple(peaks)


def test_operations_of_equal_layers_are_one_row_with_what_they_cost(rows: Plan, folded: Plan) -> None:
    found = rows.diff(folded)
    products = [row for row in found.operations if row.ops[0].endswith("product")]
    assert sorted(name for row in products for name in row.ops) == [f"layers.{k}.product" for k in range(3)]
    assert len(products) < 3
    for row in products:
        assert (row.before.cut, row.after.cut) == ("cut n over mesh0", "cut d over mesh0")
        for name in row.ops:
            for side, made in ((row.before, rows), (row.after, folded)):
                (explained,) = made.explain(name).rows
                assert side.compute_s == explained.compute_s
                assert side.moves_bytes == sum(move.bytes_moved for move in explained.incoming)
    assert [abs(row.added_s) for row in found.operations] == sorted(
        (abs(row.added_s) for row in found.operations), reverse=True
    )


def test_it_reads_the_same_from_both_ends(rows: Plan, folded: Plan) -> None:
    there, back = rows.diff(folded), folded.diff(rows)
    assert [(t.before, t.after) for t in there.times] == [(t.after, t.before) for t in back.times]
    assert {(row.ops, row.before, row.after) for row in there.operations} == {
        (row.ops, row.after, row.before) for row in back.operations
    }
    assert {(row.tensors, row.before, row.after) for row in there.tensors} == {
        (row.tensors, row.after, row.before) for row in back.tensors
    }


def test_what_was_asked_otherwise(rows: Plan) -> None:
    program = bound(last=True, n=2048)
    other = plan(program, "h200x8", mesh=(2, 4), memory={"hbm": "1GiB"}, pins=cut("n"), seed=3)
    found = rows.diff(other)
    asked = {change.what: (change.before, change.after) for change in found.asked}
    assert asked["mesh"] == ([8], [2, 4])
    assert asked["seed"] == (0, 3)
    assert asked["machine device tiers hbm capacity_bytes"][1] == 2**30
    assert asked["shape x"] == ([4096, 512], [2048, 512])
    assert "pins" not in asked
    assert (found.only_before, found.only_after) == ((), ("exp",))


def test_other_names_of_axes_are_no_other_cut() -> None:
    one = plan(bound(layers=1), "h200x8", pins=cut("n", 1))
    two = plan(bound(layers=1), "h200x8", mesh={"rows": 8}, pins=[Pin("op", "layers.0.product", (("rows", "n"),))])
    found = one.diff(two)
    assert not found.operations
    assert not found.tensors
    assert "all operations are computed alike" in str(found)


def test_a_plan_and_itself(rows: Plan) -> None:
    found = rows.diff(rows)
    assert found.same
    assert str(found).endswith("the plans are the same")
