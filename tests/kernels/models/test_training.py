"""All parts of `fuse_for_training` in one model: what it computes, whatever the order, and what is said of it."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Callable
from itertools import permutations
from typing import Any
from zlib import crc32

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tapestry.kernels.errors import WrongValue
from tapestry.kernels.tensors import native_calls
from tapestry.kernels.torch import (
    fuse_biases,
    fuse_excitations,
    fuse_for_inference,
    fuse_for_training,
    fuse_norms,
    fuse_resampling,
    lay_out_state,
    replace_convolutions,
)

from .test_excitations import Excite

PARTS: tuple[Callable[[nn.Module], Any], ...] = (
    replace_convolutions, fuse_norms, fuse_excitations, fuse_biases, fuse_resampling,
)  # fmt: skip


class Block(nn.Module):
    """A grouped convolution between two of 1 x 1, with norms, an excitation and a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm1, self.act1 = nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
        self.grouped, self.norm2, self.act2 = nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8), nn.SiLU()
        self.excite = Excite()
        self.last, self.norm3, self.act3 = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.act1(self.norm1(self.first(x)))
        y = self.excite(self.act2(self.norm2(self.grouped(y))))
        out: Tensor = self.act3(self.norm3(self.last(y)) + x)
        return out


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.act = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        self.pool, self.mean = nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(2, ceil_mode=True)
        self.blocks = nn.Sequential(Block(), Block())
        self.rows, self.head = nn.LayerNorm(8), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.mean(self.blocks(self.pool(self.act(self.norm(self.stem(x))))))
        out: Tensor = self.head(self.rows(y.mean((2, 3))))
        return out


def net() -> Net:
    torch.manual_seed(3)
    made = Net().double()
    for part in made.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.weight)
            nn.init.normal_(part.bias)
    return made


def images() -> Tensor:
    random = torch.Generator().manual_seed(1)
    return torch.randn((9, 3, 12, 10), generator=random, dtype=torch.float64).contiguous(
        memory_format=torch.channels_last
    )


def steps(model: nn.Module) -> list[Tensor]:
    """Results, gradients and buffers of two steps of training, and results in evaluation."""
    optimizer, found = torch.optim.SGD(model.parameters(), 0.1), []
    model.train()
    for _ in range(2):
        optimizer.zero_grad()
        x = images().requires_grad_()
        y = model(x)
        y.square().sum().backward()
        gradients = [value.grad for value in (x, *model.parameters())]
        found += [y.detach(), *(value.clone() for value in gradients if value is not None)]
        assert len(found) % (len(gradients) + 1) == 0, "a gradient is missing"
        optimizer.step()
    model.eval()
    with torch.no_grad():
        found += [value.double() for value in model.buffers()] + [model(images())]
    return [value.clone() for value in found]


def gradients(call: Callable[[Tensor], Tensor], model: nn.Module) -> list[Tensor]:
    """A result, and the gradients of a sum of it."""
    x = images().requires_grad_()
    y = call(x)
    y.square().sum().backward()
    found = [y, x.grad, *(value.grad for value in model.parameters())]
    model.zero_grad()
    return [value for value in found if value is not None]


