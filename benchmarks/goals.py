"""Steps on four and eight H200: planned, proved and simulated beside what is wanted. Of eight no machine was there.

    python benchmarks/goals.py
    python benchmarks/goals.py --only "forward*" --doc docs/planner.md

Prints the table of docs/planner.md. All figures are predictions on the packaged machines `h200x4` and `h200x8`, whose
GPUs were measured one by one, and the links of eight by hand. A line of several plans holds the first against the
others: the same program on one GPU, or as people shard it, by pins.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from gpu_rows import bound_program  # type: ignore[import-not-found, unused-ignore]
from marked import into  # type: ignore[import-not-found, unused-ignore]

# isort: split
import llama  # type: ignore[import-not-found, unused-ignore]  # in a folder that gpu_rows has put on the path

import tapestry as tp
from tapestry import Tensor, bf16
from tapestry.planner import plan
from tapestry.planner.search.rivals import AXIS
from tapestry.program import Pin, Program

MACHINES = {4: "h200x4"}  # by GPUs; h200x8 for all others
LAYERS, FFN, THETA = 8, 14336, 5e5
UNTIL = 600.0  # seconds for one plan: the clock is to decide nothing


@tp.program
def gradients(x: bf16[Tensor, "t=8192 d=4096"], target: bf16[Tensor, "t d"]) -> dict[str, Tensor]:
    """Of all weights, which are given and not changed."""

    @tp.program
    def loss(x: bf16[Tensor, "t d"], target: bf16[Tensor, "t d"]) -> Tensor:
        h = llama.decoder(x, layers=LAYERS, heads=32, kv_heads=8, ffn=FFN, theta=THETA)
        return away(tp.rms_norm(h, llama.weight("norm", d=4096)), target)

    value, grads = tp.value_and_grad(loss, wrt=("layers.*", "norm"))(x, target)
    return {"loss": value} | {f"d_{name}": each for name, each in grads.items()}


def away(result: Tensor, target: Tensor) -> Tensor:
    """The mean square of what is missing."""
    missing = result.astype("f32") - target.astype("f32")
    return tp.mean(missing * missing)


@tp.program
def train_sequences(x: bf16[Tensor, "b t=8192 d=4096"], target: bf16[Tensor, "b t d"]) -> dict[str, Tensor]:
    """A step of AdamW on several sequences, of which none sees another."""
    weights: list[Tensor] = []

    def learned(name: str, **axes: int) -> Tensor:
        weights.append(tp.state(name, "bf16", tuple(axes.values()), axes=tuple(axes)))
        return weights[-1]

    @tp.program
    def loss(x: bf16[Tensor, "b t d"], target: bf16[Tensor, "b t d"]) -> Tensor:
        h = x
        for layer in range(LAYERS):
            with tp.name(f"layers.{layer}"):
                h = h + attend(tp.rms_norm(h, learned("attention_norm", d=4096)), learned)
                h = h + mlp(tp.rms_norm(h, learned("mlp_norm", d=4096)), learned)
        return away(tp.rms_norm(h, learned("norm", d=4096)), target)

    value, grads = tp.value_and_grad(loss, wrt=("layers.*", "norm"))(x, target)
    tp.optim.adamw(dict(zip(grads, weights, strict=True)), grads, rate=1e-4)
    return {"loss": value}


def attend(x: Tensor, learned: llama.Declare) -> Tensor:
    """Causal attention of each sequence, as in `examples/llama.py`."""
    q = tp.einsum("btd,dhe->bthe", x, learned("wq", d=4096, h=32, e=128), name="q")
    k, v = (tp.einsum("btd,dge->btge", x, learned(f"w{n}", d=4096, g=8, e=128), name=n) for n in "kv")
    q, k = tp.rotary(q, base=THETA, name="q_rotary"), tp.rotary(k, base=THETA, name="k_rotary")
    seen = tp.attention(q, k, v, causal=True, name="attention")
    return tp.einsum("bthe,hed->btd", seen, learned("wo", h=32, e=128, d=4096), name="o")


def mlp(x: Tensor, learned: llama.Declare) -> Tensor:
    """The gated MLP."""
    gate, up = (tp.einsum("btd,df->btf", x, learned(f"w_{n}", d=4096, f=FFN), name=n) for n in ("gate", "up"))
    return tp.einsum("btf,fd->btd", tp.silu(gate) * up, learned("w_down", f=FFN, d=4096), name="down")


def sequences_apart(program: Program, *, states_cut: bool) -> list[Pin]:
    """Each rank has its sequences; weights and what the optimizer keeps are whole on all (DDP), or cut (FSDP)."""
    found = []
    for op in program.operations:
        if "b" in op.extents or not states_cut:
            found.append(Pin("op", op.name, ((AXIS, "b" if "b" in op.extents else None),)))
    for tensor in program.of_role("input"):
        found.append(Pin("tensor", tensor.name, ((AXIS, "b"),)))
    for tensor in program.of_role("state"):
        longest = max(tensor.axes, key=lambda axis: tensor.shape[tensor.axes.index(axis)], default=None)
        found.append(Pin("tensor", tensor.name, ((AXIS, longest if states_cut else None),)))
    return found


@dataclass(frozen=True)
class Goal:
    """A step, and the milliseconds that it is to take at most, or how many times as quick as ``beside`` it is to be.

    ``beside``: "one GPU", or "DDP and FSDP".
    """

    title: str
    example: str
    program: str
    gpus: int
    extents: dict[str, int] = field(default_factory=dict)
    memory: str | None = None
    most_ms: float | None = None
    times: float = 0.0
    beside: str = ""

    def bound(self) -> Program:
        return bound_program(self.example, self.program, self.extents)

    def others(self, program: Program) -> Iterator[tuple[str, int, Sequence[Pin]]]:
        """Name, GPUs and pins of what it is held against."""
        if self.beside == "one GPU":
            yield "one GPU", 1, ()
        elif self.beside:
            yield "DDP", self.gpus, sequences_apart(program, states_cut=False)
            yield "FSDP", self.gpus, sequences_apart(program, states_cut=True)


LONG, SHORT = {"layers": LAYERS, "tokens": 32768}, {"layers": LAYERS, "tokens": 8192}
GOALS = (
    Goal("forward, 8,192 tokens", "llama", "forward", 8, SHORT, most_ms=9),
    Goal("forward, 8,192 tokens, 1,200 MiB a GPU", "llama", "forward", 8, SHORT, "1200MiB", most_ms=11),
    Goal("forward and backward, 8,192 tokens", "goals", "gradients", 8, most_ms=27),
    Goal("forward, 8,192 tokens", "llama", "forward", 4, SHORT, most_ms=14),
    Goal("forward, 32,768 tokens", "llama", "forward", 4, LONG, most_ms=80),
    Goal("one image of 2,048 x 2,048, ConvNeXt-like", "convnet", "forward", 8, {"n": 1, "y": 2048, "x": 2048},
         times=7, beside="one GPU"),
    Goal("a step of AdamW on 8 sequences of 8,192 tokens", "goals", "train_sequences", 8, {"b": 8}, times=1.1,
         beside="DDP and FSDP"),
)  # fmt: skip


def planned(goal: Goal, program: Program, gpus: int, pins: Sequence[Pin] = ()) -> tuple[float, float]:
    """Milliseconds of a plan that was proved, and its bound; 0 for none."""
    memory = {"hbm": goal.memory} if goal.memory else None
    made = plan(program, MACHINES.get(gpus, "h200x8"), mesh=(gpus,), memory=memory, pins=pins, time_limit=UNTIL)
    report = made.check()
    if not report.ok:
        raise SystemExit(f"{goal.title}: {report}")
    bound = made.document.bound
    return made.simulate().makespan_s * 1e3, 0.0 if bound is None else bound.bound_s * 1e3


def line(goal: Goal) -> str:
    """A line of the table."""
    program = goal.bound()
    took, bound = planned(goal, program, goal.gpus)
    others = {name: planned(goal, program, gpus, pins)[0] for name, gpus, pins in goal.others(program)}
    wanted = f"{goal.most_ms:g} ms" if goal.most_ms else f"{goal.times:g} times"
    beside = ", ".join(f"{name} {ms:.3g} ms" for name, ms in others.items())
    ratio = f"{min(others.values()) / took:.2f} times" if others else ""
    reached = took <= goal.most_ms if goal.most_ms else min(others.values()) >= goal.times * took
    predicted, said = (f"{took:.3g} ms", f"{bound:.3g} ms"), "yes" if reached else "no"
    cells = [goal.title, goal.gpus, *predicted, beside, ratio, wanted, said]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = ArgumentParser(description="Steps on four and eight H200, predicted beside what is wanted of them.")
    parser.add_argument("--only", default="*", help="titles like this")
    parser.add_argument("--doc", type=Path, help="a Markdown file to put the table into")
    options = parser.parse_args()
    lines = [
        "| step | GPUs | predicted | bound | beside | as quick as the best of them | wanted | reached |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: | --- |",
    ]
    for goal in GOALS:
        if fnmatchcase(goal.title, options.only):
            lines.append(line(goal))
            print(lines[-1], flush=True)
    if options.doc is not None:
        into(options.doc, "goals", "\n".join(lines))


if __name__ == "__main__":
    main()
