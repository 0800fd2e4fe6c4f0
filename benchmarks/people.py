"""Steps of eight Llama-8B-shaped layers as people write them by hand, predicted on packaged machines.

    python benchmarks/people.py

Prints the table of docs/planner.md. Measured on H200 with torch 2.11 and NCCL, eager but where said, steps one at a
time; what is predicted has the operations of these steps, each by itself: the activation apart from the product after
it, no rotation of heads, and for context parallelism keys and values put in order, copied for every head, and the two
copies that put what attention leaves together. The last columns are the same plans on machines on which attention and
all that goes element by element take what torch's kernels took (`TORCH`); products and transfers are the machine's.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from gpu_rows import ROOT  # type: ignore[import-not-found, unused-ignore]

sys.path.insert(0, str(ROOT / "examples"))

import llama  # type: ignore[import-not-found, unused-ignore]

import tapestry as tp
from tapestry import Tensor, anyfloat, bf16
from tapestry.planner import load_machine, plan
from tapestry.planner.machine import Machine, OperationCurve
from tapestry.planner.search.rivals import AXIS, rivals
from tapestry.program import Pin, Program
from tapestry.space import Box, count_points

MEGATRON, CONTEXT = "Megatron with sequence parallelism", "context parallel, zigzag"
WHOLE = ("*.ordered*", "*.each*")  # what every rank does with all keys and values


# Microseconds of torch's kernels on one of two GPUs in these very steps of 8,192 tokens, by torch's profiler on
# 2026-11-22: for half of the points of an operation. What torch does not do takes nothing.
TORCH = {
    "Megatron": {"attention.state": 556.4, "attention.finish": 1e-3, "activated": 177.3, "gated": 172.0},
    CONTEXT: {
        "attention.state": 923.3, "attention.finish": 1e-3, "activated": 173.5, "gated": 169.5, "ordered_k": 9.0,
        "ordered_v": 9.0, "each_k": 86.7, "each_v": 86.7, "joined": 77.5, "turned": 63.1,
    },
}  # fmt: skip
TORCH[MEGATRON] = TORCH["Megatron"]
PROFILED = 8192


@dataclass(frozen=True)
class Step:
    """What was measured, in milliseconds, and the pins that shard it so."""

    title: str
    gpus: int
    tokens: int
    measured_ms: float
    rival: str | None = None


STEPS = (
    Step("one GPU, torch.compile", 1, 8192, 52.3),
    Step("Megatron", 2, 8192, 32.5, "Megatron"),
    Step("Megatron, sequence parallelism", 4, 8192, 20.3, MEGATRON),
    Step("Megatron, sequence parallelism", 8, 8192, 13.9, MEGATRON),
    Step("Megatron, sequence parallelism", 4, 32768, 98.9, MEGATRON),
    Step("context parallel", 2, 8192, 34.5, CONTEXT),
    Step("context parallel", 4, 8192, 18.6, CONTEXT),
)


@tp.op
def activated(joint: anyfloat[Tensor, "t f c"]) -> anyfloat[Tensor, "t f"]:
    """The first half of a joint product."""
    t, f = tp.indices("t f")
    return tp.silu(joint[t, f, 0])


@tp.op
def gated(active: anyfloat[Tensor, "t f"], joint: anyfloat[Tensor, "t f c"]) -> anyfloat[Tensor, "t f"]:
    """Times its second half."""
    t, f = tp.indices("t f")
    return active[t, f] * joint[t, f, 1]


@tp.op
def copied(x: anyfloat[Tensor, "t h e"]) -> anyfloat[Tensor, "t h e"]:
    """The same elsewhere."""
    t, h, e = tp.indices("t h e")
    return x[t, h, e]


def attend(x: Tensor, *, gathers: bool) -> Tensor:
    """Causal attention over 32 heads, 8 of keys, each of 128 elements."""
    q = tp.einsum("td,dhe->the", x, llama.weight("wq", d=4096, h=32, e=128), name="q")
    k, v = (tp.einsum("td,dge->tge", x, llama.weight(f"w{n}", d=4096, g=8, e=128), name=n) for n in "kv")
    if gathers:
        ordered = [copied(each, name=f"ordered_{name}") for name, each in (("k", k), ("v", v))]
        k, v = (
            copied(tp.repeat_interleave(each, 4, axis=1), name=f"each_{name}")
            for name, each in zip("kv", ordered, strict=True)
        )
    seen = tp.attention(q, k, v, causal=True, name="attention")
    if gathers:
        seen = copied(copied(seen, name="joined"), name="turned")
    return tp.einsum("the,hed->td", seen, llama.weight("wo", h=32, e=128, d=4096), name="o")


@tp.program
def by_hand(x: bf16[Tensor, "t=tokens d=4096"], *, layers: int = 8, gathers: bool = False) -> dict[str, Tensor]:
    """Activations through all layers."""
    for layer in range(layers):
        with tp.name(f"layers.{layer}"):
            x = x + attend(tp.rms_norm(x, llama.weight("attention_norm", d=4096)), gathers=gathers)
            normed = tp.rms_norm(x, llama.weight("mlp_norm", d=4096))
            joint = tp.einsum("td,dfc->tfc", normed, llama.weight("w_joint", d=4096, f=14336, c=2), name="joint")
            made = gated(activated(joint), joint)
            x = x + tp.einsum("tf,fd->td", made, llama.weight("w_down", f=14336, d=4096), name="down")
    return {"out": x}


def pinned(program: Program, rival: str) -> Sequence[Pin]:
    """As the rival shards it; what is done with all keys is done on every rank."""
    (found,) = (each for each in rivals(program) if each.name == rival)
    return [
        replace(pin, cuts=((AXIS, None),), kind="block") if any(fnmatchcase(pin.pattern, w) for w in WHOLE) else pin
        for pin in found.pins
    ]


def as_torch(machine: Machine, rival: str) -> Machine:
    """On which some operations take what torch's kernels take of as many points."""
    program = by_hand.bind(layers=1, tokens=PROFILED, gathers=rival == CONTEXT)
    known = {op.name.partition(".")[2].partition(".")[2]: op for op in program.operations}
    curves = []
    for name, us in TORCH[rival].items():
        op = known[name]
        points = count_points(op, Box.of_shape(tuple(op.extents.values())).region()).value
        curves.append(OperationCurve(program.graph.digest(op), ((points / 2, us * 1e-6),)))
    paces = tuple(replace(pace, operations=tuple(curves)) for pace in machine.device.paces)
    return replace(machine, device=replace(machine.device, paces=paces))