def alike(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_model_computes_what_it_did() -> None:
    model, before = net(), net()
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    made = fuse_for_training(model, images())
    for name, value in (*model.named_parameters(), *model.named_buffers()):
        assert named.pop(name) is value
    assert not named
    taken = [f"blocks.{block}.{name}" for block in (0, 1) for name in ("first", "grouped", "last")]
    assert made.convolutions.taken == ("stem", *taken)
    assert {name: act for name, act in made.norms.taken.items() if "blocks.1" not in name} == {
        "norm": "relu", "blocks.0.norm1": "relu", "blocks.0.norm2": "silu", "blocks.0.norm3": "a residual and relu",
        "rows": "",
    }  # fmt: skip
    assert made.excitations == ("blocks.0.excite", "blocks.1.excite")
    assert made.resampling == ("pool", "mean")
    left = ("reduce", "expand")
    assert made.biases == (*(f"blocks.{block}.excite.{name}" for block in (0, 1) for name in left), "head")
    expected = steps(before)
    alike(steps(copy.deepcopy(model)), expected)
    alike(steps(pickle.loads(pickle.dumps(model))), expected)
    alike(steps(model), expected)


def test_graphs_of_torch_compile_have_no_breaks() -> None:
    model = net()
    fuse_for_training(model)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for one, other in zip(gradients(compiled, model), gradients(before := net(), before), strict=True):
        torch.testing.assert_close(one, other)


def test_graphs_of_torch_compile_do_not_ask_for_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while a model is compiled, or later: neither is anything a graph depends on."""
    model, compiled = net(), []
    fuse_for_training(model)
    for name in native_calls.CALLS:
        monkeypatch.setattr(native_calls, name, None)

    def arrives(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        compiled.append(graph)
        for name in native_calls.CALLS:
            monkeypatch.setattr(native_calls, name, crc32)  # as what the extension has, a function of C's
        return graph

    called = torch.compile(model, backend=arrives, fullgraph=True)
    expected = called(images())
    torch.testing.assert_close(called(images()), expected)
    assert len(compiled) == 1


@pytest.mark.parametrize("reentrant", [False, True])
def test_blocks_may_be_computed_again(reentrant: bool) -> None:
    model, before = net(), net()
    fuse_for_training(model)

    def again(x: Tensor) -> Any:
        y = model.pool(model.act(model.norm(model.stem(x))))
        for block in model.blocks:
            y = checkpoint(block, y, use_reentrant=reentrant)
        return model.head(model.rows(model.mean(y).mean((2, 3))))

    for one, other in zip(gradients(again, model), gradients(before, before), strict=True):
        torch.testing.assert_close(one, other)


def test_a_second_call_finds_nothing() -> None:
    model = net()
    fuse_for_training(model)
    again = fuse_for_training(model)
    assert (again.convolutions.taken, again.norms.taken, again.excitations, again.biases) == ((), {}, (), ())
    assert again.resampling == ()
    alike(steps(model), steps(net()))


def test_parts_in_any_order() -> None:
    """It is the same layers in the end; of the reverse order, what they compute, too."""
    made = net()
    fuse_for_training(made)
    kinds = [(name, type(part)) for name, part in made.named_modules()]
    for order in permutations(PARTS):
        model = net()
        for part in order:
            part(model)
        assert [(name, type(part)) for name, part in model.named_modules()] == kinds
    alike(steps(model), steps(net()))  # of the last of them, which is the reverse


def test_inference_after_training() -> None:
    model, before = net(), net()
    fuse_for_training(model)
    alike(steps(model), steps(before))
    x = images()
    with torch.no_grad():
        torch.testing.assert_close(fuse_for_inference(model, torch.float64)(x), before(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("off", ["norms", "excitations", "biases", "resampling"])
def test_parts_are_switched_off(off: str) -> None:
    model = net()
    switched: dict[str, Any] = {off: False}
    made = fuse_for_training(model, **switched)
    assert not (made.norms.taken if off == "norms" else getattr(made, off))
    assert all(getattr(made, part) for part in {"excitations", "biases", "resampling"} - {off})
    alike(steps(model), steps(net()))


def test_report() -> None:
    said = str(fuse_for_training(net(), biases=False)).splitlines()
    assert said[0] == "7 convolutions taken, 4 left"
    assert "8 norms taken, 0 left" in said
    excitations = ["2 squeeze-and-excitations taken", "  blocks.0.excite", "  blocks.1.excite"]
    resampling = ["2 resampling layers taken", "  pool", "  mean"]
    assert said[-8:] == [*excitations, "0 layer scales taken", "0 biases taken", *resampling]


def test_a_gpu_nobody_knows_changes_nothing() -> None:
    model = net()
    with pytest.raises(WrongValue, match="no such GPU"):
        fuse_for_training(model, images(), gpu="Z80")
    assert type(model.blocks[0].grouped) is nn.Conv2d
    assert type(model.norm) is nn.BatchNorm2d


class Indexed(nn.Module):
    """As models that read a list of layers from a file: each is told where its images come from."""

    def __init__(self) -> None:
        super().__init__()
        layers = [
            nn.Conv2d(16, 16, 3, padding=1, groups=2), nn.BatchNorm2d(16), nn.ReLU(), nn.GELU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 8, 1), nn.Flatten(2), nn.LayerNorm(16),
        ]  # fmt: skip
        self.layers = nn.Sequential(*layers)
        for number, layer in enumerate(self.layers):
            layer.index, layer.before = number, -1  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            assert (layer.index, layer.before) == (number, -1)
            x = layer(x)
        return x


def test_what_layers_were_given_stays() -> None:
    """Attributes, parameters, buffers and hooks of state_dicts."""
    model, called = Indexed(), []
    for number in (0, 1, 2, 3, 5, 7):  # the activations are left so
        layer = model.layers[number]
        layer.register_buffer("mask", torch.ones(3))
        layer.register_buffer("scratch", torch.ones(3), persistent=False)
        layer.register_parameter("extra", nn.Parameter(torch.ones(2)))
    x = torch.randn(2, 16, 8, 8)
    before, state, names = model(x), copy.deepcopy(model.state_dict()), [name for name, _ in model.named_parameters()]
    fuse_for_training(model)
    torch.testing.assert_close(model(x), before)
    assert list(model.state_dict()) == list(state)
    assert [name for name, _ in model.named_parameters()] == names
    assert all(model.layers[number].index == number for number in range(8))
    assert len([name for name, _ in model.named_buffers() if name.endswith("scratch")]) == 6
    model = Indexed()
    model.layers[2].inplace = True
    fuse_for_training(model)
    assert isinstance(model.layers[2], nn.Identity)
    assert (model.layers[2].index, hasattr(model.layers[2], "inplace")) == (2, False)  # it writes nowhere
    handles = []
    again = Indexed()
    for layer in (*again.layers[:2], again.layers[3], again.layers[5], again.layers[7]):
        handles.append(layer.register_load_state_dict_pre_hook(lambda part, *_: called.append(part)))
        handles.append(layer.register_state_dict_post_hook(lambda part, *_: called.append(part)))
    fuse_for_training(again)
    gc.collect()
    again.load_state_dict(again.state_dict())
    hung = [*again.layers[:2], again.layers[3], again.layers[5], again.layers[7]]
    assert called == [*hung, *hung]
    for handle in handles:
        handle.remove()
    again.load_state_dict(again.state_dict())
    assert len(called) == 10


@pytest.mark.parametrize("loaded", [False, True])
def test_an_optimizers_state_from_before(loaded: bool) -> None:
    torch.manual_seed(3)
    images = torch.randn(2, 16, 6, 6)
    theirs = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(16, 8, 3))
    made = []
    for fuse in (False, True):
        model = copy.deepcopy(theirs)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=True)
        for step in range(6):
            if step == 3 and fuse:
                fuse_for_training(model)
                if loaded:
                    state = copy.deepcopy(optimizer.state_dict())
                    optimizer = torch.optim.AdamW(model.parameters(), 1e-2, fused=True)
                    optimizer.load_state_dict(state)
                assert lay_out_state(optimizer) == 4  # two of each filter
                assert lay_out_state(optimizer) == 0
            model(images).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        made.append(list(model.parameters()))
    for one, other in zip(*made, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
