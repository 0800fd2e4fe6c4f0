"""Convolutions and both their gradients are a library's, whatever order their axes lie in and however they are cut.

The library is NumPy here, asked as cuDNN is: filters dense, padding even.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.dsl.annotations import num
from tapestry.dtypes import numpy_dtype
from tapestry.planner import load_machine
from tapestry.planner.format import Resolved
from tapestry.planner.search.explicit import plan_partitions
from tapestry.program import Operation, Program
from tapestry.reference import evaluate
from tapestry.space import Box, Region
from tapestry.space.cuts import Block
from tapestry.testing import assert_close
from tapestry.workers.cupy.arrays import DeviceArray, Memory
from tapestry.workers.cupy.cudnn import Rated, by_least_time, exact_enough
from tapestry.workers.cupy.dense import CHANNELS_FIRST, dense_steps
from tapestry.workers.cupy.machine import Convolution, Strided, Window

from ...kernels.elementwise.host import needs_compiler
from ..shards import along
from ..unchecked import run_unchecked
from .host_machine import HostMachine

pytestmark = needs_compiler
EXAMPLES = int(os.environ.get("TAPESTRY_CUPY", 0)) or 4


@pytest.fixture(autouse=True)
def _small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions go to the library however little they compute."""
    monkeypatch.setattr("tapestry.workers.cupy.convolutions.WORTH", 1)


def cut(op: Operation, axis: int, parts: int) -> list[Region]:
    """An operation's points cut along one of its dimensions."""
    return along(op, axis, Block(parts))


def run(program: Program, machine: HostMachine, axis: int = 0, parts: int = 1) -> list[str]:
    """The convolutions asked for, once the values are those of the reference. Every operation is cut along an axis."""
    rng = np.random.default_rng(0)
    tensors = [*program.of_role("input"), *program.of_role("param")]
    inputs = {x.name: (rng.random(x.shape) - 0.5).astype(numpy_dtype(x.dtype)) for x in tensors}
    shards = {op.name: cut(op, min(axis, len(op.dims) - 1), parts) for op in program.operations if op.dims}
    shards |= {op.name: [Box((), ()).region()] * parts for op in program.operations if not op.dims}
    document = plan_partitions(program, load_machine("h200x8"), shards).document
    found = run_unchecked(Resolved(document, program), inputs, device="on_host", poison=True)
    assert_close(program, inputs, found.outputs, evaluate(program, inputs))
    return [name for name in machine.kernels if name.startswith("convolution")]


def differentiated(**given: object) -> Program:
    """A convolution [n, c, y, x] and the gradients of image and filters."""

    @tp.program
    def convolved(x: f32[Tensor, "n=2 c=4 y=9 x=10"], w: f32[Tensor, "k=6 c=4 r=3 s=3"]) -> Tensor:
        y = tp.conv2d(x, w, **given)
        return tp.sum(y * y)

    @tp.program
    def step(x: f32[Tensor, "n=2 c=4 y=9 x=10"], w: f32[Tensor, "k=6 c=4 r=3 s=3"]) -> dict[str, Tensor]:
        value, found = tp.value_and_grad(convolved, wrt=("x", "w"))(x, w)
        return {"value": value, "dx": found["x"], "dw": found["w"]}

    return step.bind()


SETTINGS = [
    {},
    {"padding": 1},
    {"stride": 2},
    {"stride": 2, "padding": 1},
    {"stride": (1, 2), "padding": (2, 0)},
    {"stride": 2, "padding": 2},
    {"dilation": 2, "padding": 2},
    {"padding": ((1, 0), (0, 2))},
    {"padding": ((0, 1), (2, 1)), "stride": 2},
]


@pytest.mark.parametrize("given", SETTINGS, ids=str)
def test_forward_and_both_gradients(machine: HostMachine, given: dict[str, object]) -> None:
    assert sorted(run(differentiated(**given), machine)) == ["convolution w", "convolution x", "convolution y"]


@pytest.mark.parametrize("axis", [0, 1, 2, 3, 4, 5, 6])
def test_shards_with_their_halos(machine: HostMachine, axis: int) -> None:
    """The first shard of rows has zeros before it, the last behind it, those between have neighbours' rows."""
    program = differentiated(padding=1)
    assert run(program, machine, axis, 3)


@tp.op
def last(x: num[Tensor, "n y x c"], w: num[Tensor, "r s c k"]) -> num[Tensor, "n p q k"]:
    """Channels last, filters [r, s, c, k]: windows of 3 rows and 2 columns, every second row."""
    n, p, q, k, r, s, c = tp.indices("n p q k r s c")
    return tp.sum[r, s, c](x[n, 2 * p + r, q + s, c] * w[r, s, c, k])


