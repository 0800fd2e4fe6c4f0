"""Batch norms with what follows them on a GPU, against the definition in f64. Skipped where there is none."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.layers.norms import NormAct2d
from tapestry.kernels.tensors import native_calls
from tapestry.kernels.tensors.norm_library import FUNCTIONS
from tapestry.kernels.torch import fuse_norms

from .closeness import UNITS, close
from .graphs import captured

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

LAYERS: dict[str, nn.Module] = {
    "": nn.Identity(), "relu": nn.ReLU(inplace=True), "relu6": nn.ReLU6(), "silu": nn.SiLU(inplace=True),
    "gelu": nn.GELU(), "hardswish": nn.Hardswish(),
}  # fmt: skip
SHAPES = [
    (8, 64, 28, 28), (4, 24, 57, 55), (128, 1152, 7, 7), (3, 2048, 5, 9), (2, 17, 31, 33), (5, 12, 20, 20),
    (2, 8, 1, 1), (1, 8, 1000, 1000), (64, 96, 30, 31),
]  # fmt: skip


def images(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> Tensor:
    random = torch.Generator("cuda").manual_seed(seed)
    x = torch.randn(shape, generator=random, device="cuda") * 2
    x += torch.randn(shape[1], generator=random, device="cuda")[:, None, None] * 4
    return x.to(dtype).contiguous(memory_format=torch.channels_last)


def layer(channels: int, activation: str, **settings: Any) -> NormAct2d:
    norm = nn.BatchNorm2d(channels, device="cuda", **settings)
    if norm.affine:
        nn.init.uniform_(norm.weight, -1, 2)
        nn.init.uniform_(norm.bias, -1, 1)
    return NormAct2d(norm, LAYERS[activation])


def exact(ours: NormAct2d, x: Tensor, residual: Tensor | None, dy: Tensor) -> list[Tensor]:
    """y and the gradients of what has one, in f64."""
    given = [t.detach().double().requires_grad_() for t in (x, residual, ours.weight, ours.bias) if t is not None]
    rest = list(given[1:])
    added = rest.pop(0) if residual is not None else None
    y = nn.functional.batch_norm(given[0], None, None, *(rest or [None, None]), True, 0.1, ours.eps)
    y = FUNCTIONS[ours.activation or ""](y if added is None else y + added)
    return [y.detach(), *torch.autograd.grad(y, given, dy.double())]


def away_from_corners(ours: NormAct2d, x: Tensor, residual: Tensor | None, dy: Tensor) -> Tensor:
    """No gradient where rounding decides on which side of a corner of relu or the like a value is."""
    parameters = [None if p is None else p.detach().double() for p in (ours.weight, ours.bias)]
    before = nn.functional.batch_norm(x.detach().double(), None, None, *parameters, True, 0.1, ours.eps)
    before = before if residual is None else before + residual.detach()
    near = [(before - corner).abs() <= 2.0**-5 for corner in (-3, 0, 3, 6)]
    return torch.where(torch.stack(near).any(0), 0, dy)


def check(ours: NormAct2d, x: Tensor, residual: Tensor | None, unit: float) -> None:
    given = [x.requires_grad_(), *([] if residual is None else [residual.requires_grad_()]), *ours.parameters()]
    y = ours(x, residual)
    dy = away_from_corners(ours, x, residual, images(tuple(x.shape), x.dtype, 7) / 4)
    found, expected = torch.autograd.grad(y, given, dy), exact(ours, x, residual, dy)
    assert "Recorded" in y.grad_fn.name()
    assert y.is_contiguous(memory_format=torch.channels_last)
    close(y, expected[0], unit)
    for number, (one, other) in enumerate(zip(found, expected[1:], strict=True)):
        wide = one.dtype is torch.float32 and one.dim() == 1
        if wide:  # sums of f32 over all images
            terms = float(dy.double().abs().sum()) / x.shape[1]
            torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=4e-6 * terms + unit)
        else:
            close(one, other, 4 * unit)
        assert one.shape == given[number].shape


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("own", [False, True], ids=["parameters of f32", "of the type of images"])
def test_values_and_gradients(shape: tuple[int, ...], residual: bool, own: bool) -> None:
    dtypes = [dtype for dtype in UNITS if not own or dtype is not torch.float32]
    if own and shape[0] * shape[2] * shape[3] > 50_000:
        dtypes.remove(torch.float16)  # which has no room for the gradients' sums
    for number, activation in enumerate(LAYERS):
        dtype = dtypes[(number + shape[1]) % len(dtypes)]
        x, added = images(shape, dtype, 1), images(shape, dtype, 2) if residual else None
        check(layer(shape[1], activation).to(dtype if own else torch.float32), x, added, UNITS[dtype])


@pytest.mark.parametrize(
    "settings", [{"affine": False}, {"track_running_stats": False}, {"momentum": None}, {"eps": 0.1}]
)
def test_settings(settings: dict[str, Any]) -> None:
    check(layer(40, "silu", **settings), images((4, 40, 9, 9), torch.bfloat16, 3), None, UNITS[torch.bfloat16])


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_what_is_remembered(momentum: float | None, dtype: torch.dtype) -> None:
    ours = layer(24, "relu", momentum=momentum).to(dtype)
    theirs = nn.BatchNorm2d(24, momentum=momentum, device="cuda").to(dtype)
    for seed in range(3):
        x = images((4, 24, 9, 9), dtype, seed)
        ours(x), theirs(x)
    near = 1e-5 if dtype is torch.float32 else 2.0**-7
    for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(one, other, rtol=near, atol=near)
    assert int(ours.num_batches_tracked) == 3
    ours.eval(), theirs.eval()
    with torch.no_grad():
        theirs.weight.copy_(ours.weight), theirs.bias.copy_(ours.bias)
        near = 4 * UNITS[dtype] if dtype is torch.bfloat16 else 1e-4
        torch.testing.assert_close(ours(x), torch.relu(theirs(x)), rtol=near, atol=near)


def test_gradients_that_are_not_dense() -> None:
    """As of a mean over an image, whose gradient is one value a channel, and of a tensor in another order."""
    ours = layer(64, "silu")
    x = images((4, 64, 8, 8), torch.bfloat16, 1).requires_grad_()
    for dy in (
        torch.randn(4, 64, 1, 1, device="cuda", dtype=x.dtype).expand(x.shape),
        images((4, 64, 8, 8), x.dtype, 5).contiguous(),
    ):
        (dx,) = torch.autograd.grad(ours(x), x, dy)
        close(dx, exact(ours, x, None, dy)[1], 4 * UNITS[x.dtype])


def test_addresses_that_are_not_aligned() -> None:
    ours, held = layer(8, "silu"), torch.randn(1 + 2 * 8 * 9, device="cuda", dtype=torch.bfloat16)
    x = held[1:].view(2, 3, 3, 8).permute(0, 3, 1, 2)
    check(ours, x.detach(), None, UNITS[x.dtype])


def test_in_a_graph_it_counts_and_follows() -> None:
    ours, x = layer(32, "silu"), images((4, 32, 16, 16), torch.bfloat16, 1).requires_grad_()
    dy = torch.randn_like(x)
    graph, dx = captured(lambda: torch.autograd.grad(ours(x), x, dy)[0])
    with torch.no_grad():
        x.copy_(images((4, 32, 16, 16), torch.bfloat16, 9))
    before = int(ours.num_batches_tracked)
    graph.replay()
    graph.replay()
    assert int(ours.num_batches_tracked) == before + 2
    close(dx, exact(ours, x, None, dy)[1], 4 * UNITS[x.dtype])


def test_results_repeat() -> None:
    ours, x = layer(144, "silu"), images((32, 144, 56, 56), torch.bfloat16, 1).requires_grad_()
    dy = torch.randn_like(x)
    first = [ours(x), *torch.autograd.grad(ours(x), [x, ours.weight, ours.bias], dy)]
    again = [ours(x), *torch.autograd.grad(ours(x), [x, ours.weight, ours.bias], dy)]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # inductor's own
def test_compiled(backend: str) -> None:
    """The first step by way of Python, the others by the extension, where it is there."""
    native_calls.wait()
    ours, x = layer(32, "silu"), images((4, 32, 16, 16), torch.bfloat16, 1).requires_grad_()
    before, dy = copy.deepcopy(ours), torch.randn_like(x)
    compiled = torch.compile(ours, fullgraph=True, backend=backend)
    for _ in range(3):
        y, expected = compiled(x), before(x)
        torch.testing.assert_close(y, expected)
        for one, other in zip(torch.autograd.grad(y, x, dy), torch.autograd.grad(expected, x, dy), strict=True):
            torch.testing.assert_close(one, other)
        for one, other in zip(ours.buffers(), before.buffers(), strict=True):
            torch.testing.assert_close(one, other)


def test_a_model_trains_as_before_and_keeps_less() -> None:
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for channels in (3, 64, 64):
        parts += [nn.Conv2d(channels, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.SiLU(inplace=True)]
    model = nn.Sequential(*parts).to("cuda", memory_format=torch.channels_last)
    fused = copy.deepcopy(model)
    assert set(fuse_norms(fused).taken.values()) == {"silu"}
    x, found = images((16, 3, 64, 64), torch.float32, 1), []
    for one, lowered in ((model, False), (model, True), (fused, True)):
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", torch.bfloat16, enabled=lowered):
            loss = one(x).float().square().mean()
        loss.backward()
        gradients = [parameter.grad for parameter in one.parameters() if parameter.grad is not None]
        found.append((loss.detach(), gradients, torch.cuda.max_memory_allocated()))
        one.zero_grad()
    exact, theirs, ours = found
    torch.testing.assert_close(ours[0], exact[0], rtol=2e-3, atol=1e-3)
    for right, before, now in zip(exact[1], theirs[1], ours[1], strict=True):
        assert float((now - right).norm()) <= 1.2 * float((before - right).norm()) + 1e-3 * float(right.norm())
    assert ours[2] < theirs[2]
