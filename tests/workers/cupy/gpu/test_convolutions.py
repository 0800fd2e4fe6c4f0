"""Convolutions by cuDNN on a GPU, against the reference: both gradients, every padding, layouts, dtypes, shards."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor
from tapestry.dsl.annotations import num
from tapestry.dtypes import numpy_dtype
from tapestry.program import Program
from tapestry.workers.cupy.cuda import CudaMachine

from .executed import cut, executed, needs_gpu, whole

pytestmark = needs_gpu

SETTINGS: list[dict[str, Any]] = [
    {},
    {"padding": 1},
    {"stride": 2, "padding": 1},
    {"stride": (1, 2), "padding": (2, 0)},
    {"dilation": 2, "padding": 2},
    {"padding": ((1, 0), (0, 2))},
    {"padding": ((0, 1), (2, 1)), "stride": 2},
]
LAYOUTS = {"first": (0, 1, 2, 3), "mixed": (0, 3, 1, 2)}


@tp.op
def channels_last(x: num[Tensor, "n y x c"], w: num[Tensor, "r s c k"]) -> num[Tensor, "n p q k"]:
    """Images, filters and results with their channels last, zeros around."""
    n, k, r, s, c, p, q = tp.indices("n k r s c", p=x.shape[1], q=x.shape[2])
    return tp.sum[r, s, c](x.get[n, p + r - 1, q + s - 1, c] * w[r, s, c, k])


@tp.op
def depthwise(x: num[Tensor, "n y x c"], w: num[Tensor, "r s c"]) -> num[Tensor, "n p q c"]:
    """Every channel with a window of its own, zeros around."""
    n, c, r, s, p, q = tp.indices("n c r s", p=x.shape[1], q=x.shape[2])
    return tp.sum[r, s](x.get[n, p + r - 1, q + s - 1, c] * w[r, s, c])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether cuDNN took each convolution that it was asked for."""
    found: list[bool] = []
    call = CudaMachine.convolution

    def convolution(self: CudaMachine, *arguments: Any) -> Any:
        run = call(self, *arguments)
        found.append(run is not None)
        return run

    monkeypatch.setattr(CudaMachine, "convolution", convolution)
    monkeypatch.setattr("tapestry.workers.cupy.convolutions.WORTH", 1)
    return found


def differentiated(
    call: Callable[[Tensor, Tensor], Tensor], dtype: str, x: tuple[int, ...], w: tuple[int, ...]
) -> Program:
    """A convolution, and the gradients of image and filters for some gradient of the result."""

    @tp.program
    def convolved(x: Tensor, w: Tensor, dy: Tensor) -> Tensor:
        return tp.sum(call(x, w) * dy)

    @tp.program
    def step() -> dict[str, Tensor]:
        image, filters = tp.param("x", dtype, x), tp.param("w", dtype, w)
        y = call(image, filters)
        found = tp.grad(convolved, wrt=("x", "w"))(image, filters, tp.param("dy", dtype, y.shape))
        return {"y": y, "dx": found["x"], "dw": found["w"]}

    return step.bind()


def images(layout: str, dtype: str, settings: dict[str, Any], taps: int = 3) -> Program:
    """Of images with their channels first or last, results with their channels first."""
    axes, shape = LAYOUTS[layout], (4, 16, 13, 12)
    back, w = tuple(shape[axes.index(k)] for k in range(4)), (24, 16, taps, taps)
    return differentiated(lambda x, w: tp.conv2d(tp.transpose(x, axes), w, **settings), dtype, back, w)