def predicted_ms(step: Step) -> tuple[float, float | None]:
    """Milliseconds with this project's kernels, and with torch's where they were measured."""
    if step.rival is None:
        program, pins = llama.forward.bind(layers=8, tokens=step.tokens), ()
    else:
        program = by_hand.bind(tokens=step.tokens, gathers=step.rival == CONTEXT)
        pins = pinned(program, step.rival)
    machine = load_machine({1: "h200", 2: "h200x2"}.get(step.gpus, "h200x8"))
    machines = [machine]
    if step.rival is not None and step.tokens == PROFILED:
        machines.append(as_torch(machine, step.rival))
    made = [plan(program, each, mesh=(step.gpus,), pins=pins, pieces=False) for each in machines]
    ours, *theirs = (each.document.predicted.makespan_s * 1e3 for each in made)
    return ours, theirs[0] if theirs else None


def beside(predicted: float | None, measured: float) -> str:
    """Two cells of the table."""
    return " | " if predicted is None else f"{predicted:.1f} | {predicted / measured - 1:+.0%}".replace("%", " %")


def main() -> None:
    print("| step | GPUs | tokens | measured, ms | predicted | | with torch's kernels | |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for step in STEPS:
        cells = [step.title, step.gpus, f"{step.tokens:,}", step.measured_ms]
        cells += [beside(each, step.measured_ms) for each in predicted_ms(step)]
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
