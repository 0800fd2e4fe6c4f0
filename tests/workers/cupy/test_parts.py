"""Long folds of few points: their parts side by side, and a second kernel that folds what was made of them."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.dsl.annotations import num
from tapestry.dtypes import numpy_dtype
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.space import Region
from tapestry.space.cuts import Zigzag
from tapestry.testing import assert_close
from tapestry.workers.cupy import parts
from tapestry.workers.cupy.arrays import DeviceArray, Memory
from tapestry.workers.cupy.jobs import Job
from tapestry.workers.cupy.parts import in_parts
from tapestry.workers.cupy.writing import written
from tapestry.workers.device import DType

from ...kernels.elementwise.host import needs_compiler
from ..shards import along
from ..unchecked import run_unchecked
from .test_choosing import cut
from .test_threads import collected, job_of, totals


@tp.op
def first_filters(d: f32[Tensor, "n k y x"], image: f32[Tensor, "n c y x"]) -> f32[Tensor, "k r s"]:
    """The gradient of a convolution's filters, of images of one channel."""
    n, k, p, q, r, s = tp.indices("n k", p=8, q=8, r=3, s=3)
    return tp.sum[n, p, q](d[n, k, p, q] * image.get[n, 0, r + p - 1, s + q - 1])


@tp.program
def gradient(d: f32[Tensor, "n=512 k=16 y=8 x=8"], image: f32[Tensor, "n=512 c=1 y=8 x=8"]) -> Tensor:
    return first_filters(d, image)


@tp.program
def biases(d: f32[Tensor, "n=512 k=16 y=64"]) -> Tensor:
    return tp.sum(d, ("n", "y"))


def memories(size: int, dtype: DType) -> DeviceArray:
    return DeviceArray(Memory(1 << 45, 1 << 30, None), 0, (size,), dtype)


def jobs(program: Program) -> tuple[Job, ...]:
    return in_parts(job_of(program), memories)


def test_144_points_of_32768_products_each_are_73728_threads_and_a_second_kernel() -> None:
    first, second = jobs(gradient.bind())
    unit = written(first).unit
    assert unit.blocks * unit.threads == 512 * 144
    assert [fold.points for fold in first.folds] == [64]
    assert [fold.points for fold in second.folds] == [512]
    assert second.stores == job_of(gradient.bind()).stores


def test_where_what_is_folded_lies_together_half_a_block_has_a_part() -> None:
    first, second = jobs(biases.bind())
    assert first.points == second.points * second.folds[0].points == 512
    unit = written(first).unit
    assert unit.blocks * unit.threads == 512 * 128


@pytest.mark.parametrize("program", [totals, collected])
def test_short_folds_and_places_that_the_data_say_stay_one_kernel(program: object) -> None:
    job = job_of(program.bind())  # type: ignore[attr-defined]
    assert in_parts(job, memories) == (job,)


@tp.op
def summed(x: num[Tensor, "n y c"]) -> num[Tensor, "c"]:
    n, y, c = tp.indices("n y c")
    return tp.sum[n, y](x[n, y, c])


@tp.op
def windowed(x: num[Tensor, "n y c"]) -> num[Tensor, "c r"]:
    """What windows of five rows have in common with the image: nothing at all beyond its end."""
    n, y, c, r = tp.indices("n y c", r=5)
    return tp.sum[n, y](x[n, y, c] * x.get[n, y + r, c])


@tp.op
def highest(x: num[Tensor, "n y c"]) -> num[Tensor, "c"]:
    n, y, c = tp.indices("n y c")
    return tp.max[n, y](x[n, y, c])


@tp.op
def softest(x: num[Tensor, "n y c"]) -> num[Tensor, "c"]:
    n, y, c = tp.indices("n y c")
    return tp.logsumexp[n, y](x[n, y, c])


@tp.op
def triangle(x: num[Tensor, "n y c"]) -> num[Tensor, "c"]:
    """Only some points of the fold."""
    n, y, c = tp.indices("n y c")
    return tp.sum[n, y](tp.where(n <= y, x[n, y, c], 0))


@needs_compiler
@pytest.mark.parametrize(
    ("op", "dtype", "most"),
    [
        (summed, "f32", 4),
        (summed, "bf16", 26),
        (summed, "int32", 1000),
        (summed, "f64", 7),
        (windowed, "f32", 13),
        (windowed, "bf16", 200),
        (highest, "f32", 9),
        (highest, "int32", 64),
        (softest, "f32", 64),
        (triangle, "f32", 30),
    ],
)
def test_parts_fold_to_what_the_whole_does(
    on_host: str, monkeypatch: pytest.MonkeyPatch, op: object, dtype: str, most: int
) -> None:
    """However many parts there are, and whether or not an extent is a multiple of theirs."""
    program = of_one(op, dtype)
    made = made_of(program, cut(program.operations[0], 2), most, on_host, monkeypatch)
    assert [len(some) for some in made] == [2, 2]
    assert all(1 < second.folds[0].points <= most for _, second in made)


@needs_compiler
@pytest.mark.parametrize(("op", "dtype"), [(summed, "f32"), (summed, "bf16"), (windowed, "f32"), (highest, "int32")])
@pytest.mark.parametrize("most", [7, 64])
def test_what_lies_in_several_stretches_has_parts_of_each(
    on_host: str, monkeypatch: pytest.MonkeyPatch, op: object, dtype: str, most: int
) -> None:
    """As the tokens of a rank that has an early chunk and a late one."""
    program = of_one(op, dtype)
    made = made_of(program, along(program.operations[0], "n", Zigzag(2)), most, on_host, monkeypatch)
    assert [len(some) for some in made] == [3, 2]
    assert all(some[-1].folds[0].points <= most for some in made)


def made_of(
    program: Program, shards: list[Region], most: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[Job, ...]]:
    """What an operation's jobs become where every fold is long and has so many parts at most; values are compared."""
    monkeypatch.setattr(parts, "LONG", 1)
    monkeypatch.setattr(parts, "MOST", most)
    made: list[tuple[Job, ...]] = []

    def noted(job: Job, take: object) -> tuple[Job, ...]:
        made.append(in_parts(job, take))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr("tapestry.workers.cupy.device.in_parts", noted)
    rng = np.random.default_rng(0)
    inputs = {x.name: (rng.random(x.shape) * 9 - 4).astype(numpy_dtype(x.dtype)) for x in program.of_role("param")}
    [operation] = program.operations
    document = plan_partitions(program, load_machine("h200x8"), {operation.name: shards}).document
    found = run_unchecked(Resolved(document, program), inputs, device=device, poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    return made


def of_one(op: object, dtype: str) -> Program:
    """An operation on 13 x 37 x 3 elements of a dtype."""

    @tp.program
    def whole() -> Tensor:
        return op(tp.param("x", dtype, (13, 37, 3)))  # type: ignore[operator]

    return whole.bind()
