"""A fused model as models are trained: captured, compiled with graphs, lowered altogether, by several processes' ways.

Each way is held against eager steps of the same fused model, from the same weights, on the same images.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tapestry.kernels.tensors import channel_sums, convolution_calls, native_calls, norm_calls
from tapestry.kernels.torch import fuse_for_training

from .graphs import captured

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream"),
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),
]

STEPS = 6


class Block(nn.Module):
    """An inverted bottleneck: 1 x 1, depthwise, squeeze-and-excitation, 1 x 1, with norms and a residual."""

    def __init__(self, channels: int, wide: int) -> None:
        super().__init__()
        self.up, self.norm1, self.act1 = nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU()
        self.deep, self.norm2 = nn.Conv2d(wide, wide, 5, padding=2, groups=wide), nn.BatchNorm2d(wide)
        self.act2, self.excite = nn.SiLU(), Excite(wide)
        self.down, self.norm3 = nn.Conv2d(wide, channels, 1), nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        y = self.excite(self.act2(self.norm2(self.deep(self.act1(self.norm1(self.up(x)))))))
        out: Tensor = self.norm3(self.down(y)) + x
        return out


class Excite(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reduce, self.expand = nn.Conv2d(channels, 8, 1), nn.Conv2d(8, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.expand(torch.relu(self.reduce(x.mean((2, 3), keepdim=True))))
        return x * torch.sigmoid(gate)


class Scaled(nn.Module):
    """A block with a layer scale and a residual."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.deep, self.gamma = (
            nn.Conv2d(channels, channels, 7, padding=3, groups=channels),
            nn.Parameter(torch.rand(channels)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.deep(x).mul(self.gamma.reshape(1, -1, 1, 1))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.act = nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU()
        self.blocks = nn.Sequential(Block(32, 96), Scaled(32), Block(32, 96))
        self.grouped, self.rows, self.head = nn.Conv2d(32, 96, 3, 2, 1, groups=4), nn.LayerNorm(96), nn.Linear(96, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = self.grouped(self.blocks(self.act(self.norm(self.stem(x)))))
        out: Tensor = self.head(self.rows(y.permute(0, 2, 3, 1)).mean((1, 2)))
        return out


def net() -> Net:
    torch.manual_seed(4)
    made: Net = Net().cuda().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return made


def fused() -> Net:
    made = net()
    report = fuse_for_training(made)
    assert len(report.convolutions.taken) == 5
    assert report.scales == ("blocks.1",)
    assert len(report.norms.taken) == 8
    assert len(report.excitations) == 2
    return made


def images(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    random = torch.Generator("cuda").manual_seed(1)
    x = torch.randn((16, 3, 64, 64), generator=random, device="cuda", dtype=torch.float32).to(dtype)
    return x.contiguous(memory_format=torch.channels_last), torch.arange(16, device="cuda") % 10


def trained(model: nn.Module, called: Callable[[Tensor], Tensor] | None = None) -> list[Tensor]:
    """The losses of some steps of SGD, and what is in the model then."""
    x, labels = images(next(model.parameters()).dtype)
    update, found = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), []
    for _ in range(STEPS):
        update.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=x.dtype is torch.float32, cache_enabled=False):
            y = (model if called is None else called)(x)
        loss = nn.functional.cross_entropy(y.float(), labels)
        loss.backward()
        update.step()
        found.append(loss.detach())
    return [*found, *(value.detach().clone() for value in model.state_dict().values())]


def same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_callables_that_torch_captures() -> None:
    """`torch.cuda.make_graphed_callables`: every replay follows the weights, and has the bits of eager steps."""
    native_calls.wait()
    expected, model = trained(fused()), fused()
    before = copy.deepcopy(model.state_dict())
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        called = torch.cuda.make_graphed_callables(model, (images()[0],))
    model.load_state_dict(before)  # captured steps are steps, of which buffers know
    same(trained(model, called), expected)


def test_a_step_that_is_captured_whole() -> None:
    """With the optimizer in it."""
    expected, model = trained(fused()), fused()
    (x, labels), update = images(), torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    saved = copy.deepcopy(model.state_dict())

    def step() -> Tensor:
        update.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            y = model(x)
        loss = nn.functional.cross_entropy(y.float(), labels)
        loss.backward()
        update.step()
        return loss

    graph, loss = captured(step)
    model.load_state_dict(saved)
    for state in update.state.values():
        state["momentum_buffer"].zero_()
    found = []
    for _ in range(STEPS):
        graph.replay()
        found.append(loss.detach().clone())
    for one, other in zip([*found, *model.state_dict().values()], expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)  # momentum begins with 0 here, not with nothing


@pytest.fixture
def group() -> Iterator[None]:
    """One process, which is a group."""
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(20000 + os.getpid() % 20000))
    dist.init_process_group("nccl", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


# Of torch's own 1 x 1 layers, with or without ours.
@pytest.mark.filterwarnings("ignore:Grad strides do not match bucket view strides")
@pytest.mark.parametrize("settings", [{}, {"gradient_as_bucket_view": True, "static_graph": True}], ids=str)
def test_in_parallel(group: None, settings: dict[str, Any]) -> None:
    expected, model = trained(fused()), fused()
    called = nn.parallel.DistributedDataParallel(model, device_ids=[0], **settings)
    same(trained(model, called), expected)


def test_fully_sharded(group: None) -> None:
    """Whose parameters come and go, in torch's own order: that is all that torch shards."""
    from torch.distributed.fsdp import fully_shard

    expected, model = trained(fused().to(memory_format=torch.contiguous_format)), fused()  # type: ignore[call-overload]
    model = model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    found = [getattr(each, "full_tensor", lambda each=each: each)() for each in trained(model)]
    same(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_model_of_halves_altogether(dtype: torch.dtype) -> None:
    """Parameters and buffers, without autocast: as near to f64 as torch's own layers are."""
    exact = net().double()
    exact.load_state_dict(net().to(dtype).state_dict())
    x, labels = images(dtype)

    def gradients(model: nn.Module, x: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(model(x).double(), labels)
        return torch.cat([each.double().flatten() for each in torch.autograd.grad(loss, list(model.parameters()))])

    wanted = gradients(exact, x.double())
    errors = [float((gradients(model.to(dtype), x) - wanted).norm()) for model in (fused(), net())]
    assert errors[0] <= 1.2 * errors[1]
    assert errors[1] <= 0.3 * float(wanted.norm())


def test_a_model_of_halves_is_called_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some steps convolutions, batch norms and sums of biases are launched by the extension."""
    if native_calls.wait() != "ready":
        pytest.skip(native_calls.state())
    model, asked = fused().to(torch.bfloat16), []
    expected = trained(model)[STEPS - 1]
    for where, what in (
        (convolution_calls, "forward"), (convolution_calls, "gradients"), (norm_calls, "forward"),
        (norm_calls, "gradient"), (channel_sums, "channel_sums"),
    ):  # fmt: skip
        before = getattr(where, what)
        monkeypatch.setattr(where, what, lambda *given, before=before: (asked.append(before), before(*given))[1])
    assert trained(model)[0] < expected
    assert not asked


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:TensorFloat32")
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # with which torch begins
def test_compiled_with_graphs() -> None:
    """`mode="reduce-overhead"`, as inductor computes what is not ours: losses of six steps."""
    expected, model = trained(fused()), fused()
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)

    def called(x: Tensor) -> Tensor:
        torch.compiler.cudagraph_mark_step_begin()
        made: Tensor = compiled(x)
        return made

    found = trained(model, called)
    for one, other in zip(found[:STEPS], expected[:STEPS], strict=True):
        torch.testing.assert_close(one, other, rtol=5e-3, atol=5e-3)
