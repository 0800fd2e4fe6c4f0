"""Folds and attention within conditions on the CuPy device, its kernels run on the host, against the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.expr import Affine, Bound, Table
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.space import Box
from tapestry.testing import assert_close
from tapestry.workers.cupy.limits import limits

from ...kernels.elementwise.host import needs_compiler
from ..unchecked import run_unchecked

N = 40
FORMS: dict[str, Callable[[Any, Any], Tensor]] = {
    "band": lambda q, k: (k <= q) & (q - k < 7),
    "band and sinks": lambda q, k: (k <= q) & ((q - k < 7) | (k < 3)),
    "all but the own": lambda q, k: k != q,
    "blocks": lambda q, k: tp.table([[True, False], [True, True]])[q // 20, k // 20],
    "up to lengths": lambda q, k: k < tp.table([3, 40, 0, 17, 5])[q // 8],
}


def given_to(program: Program) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return {t.name: rng.standard_normal(t.shape).astype(np.float32) for t in program.of_role("input")}


def agrees(program: Program, device: str) -> None:
    """The program run as one task an operation gives what the reference gives."""
    whole = {op.name: [Box.of_shape([dim.extent for dim in op.dims]).region()] for op in program.operations}
    document = plan_partitions(program, load_machine("h200x8"), whole).document
    inputs = given_to(program)
    found = run_unchecked(Resolved(document, program), inputs, device=device, poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))


@needs_compiler
@pytest.mark.parametrize("name", FORMS)
def test_folds_take_the_points_that_hold(on_host: str, name: str) -> None:
    @tp.op
    def chosen(x: f32[Tensor, "q"], w: f32[Tensor, "k e"]) -> f32[Tensor, "q e"]:
        """Threads of their own for each result, or shared ones where there are few."""
        q, k, e = tp.indices("q k e")
        return tp.max[k](x[q] * w[k, e], where=FORMS[name](q, k))

    @tp.op
    def counted(x: f32[Tensor, "q"]) -> f32[Tensor, "q"]:
        """A number for each of the points."""
        q, k = tp.indices("q", k=N)
        return tp.sum[k](x[q] + k, where=FORMS[name](q, k))

    @tp.program
    def net(x: f32[Tensor, "q"], w: f32[Tensor, "k e"]) -> tuple[Tensor, Tensor]:
        return chosen(x, w), counted(x)

    agrees(net.bind(q=N, k=N, e=2), on_host)


@needs_compiler
def test_attention_takes_the_keys_that_are_seen(on_host: str) -> None:
    @tp.program
    def net(
        q: f32[Tensor, "2 20 2 4"], k: f32[Tensor, "2 20 2 4"], v: f32[Tensor, "2 20 2 4"]
    ) -> tuple[Tensor, Tensor]:
        rows = tp.table([20, 9])
        ragged = tp.attention(q, k, v, causal=True, where=lambda b, t, s: (t < rows[b]) & (s < rows[b]))
        return ragged, tp.attention(q, k, v, where=lambda b, t, s: (s <= t) & ((t - s < 5) | (s < 2)))

    agrees(net.bind(), on_host)


def test_loops_end_where_conditions_do() -> None:
    q, k, j = map(Affine.dim, ("q", "k", "j"))
    length = Table(q, (3, 5, 2)).over(q)
    band = (Bound(q - k, 0, 7), Bound(k - length, None, 0))
    found = limits(band, "k", 40, (), str)
    assert (found.lows, found.highs) == (("q - 6",), ("q + 1", "[3, 5, 2][q]"))
    assert (found.first, found.end) == ("first_k", "end_k")
    assert not limits((Bound(2 * k - q, 0, 7), Bound(k - j, 0)), "k", 40, ("j",), str).told
