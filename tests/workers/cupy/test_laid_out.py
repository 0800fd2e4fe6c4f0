"""Windows that share no element are rows of a matrix, which is written out and multiplied, in parts that have room."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.dtypes import numpy_dtype
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.space import Box
from tapestry.testing import assert_close

from ...kernels.elementwise.host import needs_compiler
from ..unchecked import run_unchecked
from .host_machine import HostMachine
from .test_convolutions import cut

pytestmark = needs_compiler


@pytest.fixture(autouse=True)
def _small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library's product is worth it however little there is to compute."""
    monkeypatch.setattr(HostMachine, "worth", 1)
    monkeypatch.setattr("tapestry.workers.cupy.products.LEAST", 1)
    monkeypatch.setattr("tapestry.workers.cupy.convolutions.WORTH", 1)


@tp.op
def images(x: f32[Tensor, "n c y x"], w: f32[Tensor, "k c r s"]) -> f32[Tensor, "n k p q"]:
    n, k, p, q, c, r, s = tp.indices("n k p q c r s")
    return tp.sum[c, r, s](x[n, c, w.shape[2] * p + r, w.shape[3] * q + s] * w[k, c, r, s])


@tp.op
def last(x: f32[Tensor, "n y x c"], w: f32[Tensor, "r s c k"]) -> f32[Tensor, "n p q k"]:
    n, k, p, q, c, r, s = tp.indices("n k p q c r s")
    return tp.sum[c, r, s](x[n, w.shape[0] * p + r, w.shape[1] * q + s, c] * w[r, s, c, k])


@tp.op
def gaps(x: f32[Tensor, "n t c"], w: f32[Tensor, "r c k"]) -> f32[Tensor, "n k p"]:
    """Of every five places the first two are read, and those from 1 on."""
    n, p, k, r, c = tp.indices("n p k r c")
    return tp.sum[r, c](x[n, 5 * p + r + 1, c] * w[r, c, k])


def asked(program: Program, machine: HostMachine, axis: int, parts: int) -> list[str]:
    """The library's kernels, once the values are those of the reference. Every operation is cut along an axis."""
    machine.kernels.clear()
    rng = np.random.default_rng(0)
    tensors = [*program.of_role("input"), *program.of_role("param")]
    inputs = {x.name: (rng.random(x.shape) - 0.5).astype(numpy_dtype(x.dtype)) for x in tensors}
    shards = {op.name: cut(op, min(axis, len(op.dims) - 1), parts) for op in program.operations if op.dims}
    shards |= {op.name: [Box((), ()).region()] * parts for op in program.operations if not op.dims}
    document = plan_partitions(program, load_machine("h200x8"), shards).document
    found = run_unchecked(Resolved(document, program), inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    return [name for name in machine.kernels if name == "product" or name.startswith("convolution")]


def program_of(op: Callable[..., Tensor], x: tuple[int, ...], w: tuple[int, ...], *, slopes: str = "") -> Program:
    @tp.program
    def once(x: Tensor, w: Tensor) -> Tensor:
        return op(x, w)

    @tp.program
    def total(x: Tensor, w: Tensor) -> Tensor:
        y = op(x, w)
        return tp.sum(y * y)

    @tp.program
    def made() -> dict[str, Tensor]:
        given = tp.param("x", "f32", x), tp.param("w", "f32", w)
        return {"d": tp.grad(total, wrt=slopes)(*given)} if slopes else {"y": once(*given)}

    return made.bind()


SHAPES = [
    (images, (2, 3, 12, 8), (5, 3, 4, 4)),
    (images, (9, 3, 4, 8), (5, 3, 4, 4)),
    (last, (2, 12, 8, 3), (4, 4, 3, 5)),
    (gaps, (3, 23, 4), (2, 4, 6)),
]


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("op", "x", "w"), SHAPES)
def test_windows_apart_are_products(
    machine: HostMachine, op: Callable[..., Tensor], x: tuple[int, ...], w: tuple[int, ...], axis: int
) -> None:
    """However they are cut: axes of images, of channels, of windows."""
    kernels = asked(program_of(op, x, w), machine, axis, 2)
    assert kernels
    assert set(kernels) == {"product"}


@pytest.mark.parametrize(("op", "x", "w"), SHAPES)
def test_slopes(machine: HostMachine, op: Callable[..., Tensor], x: tuple[int, ...], w: tuple[int, ...]) -> None:
    """Those of filters fold all places of the result, which a library of convolutions is quick with where it likes the
    channels; those of an image are one product, written where they belong, if windows leave nothing out."""
    kernels = asked(program_of(op, x, w, slopes="w"), machine, 0, 1)
    assert kernels[-1] == ("product" if op is last else "convolution w")
    kernels = asked(program_of(op, x, w, slopes="x"), machine, 0, 1)
    assert kernels[1:] == ([] if op is gaps else ["product"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)
@given(st.integers(1, 5000), st.sampled_from(SHAPES), st.sampled_from(["", "x", "w"]))
def test_what_has_no_room_at_once_is_written_out_in_parts(
    machine: HostMachine, room: int, of: tuple[Callable[..., Tensor], tuple[int, ...], tuple[int, ...]], slopes: str
) -> None:
    """Where not one row has room others compute it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tapestry.workers.cupy.laid_out.ROOM", room)
        kernels = asked(program_of(*of, slopes=slopes), machine, 0, 1)
    assert slopes or len(set(kernels)) == 1


def test_gradients_of_filters_are_added_up(machine: HostMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts that have room: images, or rows of their places."""
    monkeypatch.setattr("tapestry.workers.cupy.laid_out.ROOM", 2400)
    _, x, w = SHAPES[2]
    kernels = asked(program_of(last, x, w, slopes="w"), machine, 0, 1)
    assert kernels == ["product"] * 3  # the result's, and of an image each


def test_windows_that_share_elements_stay_convolutions(machine: HostMachine) -> None:
    @tp.op
    def shared(x: f32[Tensor, "n y c"], w: f32[Tensor, "r c k"]) -> f32[Tensor, "n p k"]:
        n, p, k, r, c = tp.indices("n p k r c")
        return tp.sum[r, c](x[n, 2 * p + r, c] * w[r, c, k])

    assert asked(program_of(shared, (2, 13, 4), (3, 4, 6)), machine, 0, 1) == ["convolution y"]
