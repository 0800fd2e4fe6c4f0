"""Models that write into tensors in place, fused: whatever is put in one launch, the numbers stay those of the model.

Programs are drawn: each line makes a value of those before it, or writes into one.
"""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import assume, given, settings
from torch import Tensor, nn

from tapestry.kernels.layers.norms import NormAct2d
from tapestry.kernels.models.in_place import Tracer, writes
from tapestry.kernels.torch import fuse_for_inference, fuse_norms, replace_convolutions

CHANNELS = 8
LAYERS = {
    "grouped": lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=2),
    "dense": lambda: nn.Conv2d(CHANNELS, CHANNELS, 1, bias=False),
    "norm": lambda: nn.BatchNorm2d(CHANNELS),
    "same": nn.Identity,
    "relu": nn.ReLU,
    "relu in place": lambda: nn.ReLU(inplace=True),
}
FUNCTIONS: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "iadd": operator.iadd,
    "scale into": lambda a, b: a.mul_(0.5),
    "silu into": lambda a, b: nn.functional.silu(a, inplace=True),
}
Line = tuple[str, int, int, bool]
LINES = st.lists(
    st.tuples(st.sampled_from([*LAYERS, *FUNCTIONS]), st.integers(0, 3), st.integers(0, 3), st.booleans()),
    min_size=2, max_size=8,
)  # fmt: skip


class Program(nn.Module):
    """Lines of (what, its operands counted from the newest value, whether the result is kept)."""

    def __init__(self, lines: list[Line]) -> None:
        super().__init__()
        self.lines = lines
        for number, (what, *_) in enumerate(lines):  # parts of its own, as of a block
            self.add_module(f"layer_{number}", LAYERS[what]() if what in LAYERS else None)

    def forward(self, x: Tensor) -> Tensor:
        values = [x * 1.0]
        for number, (what, *operands, kept) in enumerate(self.lines):
            one, other = (values[max(0, len(values) - 1 - back)] for back in operands)
            made = getattr(self, f"layer_{number}")(one) if what in LAYERS else FUNCTIONS[what](one, other)
            if kept:
                values.append(made)
        return values[-1]


def made(lines: list[Line]) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(len(lines))
    model = nn.Sequential(Program(lines))
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            assert part.running_mean is not None
            part.running_mean.normal_()
            part.weight.data.uniform_(0.5, 2)
    return model, torch.randn(2, CHANNELS, 5, 6).contiguous(memory_format=torch.channels_last)


@settings(max_examples=150)
@given(LINES)
def test_inference(lines: list[Line]) -> None:
    model, x = made(lines)
    fused = fuse_for_inference(model, torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(fused(x), model.eval()(x), rtol=1e-4, atol=1e-4)


@settings(max_examples=150)
@given(LINES)
def test_training(lines: list[Line]) -> None:
    model, x = made(lines)
    fused = copy.deepcopy(model)
    replace_convolutions(fused)
    fuse_norms(fused)
    with torch.no_grad():
        torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-4)
    results = []
    for one in (model, fused):
        given = x.clone().requires_grad_()
        try:
            y = one(given)
            y.square().sum().backward()
        except RuntimeError as error:  # autograd needs a value that was written into
            assume("modified by an inplace operation" not in str(error))
            raise
        results.append((y.detach(), given.grad))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


def test_a_write_that_nobody_reads_is_made() -> None:
    """As `out.mul_(self.gain)` in a block without norms."""
    model, x = made([("grouped", 0, 0, True), ("scale into", 0, 0, False), ("relu", 0, 0, True)])
    plain, _ = made([("grouped", 0, 0, True), ("relu", 0, 0, True)])
    plain.load_state_dict(model.state_dict())
    with torch.no_grad():
        found, without = fuse_for_inference(model, torch.float32)(x), plain.eval()(x)
        torch.testing.assert_close(found, model.eval()(x))
    assert not torch.allclose(found, without)


@pytest.mark.parametrize("of", [0, 1])
def test_a_layer_that_writes_into_what_passed_by(of: int) -> None:
    """Into the input of a convolution, or into its result, by way of an identity."""
    lines = [("grouped", 0, 0, True), ("same", 1 - of, 0, True), ("relu in place", 0, 0, False), ("relu", 1, 0, True)]
    model, x = made(lines)
    with torch.no_grad():
        torch.testing.assert_close(fuse_for_inference(model, torch.float32)(x), model.eval()(x))


def test_a_sum_into_what_others_read_is_no_part_of_a_launch() -> None:
    model, x = made([("grouped", 0, 0, True), ("iadd", 1, 0, True), ("relu", 0, 0, True), ("add", 0, 3, True)])
    with torch.no_grad():
        torch.testing.assert_close(fuse_for_inference(model, torch.float32)(x), model.eval()(x))


