"""On a GPU: kernels that start while the one ahead still runs.

What one writes the next one reads, and writes over what the one before it reads; every chain gives what the same
launches give one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="kernels run on an NVIDIA GPU, and there is none")

LAYERS = 12
# n, h = w, c, group width, filter
SHAPES = [(2, 14, 64, 8, 3), (64, 64, 64, 8, 3), (16, 28, 128, 16, 5), (1, 7, 32, 1, 3), (32, 56, 256, 32, 3)]


def layers(n: int, size: int, c: int, width: int, k: int) -> tuple[Any, list[Callable[[], Any]]]:
    """The result, and what makes it: forward passes and input gradients to and fro between two buffers.

    Between some of them stand a library's kernels; the filter is turned round twice. Behind others stands a weight
    gradient, one of whose operands the next layer writes over, and later a step along it.
    """
    from tapestry.kernels.conv2d import conv2d, conv2d_input_gradient, conv2d_weight_gradient

    generator = torch.Generator("cuda").manual_seed(n + c)
    one, other = (torch.randn(n, size, size, c, device="cuda", generator=generator).half() for _ in range(2))
    w = (torch.randn(c, k, k, width, device="cuda", generator=generator) / (k * k * width) ** 0.5).half()
    start, first, dw = one.clone(), w.clone(), torch.empty_like(w, dtype=torch.float32)
    options = {"groups": c // width, "padding": k // 2}

    def forward(x: Any, y: Any) -> Callable[[], Any]:
        return lambda: conv2d(x, w, out=y, **options)

    def backward(x: Any, y: Any) -> Callable[[], Any]:
        return lambda: conv2d_input_gradient(x, w, shape=x.shape, out=y, **options)

    def gradient(x: Any, y: Any) -> Callable[[], Any]:
        return lambda: conv2d_weight_gradient(x, y, filter=(k, k), out=dw, partial=True, **options)

    def descend() -> Any:
        return w.sub_((dw / dw.abs().amax() * w.float().abs().amax() / 8).half())

    steps: list[Callable[[], Any]] = [lambda: one.copy_(start), lambda: w.copy_(first)]
    for number in range(LAYERS):
        x, y = (one, other) if number % 2 == 0 else (other, one)
        steps.append((backward if number % 3 == 2 else forward)(x, y))
        if number % 3 == 1:
            steps.append(gradient(x, y))
        if number % 6 == 2:
            steps.append(descend)
        if number % 4 == 3:
            steps.append(lambda y=y: y.mul_(0.5))
        if number % 5 == 4:
            steps.append(lambda: w.copy_(w.flip(0)))
    return (one if LAYERS % 2 == 0 else other), steps


def one_by_one(steps: list[Callable[[], Any]]) -> None:
    for step in steps:
        step()
        torch.cuda.synchronize()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_chain_is_its_layers_one_by_one(shape: tuple[int, int, int, int, int]) -> None:
    result, steps = layers(*shape)
    one_by_one(steps)
    wanted = result.clone()
    assert wanted.isfinite().all()
    assert wanted.abs().max() > 1e-3
    for _ in range(20):
        for step in steps:
            step()
        torch.cuda.synchronize()
        assert torch.equal(result, wanted)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_captured_chain_too(shape: tuple[int, int, int, int, int]) -> None:
    result, steps = layers(*shape)
    one_by_one(steps)
    wanted = result.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for step in steps:
            step()
    for _ in range(20):
        result.zero_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(result, wanted)


def test_other_streams_wait_for_an_event_behind_a_chain() -> None:
    """An event behind a kernel is behind all of it, although that kernel let the next one start."""
    result, steps = layers(*SHAPES[1])
    one_by_one(steps)
    wanted, side = result.clone(), torch.cuda.Stream()
    copies = []
    for _ in range(10):
        for step in steps:
            step()
        done = torch.cuda.Event()
        done.record()
        with torch.cuda.stream(side):
            side.wait_event(done)
            copies.append(result.clone())
        torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    assert all(torch.equal(copy, wanted) for copy in copies)