def executed_along(program: Program, axis: int, parts: int) -> None:
    """Every operation is cut along an axis of its space."""
    rng = np.random.default_rng(0)
    inputs = {x.name: (rng.random(x.shape) - 0.5).astype(numpy_dtype(x.dtype)) for x in program.of_role("param")}
    shards = whole(program, parts)
    for op in program.operations:
        if op.dims:
            shards[op.name] = cut(op, op.dims[min(axis, len(op.dims) - 1)].name, parts)
    executed(program, shards, inputs)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_convolutions_and_their_gradients(asked: list[bool], settings: dict[str, Any], layout: str, dtype: str) -> None:
    executed_along(images(layout, dtype, settings), 0, 1)
    assert asked
    assert dtype == "f64" or all(asked)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_windows_of_five(asked: list[bool], dtype: str) -> None:
    """Of which some algorithms of the library lose half of the digits."""
    executed_along(images("first", dtype, {"padding": 2}, taps=5), 0, 1)
    assert all(asked)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_channels_last(asked: list[bool], dtype: str) -> None:
    executed_along(differentiated(channels_last, dtype, (4, 13, 12, 16), (3, 3, 16, 24)), 0, 1)
    assert asked
    assert all(asked)


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("which", [0, 1, -1])
@pytest.mark.parametrize("channels", [3, 24])
@pytest.mark.parametrize("last", [True, False])
def test_every_order_of_elements(
    asked: list[bool], monkeypatch: pytest.MonkeyPatch, which: int, channels: int, last: bool, dtype: str
) -> None:
    """As they lie, the other order, and where there are few channels more of them: whichever is the quickest."""
    tried: list[int] = []

    def least(times: list[float]) -> int:
        tried.append(len(times))
        had = [k for k, took in enumerate(times) if took < float("inf")]
        return had[min(which, len(had) - 1)]

    monkeypatch.setattr("tapestry.workers.cupy.orders.LARGE", 1)
    monkeypatch.setattr("tapestry.workers.cupy.orders.least", least)
    call = channels_last if last else partial(tp.conv2d, padding=1)
    x, w = ((2, 18, 17, channels), (3, 3, channels, 16)) if last else ((2, channels, 18, 17), (16, channels, 3, 3))
    executed_along(differentiated(call, dtype, x, w), 0, 1)
    assert asked
    assert all(asked)
    assert set(tried) <= {2, 4}
    assert (4 in tried) == (channels == 3 and dtype != "f32")


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("axis", [0, 1, 3])
def test_depthwise(asked: list[bool], dtype: str, axis: int) -> None:
    """By the kernels of this project where they have the type."""
    executed_along(differentiated(depthwise, dtype, (4, 13, 12, 64), (3, 3, 64)), axis, 2)
    assert asked
    assert any(asked) == (dtype != "f32")


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_groups(asked: list[bool], dtype: str) -> None:
    def grouped(x: Tensor, w: Tensor) -> Tensor:
        return tp.transpose(tp.conv2d(tp.transpose(x, (0, 3, 1, 2)), w, groups=4, padding=1), (0, 2, 3, 1))

    executed_along(differentiated(grouped, dtype, (4, 13, 12, 64), (64, 16, 3, 3)), 0, 1)
    assert asked


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(asked: list[bool], rank: int) -> None:
    call = partial(tp.conv1d if rank == 1 else tp.conv3d, padding=1)
    executed_along(differentiated(call, "f32", (2, 8, 6, 7, 9)[: 2 + rank], (16, 8, *[3] * rank)), 0, 1)
    assert asked


@pytest.mark.parametrize("axis", [0, 1, 2, 3, 4])
def test_shards(asked: list[bool], axis: int) -> None:
    executed_along(images("first", "f32", {"padding": 1}), axis, 3)
    assert any(asked)


@tp.op
def side_by_side(x: num[Tensor, "n y x c"], w: num[Tensor, "r s c k"]) -> num[Tensor, "n p q k"]:
    """Windows that share no element."""
    n, k, r, s, c, p, q = tp.indices("n k r s c p q")
    return tp.sum[r, s, c](x[n, w.shape[0] * p + r, w.shape[1] * q + s, c] * w[r, s, c, k])


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("channels", [3, 16])
def test_windows_that_share_no_element(asked: list[bool], dtype: str, channels: int) -> None:
    """And their gradients: the library of convolutions has no part in them but that of filters, of many channels."""

    @tp.program
    def total(x: Tensor, w: Tensor) -> Tensor:
        y = side_by_side(x, w).astype("f32")
        return tp.sum(y * y)

    @tp.program
    def step() -> dict[str, Tensor]:
        x, w = tp.param("x", dtype, (6, 64, 64, channels)), tp.param("w", dtype, (4, 4, channels, 24))
        return {"y": side_by_side(x, w)} | {f"d{name}": d for name, d in tp.grad(total, wrt=("x", "w"))(x, w).items()}

    executed_along(step.bind(), 0, 1)
    assert len(asked) <= channels // 16
