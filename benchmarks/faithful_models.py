"""Models of timm and torchvision that take a step of training as they are and fused, on a CPU in f64: what differs.

    python benchmarks/faithful_models.py convnext_atto tv.resnext50_32x4d    # tv.: of torchvision
    python benchmarks/faithful_models.py --each 3 --limit 1200               # so many models of each of timm's modules

Kernels compute nothing there: what is held against the model is all that is done to it, which layers are swapped, how
blocks are rewritten and what a graph for inference says. Exit code 1 where results or gradients differ by more than
rounding. Needs timm, or torchvision for its models; no GPU.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from tapestry.kernels.torch import fuse_for_inference, fuse_for_training

LARGEST = 30_000_000  # parameters of models that are drawn
ROUNDING = {"results": 1e-12, "gradients": 1e-11, "statistics": 1e-14, "evaluated": 1e-12, "inference": 2e-6}
# Batch norms are folded in f32 for inference.


class Compared(NamedTuple):
    """Differences, relative by their norms, between a model and the same one fused: of results of a step of training,
    of the gradient that differs most, of statistics (the largest), of results in evaluation and in fused inference.
    """

    results: float
    gradients: float
    statistics: float
    evaluated: float
    inference: float

    def beyond(self) -> list[str]:
        """Those that are more than rounding."""
        return [name for name, allowed in ROUNDING.items() if not getattr(self, name) <= allowed]


def compared(model: nn.Module, images: Tensor) -> Compared:
    """A step of training of a copy of `model`, in f64, and of one that is fused; then their evaluation."""
    plain = copy.deepcopy(model).double().train()
    for part in plain.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):  # which numbers are drawn depends on how tensors lie
            part.p = 0.0
    fused = copy.deepcopy(plain)
    fuse_for_training(fused)
    if list(dict(plain.named_parameters())) != list(dict(fused.named_parameters())):
        raise AssertionError("parameters have other names")
    (y, gradients), (z, others) = (_step(one, images) for one in (plain, fused))
    pairs = zip(plain.state_dict().values(), fused.state_dict().values(), strict=True)
    statistics = max((float((a.double() - b.double()).abs().max()) for a, b in pairs if a.numel()), default=0.0)
    plain.eval()
    fused.eval()
    with torch.no_grad():
        expected = _joined(plain(images))
        evaluated = _apart(expected, _joined(fused(images)))
        served = [_joined(fuse_for_inference(one, torch.float64)(images)) for one in (plain, fused)]
    whole = sum(float(each.norm()) for each in gradients)
    largest = max(_apart(a, b, least=1e-6 * whole) for a, b in zip(gradients, others, strict=True))
    return Compared(_apart(y, z), largest, statistics, evaluated, max(_apart(expected, found) for found in served))


def _step(model: nn.Module, images: Tensor) -> tuple[Tensor, list[Tensor]]:
    """The result, and the gradients of all parameters; of one that is not used nothing."""
    torch.manual_seed(1)
    y, parameters = _joined(model(images)), list(model.parameters())
    made = torch.autograd.grad(y.sin().sum(), parameters, allow_unused=True)
    return y.detach(), [torch.zeros(0) if each is None else each for each in made]


def _joined(found: Any) -> Tensor:
    """The tensors of a result as one."""
    if isinstance(found, Tensor):
        return found
    parts = found.values() if isinstance(found, dict) else found
    return torch.cat([part.flatten(1) for part in parts if isinstance(part, Tensor)], 1)


def _apart(a: Tensor, b: Tensor, least: float = 0.0) -> float:
    """By the norm of `a`, or what is `least`: the gradient of a bias in front of a batch norm is rounding alone."""
    return float((a - b).norm() / max(float(a.norm()) + 1e-12, least)) if a.numel() or b.numel() else 0.0


def created(name: str) -> tuple[nn.Module, Tensor]:
    """A model with random parameters, none of them 0 or 1 throughout, and two images for it, channels-last."""
    torch.manual_seed(0)
    if name.startswith("tv."):
        import torchvision  # type: ignore[import-not-found, import-untyped, unused-ignore]

        model, size = torchvision.models.get_model(name[3:], weights=None), (3, 299 if "inception" in name else 224)
        shape = (2, size[0], size[1], size[1])
    else:
        import timm  # type: ignore[import-not-found, import-untyped, unused-ignore]

        model = timm.create_model(name)
        shape = (2, *model.default_cfg["input_size"])
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.05 * torch.randn_like(parameter)
        for parameter in model.parameters():
            if parameter.dim() == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return model, torch.randn(shape).double().contiguous(memory_format=torch.channels_last)


def drawn(each: int) -> Iterator[str]:
    """The names of so many models of each of timm's modules, first one of each."""
    import timm
    from timm.models import _registry  # type: ignore[import-not-found, import-untyped, unused-ignore]

    modules: dict[str, list[str]] = {}
    for name in timm.list_models():
        modules.setdefault(_registry._model_to_module[name], []).append(name)
    order = random.Random(7)
    for names in modules.values():
        order.shuffle(names)
    for turn in range(each):
        yield from (names[turn] for _, names in sorted(modules.items()) if turn < len(names))


def main(arguments: Sequence[str] | None = None) -> int:
    """Says what differs, a line a model."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("names", nargs="*")
    options.add_argument("--each", type=int, default=1, help="models of each of timm's modules, where none is named")
    options.add_argument("--limit", type=float, default=3600.0, help="seconds")
    given = options.parse_args(arguments)
    deadline, wrong, count = time.monotonic() + given.limit, 0, 0
    for name in given.names or drawn(given.each):
        if time.monotonic() > deadline:
            break
        try:
            model, images = created(name)
            if not given.names and sum(each.numel() for each in model.parameters()) > LARGEST:
                continue
            found = compared(model, images)
        except Exception as error:
            wrong += 1
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]:.200}", flush=True)
            continue
        count += 1
        beyond = found.beyond()
        wrong += bool(beyond)
        said = ", ".join(f"{what} {value:.1e}" for what, value in found._asdict().items() if value) or "the same bits"
        print(f"{name}: {said}{f' ({beyond} beyond rounding)' if beyond else ''}", flush=True)
    print(f"{count} models compared, {wrong} of all wrong", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
