"""Steps of eight Llama-8B-shaped layers as people write them by hand, predicted on packaged machines.

    python benchmarks/people.py
    python benchmarks/people.py --doc docs/planner.md

Prints the table of docs/planner.md. Measured on H200 with torch 2.11 and NCCL, eager but where said, steps one at a
time; what is predicted has the operations of these steps, each by itself: queries, keys and values in one product (for
context parallelism keys and values), the activation apart from the product after it, no rotation of heads, and for
context parallelism keys and values put in order, copied for every head, and the two copies that put what attention
leaves together. First with the kernels of this project on the packaged machine; then as
people run them: attention and all that goes element by element take what torch's kernels take (`TORCH`), and products
what the chip's power leaves them (`power_share`). Transfers are the machine's.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from gpu_rows import ROOT  # type: ignore[import-not-found, unused-ignore]
from marked import into  # type: ignore[import-not-found, unused-ignore]

sys.path.insert(0, str(ROOT / "examples"))

import llama  # type: ignore[import-not-found, unused-ignore]

import tapestry as tp
from tapestry import Tensor, anyfloat, bf16
from tapestry.planner import Plan, load_machine, plan
from tapestry.planner.format import Compute, Resolved
from tapestry.planner.machine import Machine, OperationCurve, Pace
from tapestry.planner.search.rivals import AXIS, rivals
from tapestry.planner.simulate import Prices
from tapestry.planner.strategy.cost import kernel_class
from tapestry.program import Pin, Program
from tapestry.space.projection import count_points

MEGATRON, CONTEXT = "Megatron with sequence parallelism", "context parallel, zigzag"
WHOLE = ("*.ordered*", "*.each*")  # what every rank does with all keys and values

NOTHING = 1e-3
Times = Mapping[str, float]


def kernels(*, norm: float, add: float, attention: float, gate: tuple[float, float], **copies: float) -> Times:
    """Microseconds of operations by torch's kernels: a norm is one, and what has none takes nothing."""
    found = {"attention.state": attention, "activated": gate[0], "gated": gate[1]} | copies
    for of in ("", "_1"):
        found |= {f"rms_norm{of}.mean_square": norm, f"rms_norm{of}.scale": NOTHING, f"add{of}": add}
    return found | dict.fromkeys(("attention.finish", "q", "k", "v") if not copies else ("attention.finish",), NOTHING)


# Of steps by how they are sharded, on how many GPUs, and their tokens: one rank's part of these very steps on one H200,
# transfers replaced by waiting about as long, by the profiler of torch 2.11 on 2026-11-23.
TORCH: Mapping[tuple[str, int, int], Times] = {
    ("Megatron", 2, 8192): kernels(norm=44.3, add=45.0, attention=540.3, gate=(171.0, 166.8)),
    (MEGATRON, 4, 8192): kernels(norm=9.8, add=12.2, attention=288.0, gate=(83.4, 83.2)),
    (MEGATRON, 8, 8192): kernels(norm=7.2, add=7.5, attention=177.4, gate=(42.5, 40.7)),
    (MEGATRON, 4, 32768): kernels(norm=43.7, add=46.0, attention=3486.0, gate=(327.8, 321.4)),
    (CONTEXT, 2, 8192): kernels(
        norm=22.7, add=22.7, attention=1053.5, gate=(172.3, 168.0),
        ordered=17.1, each_k=86.7, each_v=86.7, joined=77.6, turned=65.2,
    ),
    (CONTEXT, 4, 8192): kernels(
        norm=10.0, add=11.6, attention=492.5, gate=(85.4, 84.6),
        ordered=17.0, each_k=86.7, each_v=86.7, joined=37.7, turned=34.1,
    ),
}  # fmt: skip

# 8192 x 8192 x 8192 products in bf16 take 1.378 ms for the first 40 ms after a second of rest, and 1.618 ms from 120 ms
# on, when the power limit holds the clock (2026-11-23, one H200): the share that is left of a product's time.
RESTED = 1.378 / 1.618
BUSY = 0.5  # of a step that products and attention take, up to which its mean power stays below the limit: with
# the cube of the clock for power, and a third of the limit while a chip waits or copies


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


@tp.op
def ordered(joint: anyfloat[Tensor, "t g c e"]) -> anyfloat[Tensor, "t g c e"]:
    """The same, its tokens one after another."""
    t, g, c, e = tp.indices("t g c e")
    return joint[t, g, c, e]


HEADS, SHARED, WIDTH = 32, 4, 128  # heads of queries, how many of them see the same keys, and elements of a head