def of_params(call: Callable[..., Tensor], dtype: str, x: tuple[int, ...], w: tuple[int, ...]) -> Program:
    """An operation of an image and filters of some shapes."""

    @tp.program
    def convolved() -> Tensor:
        return call(tp.param("x", dtype, x), tp.param("w", dtype, w))

    return convolved.bind()


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_channels_last(machine: HostMachine, dtype: str, axis: int) -> None:
    program = of_params(last, dtype, (2, 9, 7, 3), (3, 2, 3, 5))
    assert set(run(program, machine, axis, 2)) == {"convolution y"}


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(machine: HostMachine, rank: int) -> None:
    """Volumes have windows along three directions; of lines the other one is left out."""
    call = partial(tp.conv1d if rank == 1 else tp.conv3d, padding=1)
    program = of_params(call, "f32", (2, 3, 5, 4, 6)[: 2 + rank], (4, 3, *[3] * rank))
    assert run(program, machine) == ["convolution y"]


def test_filters_of_one_tap_with_steps(machine: HostMachine) -> None:
    """What steps over rows and columns is no matrix product."""

    @tp.program
    def convolved(x: f32[Tensor, "n=9 c=3 y=18 x=8"], w: f32[Tensor, "k=5 c=3 r=1 s=1"]) -> Tensor:
        return tp.sum(tp.conv2d(x, w, stride=2) ** 2)

    @tp.program
    def step(x: f32[Tensor, "n=9 c=3 y=18 x=8"], w: f32[Tensor, "k=5 c=3 r=1 s=1"]) -> dict[str, Tensor]:
        value, found = tp.value_and_grad(convolved, wrt="w")(x, w)
        return {"value": value, "dw": found}

    assert run(step.bind(), machine) == ["convolution y", "convolution w"]


def test_a_direction_without_taps_is_one_of_its_own(machine: HostMachine) -> None:
    """Filters of one column: what lies in columns is neither batch nor channel."""

    @tp.program
    def convolved(x: f32[Tensor, "n=2 c=3 y=8 x=6"], w: f32[Tensor, "k=4 c=3 r=3 s=1"]) -> Tensor:
        return tp.conv2d(x, w, padding=(1, 0))

    assert run(convolved.bind(), machine) == ["convolution y"]


@pytest.mark.parametrize("given", [{"stride": 2}, {"padding": ((1, 0), (0, 2))}], ids=str)
def test_by_way_of_dense_arrays(machine: HostMachine, given: dict[str, object]) -> None:
    """Where a library takes no steps between elements, they are copied together, and results apart."""
    machine.packed = True
    assert len(run(differentiated(**given), machine, 1, 2)) == 6


