"""Operators of the graphs of torch.compile, by the extension as in Python."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.tensors import operators
from tapestry.kernels.torch import GroupedConv2d, conv2d

from .driver import Driver
from .steps import BF16, F32, autocast, layer, operands, same, step


@pytest.mark.parametrize("lies", ["dense", "part", "turned"])
@pytest.mark.parametrize("dtype", [BF16, F32])
def test_operators_of_graphs(taken: Driver, dtype: torch.dtype, lies: str) -> None:
    conv, (x, dy) = layer(dtype=dtype), operands()
    if lies == "part":
        x, dy = (torch.cat([tensor, tensor, tensor], 1).split(16, 1)[1] for tensor in (x, dy))
    elif lies == "turned":
        x, dy = x.contiguous(), dy.contiguous()
    number, w = operators.packed((1, 1), (1, 1, 1, 1), (1, 1)), conv.weight.detach()

    def computed() -> list[Tensor]:
        y, taps = operators.lowered(x, w, None, number, 2)
        return [y, taps, *operators.gradients(x, dy, w, taps, number, 2)]

    expected = computed()
    assert expected[1].numel() == (w.numel() if dtype == F32 else 0)
    assert taken.ran == []
    _, taps = operators.lowered_forward(x, w, None, number, 2)
    operators.lowered_gradients(x, dy, w, taps, number, 2)
    taken.ran.clear()
    same(computed(), expected)
    assert set(taken.ran) == {"native"}
    by_other = [operators.gradients(x, dy, w, other, number, 2)[0] for other in (2 * w.to(BF16), x.new_empty(0))]
    same(by_other, [2 * expected[2], expected[2]])


class _Called(nn.Module):
    """A layer by its operator, on CPUs too."""

    def __init__(self, conv: GroupedConv2d) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Tensor) -> Tensor:
        return conv2d(x, self.conv.weight, self.conv.bias, padding=1, groups=2)


def test_compiled_steps(taken: Driver) -> None:
    conv, (x, dy) = layer(dtype=F32), operands()
    with autocast():
        expected = step(conv, x.requires_grad_(), dy)
    with torch.autocast("cpu", BF16):
        compiled = torch.compile(_Called(conv), backend="aot_eager", fullgraph=True)
        step(compiled, x, dy)
        taken.ran.clear()
        found = step(compiled, x, dy)
    same(found, expected)
    assert set(taken.ran) == {"native"}