def test_a_norm_takes_no_sum_behind_a_write_into_its_input() -> None:
    model, x = made([("norm", 0, 0, True), ("scale into", 1, 0, False), ("add", 0, 1, True), ("relu", 0, 0, True)])
    fused = copy.deepcopy(model)
    fuse_norms(fused)
    with torch.no_grad():
        torch.testing.assert_close(fused(x), model(x))


def test_a_sum_into_what_others_read_is_no_part_of_a_norm() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.act = nn.BatchNorm2d(CHANNELS), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            shortcut = x * 1.0
            total = shortcut
            total += self.norm(x)
            made: Tensor = self.act(total) + shortcut
            return made

    block, (_, x) = nn.Sequential(Block()), made([])
    expected = copy.deepcopy(block)(x)
    fuse_norms(block)
    torch.testing.assert_close(block(x), expected)


@pytest.mark.parametrize("alias", [nn.Identity(), lambda x: x.view(2, CHANNELS, 5, 6), lambda x: x[:]])
def test_a_sum_into_what_has_another_name_is_no_part_of_a_norm(alias: Any) -> None:
    """The block's input is written into."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.act, self.alias = nn.BatchNorm2d(CHANNELS), nn.ReLU(), alias

        def forward(self, x: Tensor) -> Tensor:
            y, shortcut = self.norm(x), self.alias(x)
            shortcut += y
            made: Tensor = self.act(shortcut) + x
            return made

    block, (_, x) = nn.Sequential(Block()), made([])
    x = x.contiguous()
    expected, written = copy.deepcopy(block)(given := x.clone()), x.clone()
    fuse_norms(block)
    torch.testing.assert_close(block(written), expected)
    torch.testing.assert_close(written, given)


@pytest.mark.parametrize("alias", [nn.Identity(), lambda x: x.view(2, CHANNELS, 5, 6), lambda x: x[:]])
def test_a_sum_into_what_has_another_name_is_no_part_of_a_launch(alias: Any) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.act, self.alias = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=2), nn.ReLU(), alias

        def forward(self, x: Tensor) -> Tensor:
            x = x * 1.0
            y, shortcut = self.conv(x), self.alias(x)
            shortcut += y
            made: Tensor = self.act(shortcut) + x
            return made

    block, (_, x) = nn.Sequential(Block()), made([])
    x = x.contiguous()
    with torch.no_grad():
        torch.testing.assert_close(fuse_for_inference(block, torch.float32)(x), block.eval()(x))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda x: x.mul_(2), True), (lambda x: x.mul(2), False), (lambda x: torch.relu_(x), True),
        (lambda x: nn.functional.relu(x, inplace=True), True), (lambda x: nn.functional.relu(x), False),
        (lambda x: operator.iadd(x, 1), True), (lambda x: operator.imul(x, 2), True), (lambda x: x + 1, False),
        (lambda x: x.float(), False), (lambda x: nn.functional.relu(x, True), True),
        (lambda x: nn.functional.relu(x, False), False), (lambda x: x & 1, False),
        (lambda x: torch.ops.aten.relu_.default(x), True),
        (lambda x: torch.ops.aten.relu.default(x), False), (lambda x: torch.add(x, 1, out=x), True),
    ],
)  # fmt: skip
def test_what_writes(body: Any, expected: bool) -> None:
    graph = Tracer().trace(body)
    node = next(node for node in graph.nodes if node.op not in ("placeholder", "output"))
    assert writes(node, None) == expected


def test_a_number_stays_what_it_is_elsewhere() -> None:
    class Halved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=CHANNELS)

        def forward(self, x: Tensor) -> Tensor:
            rows = half = x.shape[2]
            half //= 2
            made: Tensor = self.conv(x)[:, :, :half] * rows
            return made

    _, x = made([])
    model = Halved().eval()
    fused = fuse_for_inference(model, torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(fused(x), model(x))
        torch.testing.assert_close(pickle.loads(pickle.dumps(fused))(x), model(x))


@pytest.mark.parametrize("addition", ["add", "iadd"])
def test_a_norm_takes_a_sum_of_a_drawn_program(addition: str) -> None:
    """That what is drawn above is fused at all, where nothing forbids it."""
    model, _ = made([("norm", 0, 0, True), (addition, 0, 1, True), ("relu", 0, 0, True)])
    fuse_norms(model)
    (norm,) = [part for part in model.modules() if isinstance(part, NormAct2d)]
    assert norm.summed
    assert norm.activation == "relu"