@pytest.mark.parametrize("axis", [0, 2])
@pytest.mark.parametrize("groups", [2, 4])
def test_groups_within_channels(machine: HostMachine, groups: int, axis: int) -> None:
    """The convolution and both its gradients; of the last, sums that leave out all other groups."""

    @tp.program
    def convolved(x: f32[Tensor, "n=2 c=4 y=6 x=5"], w: f32[Tensor, "k=8 j r=3 s=3"]) -> Tensor:
        y = tp.conv2d(x, w, groups=groups, padding=1)
        return tp.sum(y * y)

    @tp.program
    def step() -> dict[str, Tensor]:
        x, w = tp.param("x", "f32", (2, 4, 6, 5)), tp.param("w", "f32", (8, 4 // groups, 3, 3))
        value, found = tp.value_and_grad(convolved, wrt=("x", "w"))(x, w)
        return {"value": value, "dx": found["x"], "dw": found["w"]}

    kernels = run(step.bind(), machine, axis, 2)
    assert set(kernels) == {"convolution y", "convolution x", "convolution w"}


@pytest.mark.parametrize("groups", [1, 4])
def test_what_follows_leaves_it_to_the_library(machine: HostMachine, groups: int) -> None:
    """A map of the result, of all channels at a point, is not computed together with the windows."""

    @tp.program
    def convolved(x: f32[Tensor, "n=2 c=4 y=8 x=8"], w: f32[Tensor, "k=8 j r=3 s=3"], b: f32[Tensor, "k=8"]) -> Tensor:
        return tp.relu(tp.conv2d(x, w, groups=groups) + b[:, None, None])

    program = convolved.bind(j=4 // groups)
    assert run(program, machine) == ["convolution y"]


def test_groups_as_a_dimension(machine: HostMachine) -> None:
    """Depthwise: image, filters and result have the channels alike."""

    @tp.op
    def depthwise(x: num[Tensor, "n y x c"], w: num[Tensor, "r s c"]) -> num[Tensor, "n p q c"]:
        n, p, q, c, r, s = tp.indices("n p q c r s")
        return tp.sum[r, s](x[n, p + r, q + s, c] * w[r, s, c])

    assert run(of_params(depthwise, "f32", (2, 7, 6, 5), (3, 3, 5)), machine) == ["convolution y"]


def test_any_convolution_however_cut(machine: HostMachine) -> None:
    """Forward and both gradients of images of any extents, steps, gaps, padding and groups, in shards."""

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(st.data())
    def execute(data: st.DataObject) -> None:
        def drawn(low: int, high: int) -> int:
            return data.draw(st.integers(low, high))

        groups, extents, taps = drawn(1, 2), (drawn(5, 9), drawn(5, 9)), (drawn(1, 3), drawn(1, 3))
        call = partial(
            tp.conv2d,
            stride=(drawn(1, 3), drawn(1, 3)),
            dilation=(drawn(1, 2), drawn(1, 2)),
            padding=((drawn(0, 2), drawn(0, 2)), (drawn(0, 2), drawn(0, 2))),
            groups=groups,
        )
        program = with_gradients(call, (drawn(1, 3), 2 * groups, *extents), (2 * groups, 2, *taps))
        run(program, machine, drawn(0, 5), drawn(1, 3))

    (execute if "TAPESTRY_FUZZ" in os.environ else seed(0)(execute))()


def with_gradients(call: Callable[..., Tensor], x: tuple[int, ...], w: tuple[int, ...]) -> Program:
    """A convolution, and the gradients of image and filters for some gradient of the result."""

    @tp.program
    def weighted(x: Tensor, w: Tensor, dy: Tensor) -> Tensor:
        return tp.sum(call(x, w) * dy)

    @tp.program
    def step() -> dict[str, Tensor]:
        image, filters = tp.param("x", "f32", x), tp.param("w", "f32", w)
        y = call(image, filters)
        found = tp.grad(weighted, wrt=("x", "w"))(image, filters, tp.param("dy", "f32", y.shape))
        return {"y": y, "dx": found["x"], "dw": found["w"]}

    return step.bind()


def test_what_windows_do_not_leave_out_alone_has_a_kernel_of_its_own(machine: HostMachine) -> None:
    """Every second element is left out, which no padding says."""

    @tp.op
    def holed(x: f32[Tensor, "c y"], w: f32[Tensor, "k c r"]) -> f32[Tensor, "k p"]:
        k, c, r, p = tp.indices("k c r", p=8)
        inside = tp.where((p + r) % 2 == 0, x[c, p + r], 0.0)
        return tp.sum[c, r](inside * w[k, c, r])

    @tp.program
    def convolved(x: f32[Tensor, "c=3 y=10"], w: f32[Tensor, "k=4 c=3 r=3"]) -> Tensor:
        return holed(x, w)

    assert run(convolved.bind(), machine) == []


# -- which algorithms of the library ----------------------------------------------------------------------------------

WINOGRAD, FOURIER, DIRECT = 7, 4, 1


def convolution(channels: int, taps: int, dtype: str = "f32") -> Convolution:
    """Of one image of 32 x 32, into 8 channels."""
    array = DeviceArray(Memory(0, 0, None), 0, (0,), numpy_dtype(dtype))
    extents = ((1, channels, 32, 32), (8, channels, taps, taps), (1, 8, 32, 32))
    x, w, y = (Strided(array, 0, found, tuple(dense_steps(found, CHANNELS_FIRST))) for found in extents)
    return Convolution(x, w, y, (Window(1, 1, taps // 2, taps // 2),) * 2, 1, "y")


@pytest.mark.parametrize(
    ("algorithm", "asked", "enough"),
    [
        (DIRECT, convolution(8, 5), True),
        (FOURIER, convolution(64, 3), False),
        (WINOGRAD, convolution(64, 3), True),  # sums of 576 products
        (WINOGRAD, convolution(8, 3), False),  # of 72, whose roundings are less
        (WINOGRAD, convolution(64, 5), False),  # windows of 5 x 5, of which it loses half of the digits
        (WINOGRAD, convolution(64, 3, "bf16"), False),
        (WINOGRAD, replace(convolution(8, 3), computed="w"), True),  # of 1,024
    ],
)
def test_algorithms_round_as_sums_of_products_may(algorithm: int, asked: Convolution, enough: bool) -> None:
    number = algorithm - 2 * (asked.computed == "w" and algorithm == WINOGRAD)
    assert exact_enough(number, asked) == enough


def test_an_algorithm_is_as_quick_as_in_its_best_round() -> None:
    """Whatever else is at work on the GPU makes one round or another slow."""
    quick, slow, refused = 1, 3, 0
    rounds = [(quick, 0, 0.9), (slow, 0, 0.3), (refused, 3, -1.0), (quick, 0, 0.1), (slow, 0, 0.4), (refused, 3, -1.0)]
    found = by_least_time(Rated(algorithm, status, milliseconds) for algorithm, status, milliseconds in rounds)
    assert [(one.algorithm, round(one.milliseconds, 3)) for one in found if not one.status] == [(1, 0.1), (3, 0.3)]
    once_refused = by_least_time([Rated(quick, 3, -1.0), Rated(quick, 0, 0.2)])
    assert [one.status for one in once_refused] == [0]
