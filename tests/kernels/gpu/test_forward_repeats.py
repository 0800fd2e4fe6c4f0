"""On a GPU: the forward kernel gives the same bits every time, where slots of its ring are reused the fastest.

These cases were wrong now and then, a few elements of millions, while a slot was handed back before its last reads had
been answered.
"""

from __future__ import annotations

from typing import Any

import pytest

from tapestry.kernels.convolution.configuration import ForwardConfiguration

from ..shapes import SHAPES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="kernels run on an NVIDIA GPU, and there is none")

CASES = {
    "regnet_y_400mf.stage0.first": ForwardConfiguration(64, 1, 7, 2, 1, 6, blocks=1, chunk=55),
    "resnext50_32x4d.stage1.first": ForwardConfiguration(64, 2, 4, 4, 1, 3, blocks=1, chunk=28),
    "efficientnet_b0.112x96k3s2": ForwardConfiguration(32, 2, 7, 4, 1, 2, blocks=2, chunk=21),
    "efficientnet_b3.75x192k5s2": ForwardConfiguration(32, 1, 5, 1, 1, 4, blocks=2, chunk=14),
    "table.256x256x28k5": ForwardConfiguration(32, 4, 4, 4, 1, 6, blocks=1, chunk=112),
}
REPEATS = 12


def _random(shape: tuple[int, ...]) -> Any:
    return torch.randn(shape, device="cuda").half()


@pytest.mark.parametrize("name", CASES)
def test_the_same_bits_every_time(name: str) -> None:
    from tapestry.kernels.conv2d import conv2d

    problem = SHAPES[name]
    x, w = _random(problem.input_shape), _random(problem.weight_shape)
    steps = {"stride": problem.stride, "padding": problem.padding, "dilation": problem.dilation}
    outs = []
    for _ in range(REPEATS):
        out = torch.full(problem.output_shape, float("nan"), device="cuda", dtype=x.dtype)
        outs.append(conv2d(x, w, groups=problem.groups, out=out, configuration=CASES[name], **steps))
    assert not outs[0].isnan().any()
    assert all(torch.equal(outs[0], out) for out in outs[1:])
