"""Host time of one convolution layer through torch: what the processor spends until the GPU has its work.

    python benchmarks/host_time.py [--json results.json]
    TAPESTRY_NATIVE=off python benchmarks/host_time.py

Needs a GPU and torch; takes less than a minute. Prints microseconds a call, torch's own layer beside ours, for one
3 x 3 layer of 64 channels in groups of 8 on [8, 64, 28, 28] and a depthwise one. The GPU is waited for between rounds,
never within one, and the rounds are short enough not to fill its queue.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

ROUNDS, CALLS = 15, 60
TARGETS = {"direct, out given": 6.0, "layer forward": 20.0, "layer forward + backward": 320.0}


@dataclass
class Case:
    """One layer, its twin of torch's, and operands."""

    name: str
    channels: int
    groups: int
    filter_size: int
    dtype: torch.dtype = torch.bfloat16
    rows: list[tuple[str, float | None, float | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        from tapestry.kernels.torch import GroupedConv2d

        torch.manual_seed(0)
        steps: dict[str, Any] = {"padding": self.filter_size // 2, "groups": self.groups, "bias": False}
        where: dict[str, Any] = {"device": "cuda", "dtype": self.dtype}
        self.theirs = nn.Conv2d(self.channels, self.channels, self.filter_size, **steps, **where)
        self.ours = GroupedConv2d(self.channels, self.channels, self.filter_size, **steps, **where)
        for layer in (self.theirs, self.ours):
            layer.to(memory_format=torch.channels_last)
        self.ours.load_state_dict(self.theirs.state_dict())
        x = torch.randn(8, self.channels, 28, 28, **where).contiguous(memory_format=torch.channels_last)
        self.x, self.dy = x.requires_grad_(), torch.randn_like(x)

    def note(self, what: str, theirs: Callable[[], Any] | None, ours: Callable[[], Any] | None) -> None:
        """Time both and keep the row."""
        self.rows.append((what, theirs and host_us(theirs), ours and host_us(ours)))


def host_us(call: Callable[[], Any]) -> float:
    """Median over rounds of the microseconds of a call on the host."""
    for _ in range(5):
        call()
    found = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begun = perf_counter()
        for _ in range(CALLS):
            call()
        found.append((perf_counter() - begun) / CALLS * 1e6)
    torch.cuda.synchronize()
    return statistics.median(found)


def first_work_of_a_thread(case: Case) -> None:
    """Autograd's thread has no context yet when its first work is ours."""
    case.ours(case.x).backward(case.dy)
    torch.cuda.synchronize()


def values(case: Case) -> None:
    """Results and gradients beside f32 ones, so that what is timed is right."""
    wide = [t.detach().float().requires_grad_() for t in (case.x, case.ours.weight)]
    y = nn.functional.conv2d(*wide, padding=case.filter_size // 2, groups=case.groups)
    expected = [y, *torch.autograd.grad(y, wide, case.dy.float())]
    mine = case.ours(case.x)
    got = [mine, *torch.autograd.grad(mine, [case.x, case.ours.weight], case.dy)]
    for what, a, b in zip(("y", "dx", "dw"), got, expected, strict=True):
        error = float((a.float() - b).detach().abs().max() / b.detach().abs().max())
        print(f"  {case.name}: {what} differs by {error:.1e} of the largest value")
        if error > 0.02:
            raise AssertionError(f"{what} is wrong")


def double_backward(case: Case) -> None:
    """A gradient of a gradient goes through."""
    y = case.ours(case.x)
    (dx,) = torch.autograd.grad(y, case.x, case.dy.requires_grad_(), create_graph=True)
    torch.autograd.grad(dx.float().square().sum(), [case.dy, case.ours.weight])
    case.dy.requires_grad_(False)


def direct(case: Case) -> None:
    """Calls of tapestry.kernels.conv2d with everything given."""
    from tapestry.kernels.conv2d import (
        conv2d,
        conv2d_input_gradient,
        conv2d_weight_gradient,
        weight_gradient_workspace,
    )

    def rows(tensor: Tensor) -> Tensor:
        return tensor.detach().permute(0, 2, 3, 1)

    x, w, dy = rows(case.x), rows(case.ours.weight), rows(case.dy)
    y, dw, pad = torch.empty_like(x), torch.empty_like(w), case.filter_size // 2
    taps, steps = (case.filter_size, case.filter_size), {"groups": case.groups, "padding": pad}
    size = weight_gradient_workspace(x, dy, filter=taps, **steps)
    room = torch.empty(size, dtype=torch.uint8, device="cuda") if size else None
    case.note("direct, out given", None, lambda: conv2d(x, w, out=y, **steps))
    case.note("direct, new result", None, lambda: conv2d(x, w, **steps))
    case.note("direct input gradient", None, lambda: conv2d_input_gradient(dy, w, shape=x.shape, out=y, **steps))
    weights = {"filter": taps, "out": dw, "workspace": room, **steps}
    case.note("direct weight gradient", None, lambda: conv2d_weight_gradient(x, dy, **weights))


def forward(case: Case) -> None:
    """Without and with autograd's bookkeeping; and the operator alone."""
    operator, sides = torch.ops.tapestry.grouped_conv2d, [case.filter_size // 2] * 4
    with torch.no_grad():
        case.note("layer forward", lambda: case.theirs(case.x), lambda: case.ours(case.x))
        case.note(
            "operator forward",
            None,
            lambda: operator(case.x, case.ours.weight, None, [1, 1], sides, [1, 1], case.groups),
        )
    case.note("layer forward, recorded", lambda: case.theirs(case.x), lambda: case.ours(case.x))


def training(layer: nn.Module, case: Case) -> Callable[[], None]:
    def step() -> None:
        layer(case.x).backward(case.dy)
        case.x.grad = layer.weight.grad = None

    return step


def forward_and_backward(case: Case) -> None:
    case.note("layer forward + backward", training(case.theirs, case), training(case.ours, case))


def operators(case: Case) -> None:
    """Those of torch.compile's graphs, as such graphs call them, with an f32 filter."""
    from tapestry.kernels.tensors.geometry import packed
    from tapestry.kernels.tensors.operators import gradients, lowered

    number = packed((1, 1), (case.filter_size // 2,) * 4, (1, 1))
    x, w, dy = case.x.detach(), case.ours.weight.detach(), case.dy
    with torch.no_grad():
        for what, given in (("", w), (", f32 filter", w.float())):
            _, taps = lowered(x, given, None, number, case.groups)
            case.note(f"graph's forward{what}", None, lambda w=given: lowered(x, w, None, number, case.groups))
            case.note(
                f"graph's gradients{what}",
                None,
                lambda w=given, taps=taps: gradients(x, dy, w, taps, number, case.groups),
            )


def autocast(case: Case) -> None:
    """The same from f32 parameters and input."""
    from copy import deepcopy

    theirs, ours = deepcopy(case.theirs).float(), deepcopy(case.ours).float()
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        case.note("autocast forward", lambda: theirs(case.x), lambda: ours(case.x))
    with torch.autocast("cuda", torch.bfloat16):
        case.note("autocast forward, recorded", lambda: theirs(case.x), lambda: ours(case.x))
    x = case.x.detach().float().requires_grad_()

    def step(layer: nn.Module) -> Callable[[], None]:
        def run() -> None:
            with torch.autocast("cuda", torch.bfloat16):
                y = layer(x)
            y.backward(case.dy)
            x.grad = layer.weight.grad = None

        return run

    case.note("autocast forward + backward", step(theirs), step(ours))


PARTS = (
    first_work_of_a_thread, values, double_backward, direct, forward, forward_and_backward, operators, autocast,
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="where the figures go too")
    path, failed, begun = parser.parse_args().json, 0, perf_counter()
    from tapestry.kernels.tensors import native_calls

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, µs a call on the host", flush=True)
    native = native_calls.wait()
    print(f"native calls: {native}, after {perf_counter() - begun:.0f} s", flush=True)
    cases = []
    for settings in (("width 8", 64, 8, 3), ("depthwise", 64, 64, 3)):
        case = Case(*settings)
        cases.append(case)
        for part in PARTS:
            try:
                part(case)
            except Exception:
                failed += 1
                print(f"FAILED {case.name}: {part.__name__}\n{traceback.format_exc()}", flush=True)
        print(f"{case.name:<12}{'':<32}{'torch':>9}{'ours':>9}{'target':>9}")
        for what, theirs, ours in case.rows:
            shown = [f"{us:9.1f}" if us is not None else f"{'-':>9}" for us in (theirs, ours, TARGETS.get(what))]
            print(f"{'':<12}{what:<32}{''.join(shown)}", flush=True)
    print(f"{perf_counter() - begun:.0f} s, {failed} failed")
    if path:
        path.write_text(json.dumps({case.name: case.rows for case in cases}, indent=1), encoding="utf-8")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
