"""Windows that overlap: neighbouring points of one thread, which reads what they share once."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor
from tapestry.dsl.annotations import num
from tapestry.dtypes import numpy_dtype
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.testing import assert_close
from tapestry.workers.cupy import windows
from tapestry.workers.cupy.jobs import Job
from tapestry.workers.cupy.writing import written

from ...kernels.elementwise.host import needs_compiler
from ..unchecked import run_unchecked
from .test_choosing import cut

pytestmark = needs_compiler


@tp.op
def depthwise(x: num[Tensor, "n y x c"], w: num[Tensor, "r s c"]) -> num[Tensor, "n p q c"]:
    """Every channel with a window of its own, zeros around."""
    n, c, r, s, p, q = tp.indices("n c r s", p=x.shape[1], q=x.shape[2])
    return tp.sum[r, s](x.get[n, p + r - 1, q + s - 1, c] * w[r, s, c])


@tp.op
def framed(x: num[Tensor, "n y x c"], w: num[Tensor, "r s c"]) -> num[Tensor, "n p q c"]:
    """The same with twos around."""
    n, c, r, s, p, q = tp.indices("n c r s", p=x.shape[1], q=x.shape[2])
    return tp.sum[r, s](x.get(n, p + r - 1, q + s - 1, c, fill=2) * w[r, s, c])


@tp.op
def largest(x: num[Tensor, "n y x c"], w: num[Tensor, "r s c"]) -> num[Tensor, "n p q c"]:
    """The largest of windows of three columns, every second column."""
    n, c, p, s, q = tp.indices("n c p", s=3, q=(x.shape[2] - 1) // 2)
    return tp.max[s](x[n, p, 2 * q + s, c] * w[0, 0, c])


@pytest.mark.parametrize(
    ("op", "dtype", "columns"),
    [
        (depthwise, "f32", 16),
        (depthwise, "bf16", 13),
        (depthwise, "int32", 7),
        (framed, "f32", 16),
        (framed, "int32", 13),
        (largest, "f64", 13),
        (largest, "int32", 16),
        (largest, "f32", 37),
    ],
)
def test_neighbours_share_their_reads(
    on_host: str, monkeypatch: pytest.MonkeyPatch, op: object, dtype: str, columns: int
) -> None:
    """Any number of columns: eight are one thread's, or fewer; those left over have a kernel of their own."""
    for job, parts in carried_out(on_host, monkeypatch, op, dtype, columns):
        assert parts != [job]
        assert sum(part.points * len(part.stores) for part in parts) == job.points


@pytest.mark.parametrize("op", [depthwise, framed])
def test_windows_are_asked_for_before_they_are_computed_with(
    on_host: str, monkeypatch: pytest.MonkeyPatch, op: object
) -> None:
    """Whichever rows may lie outside, on whichever rank: one condition, under which all is read."""
    for _, parts in carried_out(on_host, monkeypatch, op, "f32", 16):
        for part in parts:
            lines = written(part).unit.source.splitlines()
            asked = [k for k, line in enumerate(lines) if "widen(p" in line]
            assert len(asked) == 3 + 10  # weights of a row, columns of eight windows of three
            assert asked[-1] < next(k for k, line in enumerate(lines) if "multiply(" in line)


def of_params(op: object, dtype: str, x: tuple[int, ...], w: tuple[int, ...]) -> Program:
    """An operation of an image and filters."""

    @tp.program
    def windowed() -> Tensor:
        return op(tp.param("x", dtype, x), tp.param("w", dtype, w))  # type: ignore[operator]

    return windowed.bind()


def carried_out(
    on_host: str, monkeypatch: pytest.MonkeyPatch, op: object, dtype: str, columns: int
) -> list[tuple[Job, list[Job]]]:
    """Jobs of an operation on two ranks and what became of them, its results being what they should be."""
    monkeypatch.setattr(windows, "BUSY", 1)
    monkeypatch.setattr(windows, "sharing", lambda job: 1)
    made: list[tuple[Job, list[Job]]] = []
    beside = windows.beside

    def noted(job: Job) -> list[Job]:
        made.append((job, beside(job)))
        return made[-1][1]

    monkeypatch.setattr("tapestry.workers.cupy.device.beside", noted)
    program = of_params(op, dtype, (2, 3, columns, 5), (3, 3, 5))
    rng = np.random.default_rng(0)
    inputs = {x.name: (rng.random(x.shape) * 9 - 4).astype(numpy_dtype(x.dtype)) for x in program.of_role("param")}
    [operation] = program.operations
    document = plan_partitions(program, load_machine("h200x8"), {operation.name: cut(operation, 2)}).document
    found = run_unchecked(Resolved(document, program), inputs, device=on_host, poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    assert made
    return made
