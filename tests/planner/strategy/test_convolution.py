"""Grouped convolutions are recognised by what they compute, and timed as the kernels' own cost model times them."""

from dataclasses import replace

import pytest

import tapestry as tp
from tapestry import Tensor, f16, f32, param
from tapestry.convolution import convolution
from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.cost.gpu import known_gpu
from tapestry.kernels.cost.model import predicted_s
from tapestry.planner import load_machine, plan
from tapestry.planner.strategy.convolution import seconds
from tapestry.planner.strategy.cost import compute_seconds, touched
from tapestry.program import Program
from tapestry.space import Box
from tapestry.space.projection import count_points, operand_images, write_image


@tp.op
def grouped_conv(
    x: f16[Tensor, "n y x c"], w: f16[Tensor, "k r s j"], *, stride: int = 1, dilation: int = 1
) -> f16[Tensor, "n p q k"]:
    n, k, p, q, j, r, s = tp.indices("n k p q j r s")
    width = w.shape[3]
    rows, columns = stride * p + dilation * r, stride * q + dilation * s
    return tp.sum[j, r, s](x[n, rows, columns, k // width * width + j] * w[k, r, s, j])


@tp.program
def net(
    x: f16[Tensor, "n y x c"], w: param[f16[Tensor, "c 3 5 j"]], *, stride: int = 1, dilation: int = 1, pad: int = 1
) -> Tensor:
    return grouped_conv(tp.pad(x, (0, pad, pad, 0), value=0.0), w, stride=stride, dilation=dilation)


@tp.op
def dense_conv(x: f16[Tensor, "n y x c"], w: f16[Tensor, "k r s c"]) -> f16[Tensor, "n p q k"]:
    n, k, p, q, c, r, s = tp.indices("n k p q c r s")
    return tp.sum[c, r, s](x[n, p + r, q + s, c] * w[k, r, s, c])


@tp.program
def dense(x: f16[Tensor, "n y x c"], w: param[f16[Tensor, "k 3 3 c"]]) -> Tensor:
    return dense_conv(x, w)


@tp.program
def planes(x: f16[Tensor, "n c y x"], w: param[f16[Tensor, "c 8 3 3"]]) -> Tensor:
    return tp.conv2d(x, w, padding=1, groups=8)


@tp.program
def product(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]]) -> Tensor:
    return tp.relu(tp.einsum("nc,ck->nk", x, w))


def bound(width: int = 8, **chosen: int) -> Program:
    program: Program = net.bind(n=64, y=32, x=32, c=64, j=width, **chosen)
    return program


def expected(problem: ConvolutionProblem) -> float:
    """What the kernels' model says of the GPU it knows, at the rate of the machine's memory."""
    gpu = known_gpu("NVIDIA H200")
    assert gpu is not None
    rate = load_machine("h200").device.compute_tier.read_gb_per_s * 1e9
    return predicted_s(problem, "forward", gpu) * gpu.copy_bytes_per_s / rate


def timed(program: Program, lo: tuple[int, ...], hi: tuple[int, ...]) -> tuple[float | None, float]:
    """(by the kernels' model or None, as the planner takes it) of one shard of the last operation."""
    op, machine, region = program.operations[-1], load_machine("h200"), Box(lo, hi).region()
    shard = touched(op, program, region)
    return (
        seconds(op, program, machine.device, shard.points, shard.reads, shard.written),
        compute_seconds(op, program, machine, shard, 1),
    )


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_what_the_kernels_compute_is_timed_by_their_model(width: int, stride: int, dilation: int) -> None:
    program = bound(width, stride=stride, dilation=dilation)
    found = convolution(program.operations[-1], program)
    assert found is not None
    assert found.channels_last
    assert (found.rows.step, found.rows.gap, found.width, found.per) == (stride, dilation, width, width)
    whole = [dim.extent for dim in program.operations[-1].dims]
    assert timed(program, (0,) * 7, tuple(whole))[0] is not None


@pytest.mark.parametrize(
    "program",
    [dense.bind(n=2, y=8, x=8, c=16, k=32), planes.bind(n=2, y=8, x=8, c=64), product.bind(n=2, c=8, k=8)],
    ids=["one group of all channels", "channels first", "no convolution"],
)
def test_left_alone(program: Program) -> None:
    op = program.operations[-1]
    assert timed(program, (0,) * len(op.dims), tuple(dim.extent for dim in op.dims))[0] is None


def test_the_whole_operation_costs_what_the_kernels_expect() -> None:
    problem = ConvolutionProblem(64, 32, 32, 64, 8, 3, 5, padding=(1, 1, 1, 1))
    model, taken = timed(bound(), (0,) * 7, (64, 32, 30, 64, 8, 3, 5))
    assert model == pytest.approx(expected(problem))
    assert taken >= model


def test_a_shard_is_a_problem_of_its_own() -> None:
    """Images 0-16, rows 8-16, channels 16-32: ten rows are read, and no padding at top and bottom."""
    problem = ConvolutionProblem(16, 10, 32, 16, 2, 3, 5, padding=(0, 0, 1, 1))
    model, _ = timed(bound(), (0, 8, 0, 16, 0, 0, 0), (16, 16, 30, 32, 8, 3, 5))
    assert model == pytest.approx(expected(problem))


@pytest.mark.parametrize(
    ("lo", "hi"),
    [
        ((0, 0, 0, 0, 0, 0, 0), (64, 32, 30, 64, 8, 2, 5)),
        ((0, 0, 0, 0, 4, 0, 0), (64, 32, 30, 64, 8, 3, 5)),
        ((0, 0, 0, 0, 0, 0, 0), (64, 32, 30, 12, 8, 3, 5)),
    ],
    ids=["part of the filter", "part of a sum", "part of a group"],
)
def test_cuts_the_kernels_do_not_make_keep_the_roofline(lo: tuple[int, ...], hi: tuple[int, ...]) -> None:
    model, taken = timed(bound(), lo, hi)
    assert model is None
    assert taken > 0


def test_other_devices_keep_the_roofline() -> None:
    program, cpu = bound(), load_machine("cpu-4")
    op = program.operations[-1]
    region = Box((0,) * 7, (64, 32, 30, 64, 8, 3, 5)).region()
    reads = operand_images(op, {name: program.tensor(name).shape for name in op.operands}, region)
    assert seconds(op, program, cpu.device, 1, reads, write_image(op, region).region) is None


@pytest.mark.parametrize("name", ["NVIDIA H200", "NVIDIA H100"])
def test_a_slower_memory_takes_longer(name: str) -> None:
    """An H100 computes as an H200 does, with its own memory."""
    machine = load_machine("h200")
    first, *rest = machine.device.tiers
    half = replace(first, read_gb_per_s=first.read_gb_per_s / 2)
    slow = replace(machine.device, name=name, tiers=(half, *rest))
    program = bound()
    op, region = program.operations[-1], Box((0,) * 7, (64, 32, 30, 64, 8, 3, 5)).region()
    reads = operand_images(op, {name: program.tensor(name).shape for name in op.operands}, region)
    points, written = count_points(op, region).value, write_image(op, region).region
    times = [seconds(op, program, device, points, reads, written) for device in (machine.device, slow)]
    assert times[1] == pytest.approx(2 * (times[0] or 0))


def test_a_plan_is_made_and_proved_with_it() -> None:
    found = plan(bound(), load_machine("h200x8"), mesh=(4,))
    assert found.check().ok
    assert found.simulate().makespan_s > 0
