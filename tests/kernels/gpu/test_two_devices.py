"""On two GPUs: an image's rows in shards, halo rows copied from the neighbour while the interior runs.

Every value against the whole convolution in f32 on one GPU; outputs are prefilled with NaN, and so are the halo buffers
until the copies are there, so that a boundary that does not wait shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tapestry.kernels.convolution.problem import ConvolutionProblem

from .test_sharded import assert_close, convolved, exact_reference, halves, reference_gradient, tensor

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="two GPUs are needed"
)
__all__ = ["exact_reference"]  # a fixture for every test of this file

DEVICES = 2
PROBLEMS = [
    ConvolutionProblem(8, 64, 48, 64, 8, 3, 3, padding=(1, 1, 1, 1)),
    ConvolutionProblem(4, 40, 56, 128, 8, 5, 5, padding=(2, 2, 2, 2), dtype="bf16"),
    ConvolutionProblem(3, 27, 21, 96, 3, 7, 3, padding=(3, 3, 1, 1)),
    ConvolutionProblem(2, 33, 24, 64, 64, 3, 3, padding=(1, 1, 1, 1)),
]


@dataclass
class Shard:
    """A device's rows, and the neighbours' rows next to them as they come in on a stream of their own."""

    device: int
    rows: Any
    above: Any
    below: Any
    arrived: Any


def shards(whole: Any, reach: int, delay: int) -> list[Shard]:
    """The rows of a tensor dealt over the devices; the halos are on their way, late by `delay` clocks."""
    cuts = halves(whole.shape[1], DEVICES)
    parts = [whole[:, begin:end].to(f"cuda:{device}", copy=True) for device, (begin, end) in enumerate(cuts)]
    found = []
    for device, part in enumerate(parts):
        torch.cuda.synchronize()
        with torch.cuda.device(device):
            stream, arrived = torch.cuda.Stream(), torch.cuda.Event()
            empty = torch.full_like(part[:, :reach], float("nan"))
            above, below = (empty if device else None), (empty if device + 1 < DEVICES else None)
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                torch.cuda._sleep(delay)
                if above is not None:
                    above.copy_(parts[device - 1][:, -reach:], non_blocking=True)
                if below is not None:
                    below.copy_(parts[device + 1][:, :reach], non_blocking=True)
                arrived.record()
        found.append(Shard(device, part, above, below, arrived))
    return found


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("delay", [0, 20_000_000])
def test_forward_and_input_gradient(problem: ConvolutionProblem, delay: int) -> None:
    from tapestry.kernels.sharded import conv2d_input_gradient_shard, conv2d_shard

    x, w = tensor(problem.input_shape, problem.dtype), tensor(problem.weight_shape, problem.dtype)
    want, magnitude = convolved(problem, x, w), convolved(problem, x.abs(), w.abs())
    gradient, spread = reference_gradient(problem, x, w), reference_gradient(problem, x.abs(), w.abs())
    for name, expected, size in (("forward", want, magnitude), ("gradient", gradient, spread)):
        outs = []
        for shard in shards(x, problem.padding[0], delay):
            with torch.cuda.device(shard.device):
                taps = w.to(shard.rows.device)
                out = torch.full_like(shard.rows, float("nan"))
                options = {
                    "above": shard.above, "below": shard.below, "arrived": shard.arrived,
                    "groups": problem.groups, "padding": problem.padding, "out": out,
                }  # fmt: skip
                if name == "forward":
                    conv2d_shard(shard.rows, taps, **options)
                else:
                    conv2d_input_gradient_shard(shard.rows, taps, shape=shard.rows.shape, **options)
            outs.append(out)
        got = torch.cat([out.to(x.device) for out in outs], dim=1)
        assert_close(problem, got, expected, size, name)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_partial_weight_gradients_add_up(problem: ConvolutionProblem) -> None:
    """Each device's f32 part, added in the order of the devices, is the gradient; and the same bits a second time."""
    from tapestry.kernels.conv2d import conv2d_weight_gradient
    from tapestry.kernels.sharded import conv2d_weight_gradient_shard

    x, dy = tensor(problem.input_shape, problem.dtype), tensor(problem.output_shape, problem.dtype)
    steps = {"filter": (problem.r, problem.s), "groups": problem.groups, "padding": problem.padding}

    def folded() -> Any:
        total = torch.zeros(problem.weight_shape, device=x.device)
        cuts = halves(problem.h, DEVICES)
        for shard, (begin, end) in zip(shards(x, problem.padding[0], 0), cuts, strict=True):
            with torch.cuda.device(shard.device):
                halo = {"above": shard.above, "below": shard.below, "arrived": shard.arrived}
                mine = dy[:, begin:end].to(shard.rows.device, copy=True)
                part = conv2d_weight_gradient_shard(shard.rows, mine, **halo, **steps)
                torch.cuda.synchronize()
            total += part.to(x.device)
        return total

    got = folded()
    whole = conv2d_weight_gradient(x, dy, partial=True, **steps)
    terms = problem.n * problem.p * problem.q
    assert torch.equal(got, folded())
    assert float((got - whole).abs().max()) <= 2.0**-21 * terms + 2.0**-20 * float(whole.abs().max())
