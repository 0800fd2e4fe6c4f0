"""Fused batch norms under torch.compile, by the operators that a GPU has, on CPU tensors: steps are those of torch's
norms, and graphs the same in every process. What the extension does in such graphs: native/test_norms.py.
"""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.utils.checkpoint import checkpoint

from tapestry.kernels.tensors import norm_calls
from tapestry.kernels.torch import fuse_for_inference, fuse_norms

from ..normed import Residual, images


@pytest.fixture
def by_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Norms of CPU tensors are the operators' where those of a GPU's would be, and nothing was compiled before."""
    monkeypatch.setattr(norm_calls, "computed", lambda x: x.is_contiguous(memory_format=torch.channels_last))
    torch._dynamo.reset()
    torch.manual_seed(2)


def alike(
    called: Callable[[Tensor], Tensor], model: nn.Module, before: nn.Module, x: Tensor, atol: float = 1e-4
) -> None:
    """A step of a model that is `called`, and of what it was: results, gradients if they are recorded, and buffers."""
    found = []
    for call, of in ((called, model), (before, before)):
        given = x.clone().requires_grad_()
        y = call(given)
        recorded = torch.is_grad_enabled()
        gradients = torch.autograd.grad(y.square().sum(), [given, *of.parameters()]) if recorded else ()
        found.append((y, gradients, list(of.buffers())))
    (y, slopes, kept), (expected, *others) = found
    torch.testing.assert_close(y, expected)
    for one, other in zip(slopes, others[0], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=atol)
    for one, other in zip(kept, others[1], strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("momentum", [0.1, None])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own
@pytest.mark.usefixtures("by_operators")
def test_a_compiled_model_remembers_what_it_did(backend: str, momentum: float | None) -> None:
    """Three steps, and one without gradients."""
    model = nn.Sequential(nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6, momentum=momentum), nn.SiLU(), Residual(False))
    before = copy.deepcopy(model)
    assert list(fuse_norms(model).taken.values()) == ["silu", "relu", "a residual and relu"]
    graphs: list[str] = []

    def noted(graph: fx.GraphModule, inputs: list[Tensor]) -> Any:
        graphs.append(graph.code)
        compiled: Any = torch._dynamo.lookup_backend(backend)
        return compiled(graph, inputs)

    called = torch.compile(model, backend=noted, fullgraph=True)
    for seed in (1, 2, 3, 4):
        with torch.set_grad_enabled(seed < 4):
            alike(called, model, before, images(torch.float32, seed))
    assert len(graphs) == 2  # with gradients and without
    assert [code.count("= torch.ops.tapestry.batch_norm_act_remembered(") for code in graphs] == [3, 3]


@pytest.mark.parametrize("settings", [{}, {"affine": False}, {"track_running_stats": False}], ids=str)
@pytest.mark.usefixtures("by_operators")
def test_a_compiled_model_of_halves(settings: dict[str, Any]) -> None:
    """Parameters, buffers and gradients are bf16, and as near to f64 as bf16 is."""
    model = nn.Sequential(nn.BatchNorm2d(6, **settings), nn.SiLU(), nn.BatchNorm2d(6, **settings)).bfloat16()
    exact = copy.deepcopy(model).double()
    fuse_norms(model)
    x = images(torch.bfloat16).requires_grad_()
    wide = x.detach().double().requires_grad_()
    found, expected = [], []
    for called, of, given, made in (
        (torch.compile(model, backend="aot_eager", fullgraph=True), model, x, found), (exact, exact, wide, expected),
    ):  # fmt: skip
        y = called(given)
        made += [y, *torch.autograd.grad(y.double().sin().sum(), [given, *of.parameters()]), *of.buffers()]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype in (torch.bfloat16, torch.int64)
        near = 0.03 * max(1.0, float(other.detach().double().abs().max()))
        torch.testing.assert_close(one.double(), other.double(), rtol=0.03, atol=near)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.usefixtures("by_operators")
def test_compiled_blocks_that_are_computed_again(dynamic: bool | None) -> None:
    """Of batches of any size; what they remember they do once, as compiled models do that have torch's norms."""
    model = Residual(False)
    before = copy.deepcopy(model)
    assert len(fuse_norms(model).taken) == 2
    called = torch.compile(
        lambda x: checkpoint(model, x, use_reentrant=False), backend="aot_eager", fullgraph=True, dynamic=dynamic
    )
    for count, seed in ((3, 1), (2, 2), (3, 3)):
        alike(called, model, before, images(torch.float32, seed)[:count], atol=1e-3)


def test_a_rewritten_block_is_compiled_and_traced() -> None:
    model = nn.Sequential(Residual())
    before = copy.deepcopy(model).eval()
    fuse_norms(model)
    x = images(torch.float32)
    torch.testing.assert_close(torch.compile(copy.deepcopy(model).eval(), backend="eager")(x), before(x))
    torch.testing.assert_close(fuse_for_inference(model, torch.float32)(x), before(x))


GRAPH = """
import torch
from torch import nn
from tapestry.kernels.tensors import norm_calls
from tapestry.kernels.torch import NormAct2d
norm_calls.computed = lambda x: True
graphs = []
layer = NormAct2d(nn.BatchNorm2d(6), nn.SiLU())
torch.compile(layer, backend=lambda graph, _: graphs.append(graph.code) or graph)(torch.randn(2, 6, 3, 3))
print(graphs[0])
"""


def test_graphs_are_the_same_in_every_process() -> None:
    """Whatever the order of its sets: else one that is kept on disk would not be found there."""
    made = []
    for seed in "01256":
        ran = subprocess.run(
            [sys.executable, "-c", GRAPH], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        )
        made.append(ran.stdout)
    assert b"batch_norm_act_remembered" in made[0]
    assert len(set(made)) == 1