@tp.op
def queries(joint: anyfloat[Tensor, "t g c e"]) -> anyfloat[Tensor, "t h e"]:
    """Of a joint product the queries, before the keys that they see."""
    t, h, e = tp.indices("t h e")
    return joint[t, h // SHARED, h % SHARED, e]


@tp.op
def part(joint: anyfloat[Tensor, "t g c e"], *, place: int) -> anyfloat[Tensor, "t g e"]:
    """Its keys, or its values."""
    t, g, e = tp.indices("t g e")
    return joint[t, g, place, e]


@tp.op
def each(joint: anyfloat[Tensor, "t g c e"], *, place: int) -> anyfloat[Tensor, "t h e"]:
    """The same for every head of queries."""
    t, h, e = tp.indices("t h e")
    return joint[t, h // SHARED, place, e]


def attend(x: Tensor) -> Tensor:
    """Causal attention over 32 heads, 8 of keys, each of 128 elements."""
    w = llama.weight("wqkv", d=4096, g=HEADS // SHARED, c=SHARED + 2, e=WIDTH)
    joint = tp.einsum("td,dgce->tgce", x, w, name="qkv")
    k, v = (part(joint, place=SHARED + place, name=name) for place, name in enumerate("kv"))
    return tp.attention(queries(joint, name="q"), k, v, causal=True, name="attention")


def attend_gathered(x: Tensor) -> Tensor:
    """The same with keys and values as they are gathered for context parallelism."""
    q = tp.einsum("td,dhe->the", x, llama.weight("wq", d=4096, h=HEADS, e=WIDTH), name="q")
    w = llama.weight("wkv", d=4096, g=HEADS // SHARED, c=2, e=WIDTH)
    joint = ordered(tp.einsum("td,dgce->tgce", x, w, name="kv"), name="ordered")
    k, v = (each(joint, place=place, name=f"each_{name}") for place, name in enumerate("kv"))
    seen = tp.attention(q, k, v, causal=True, name="attention")
    return copied(copied(seen, name="joined"), name="turned")


@tp.program
def by_hand(x: bf16[Tensor, "t=tokens d=4096"], *, layers: int = 8, gathers: bool = False) -> dict[str, Tensor]:
    """Activations through all layers."""
    for layer in range(layers):
        with tp.name(f"layers.{layer}"):
            normed = tp.rms_norm(x, llama.weight("attention_norm", d=4096))
            seen = attend_gathered(normed) if gathers else attend(normed)
            x = x + tp.einsum("the,hed->td", seen, llama.weight("wo", h=HEADS, e=WIDTH, d=4096), name="o")
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


def as_torch(made: Plan, step: Step) -> Machine:
    """The machine of a plan, on which some operations take what torch's kernels take of a rank's share of the step."""
    known, curves = TORCH.get((step.rival or "", step.gpus, step.tokens), {}), dict[str, OperationCurve]()
    for task in made.document.tasks:
        if isinstance(task, Compute):
            us = known.get(task.op.partition(".")[2].partition(".")[2])
            op = made.program.op_by_name[task.op]
            if us is not None:
                shards = made.resolved.regions(task.shards)
                points = max(count_points(op, region).value for region in shards if region)
                digest = made.program.graph.digest(op)
                curves[digest] = OperationCurve(digest, ((points, us * 1e-6),))
    operations = tuple(curves.values())
    return with_paces(made.machine, lambda pace: replace(pace, operations=operations) if operations else pace)


def with_paces(machine: Machine, change: Callable[[Pace], Pace]) -> Machine:
    paces = tuple(map(change, machine.device.paces))
    return replace(machine, device=replace(machine.device, paces=paces))


def power_share(made: Plan) -> float:
    """What is left of the time of a product, where it is part of such a step. Under load the description holds."""
    prices, program = Prices(Resolved(made.document)), made.program
    busy = sum(
        float(max(prices.seconds(task)))
        for task in made.document.tasks
        if isinstance(task, Compute) and kernel_class(program.op_by_name[task.op]) in ("matmul", "attention")
    )
    above = max(0.0, busy / made.document.predicted.makespan_s - BUSY) / (1 - BUSY)
    return RESTED + (1 - RESTED) * above


def quicker(machine: Machine, share: float) -> Machine:
    """On which products take a share of their time."""

    def change(pace: Pace) -> Pace:
        shapes = [
            replace(t, seconds=tuple(share * s for s in t.seconds)) if t.kernel == "matmul" else t for t in pace.shapes
        ]
        curves = [
            replace(c, points=tuple((x, share * s) for x, s in c.points)) if c.kernel == "matmul" else c
            for c in pace.curves
        ]
        return replace(pace, shapes=tuple(shapes), curves=tuple(curves))

    return with_paces(machine, change)


@dataclass(frozen=True)
class Asked:
    """A step as it is planned."""

    step: Step
    program: Program
    pins: Sequence[Pin]
    machine: Machine

    @staticmethod
    def of(step: Step) -> Asked:
        machine = load_machine({1: "h200", 2: "h200x2", 4: "h200x4"}.get(step.gpus, "h200x8"))
        if step.rival is None:
            return Asked(step, llama.forward.bind(layers=8, tokens=step.tokens), (), machine)
        program = by_hand.bind(tokens=step.tokens, gathers=step.rival == CONTEXT)
        return Asked(step, program, pinned(program, step.rival), machine)

    def on(self, machine: Machine) -> Plan:
        return plan(self.program, machine, mesh=(self.step.gpus,), pins=self.pins, pieces=False)

    def ours_ms(self) -> float:
        """With this project's kernels under load."""
        return self.on(self.machine).document.predicted.makespan_s * 1e3

    def run_ms(self) -> float:
        """As people run it."""
        theirs = as_torch(self.on(self.machine), self.step)
        rested = quicker(theirs, power_share(self.on(theirs)))
        return self.on(rested).document.predicted.makespan_s * 1e3


def beside(predicted: float, measured: float) -> str:
    """Two cells of the table."""
    return f"{predicted:.1f} | {predicted / measured - 1:+.1%}".replace("%", " %")


def table() -> Iterator[str]:
    """Its lines."""
    yield "| step | GPUs | tokens | measured, ms | this project's kernels | | as people run it | |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for step in STEPS:
        cells = [step.title, step.gpus, f"{step.tokens:,}", step.measured_ms]
        asked = Asked.of(step)
        cells += [beside(each, step.measured_ms) for each in (asked.ours_ms(), asked.run_ms())]
        yield f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = ArgumentParser(description="Steps that people wrote by hand, predicted.")
    parser.add_argument("--doc", type=Path, help="a Markdown file to put the table into")
    document = parser.parse_args().doc
    lines = []
    for line in table():
        print(line, flush=True)
        lines.append(line)
    if document is not None:
        into(document, "people", "\n".join(lines))


if __name__ == "__main__":
    main()
