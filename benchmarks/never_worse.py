"""Random programs planned with more and with less: where less gives the shorter plan is a breach, and is printed.

    python benchmarks/never_worse.py pins --seeds 0:20 [--machine cpu-4] [--operations 5] [--memory 0.6] [--pins 6]
    python benchmarks/never_worse.py memory --seeds 0:20
    python benchmarks/never_worse.py devices --seeds 0:20
    python benchmarks/never_worse.py meshes --seeds 0:20

pins: some pins of each program against none, on all devices in one row, with so much of the memory that the plan
without any limit takes. memory: seven budgets against all smaller ones. devices: 1 to as many as the machine's hosts
have against all fewer. meshes: one that is asked for against the one that is found.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import replace

import tapestry as tp
from tapestry import Tensor
from tapestry.errors import Infeasible, UsageError
from tapestry.planner import Machine, Plan, load_machine, plan
from tapestry.planner.cli.program_file import load_program
from tapestry.program import Pin, Program

ROWS, WIDTHS = (6, 8, 60, 64, 256, 1024), (10, 32, 100, 128, 256, 512)
SHARES = (0.42, 0.5, 0.6, 0.7, 0.8, 0.92, 1.1)  # of the memory that a plan takes that has all it wants
WORTH = 1.0001
UNTIL = 600.0  # seconds for one plan: the clock is to decide nothing


def generated(seed: int, operations: int, scale: int) -> Program:
    """Products, products by experts, sums, norms, folds and attention, of which some read what others made before.

    ``scale``: how many times as long every dimension is.
    """
    rng = random.Random(f"{seed} {operations}")

    @tp.program
    def net() -> Tensor:
        made = [tp.input("x", "f32", (scale * rng.choice(ROWS), scale * rng.choice(WIDTHS)))]
        for k in range(operations):
            made.append(_one_more(rng, made, k, scale))
        return made[-1]

    return net.bind()


def _one_more(rng: random.Random, made: list[Tensor], k: int, scale: int) -> Tensor:
    y = rng.choice(made[-3:])
    width = y.shape[1]
    match rng.choice(["product", "product", "product", "relu", "add", "gram", "norm", "softmax", "experts", "fold"]):
        case "product":
            w = tp.param(f"w{k}", "f32", (width, scale * rng.choice(WIDTHS)))
            return tp.einsum("nc,ck->nk", y, w, name=f"product{k}")
        case "add":
            return y + next((z for z in made if z.shape == y.shape), y)
        case "gram":
            return tp.einsum("nc,nk->ck", y, y, name=f"gram{k}")
        case "norm":
            return tp.rms_norm(y, tp.param(f"norm{k}", "f32", (width,)))
        case "softmax":
            return tp.softmax(y)
        case "experts":
            count = rng.choice([2, 4, 6])
            w = tp.param(f"w{k}", "f32", (count, width, scale * rng.choice(WIDTHS)))
            v = tp.param(f"v{k}", "f32", (count, w.shape[2], width))
            hidden = tp.einsum("nc,xch->xnh", y, w, name=f"hidden{k}")
            return tp.einsum("xnh,xhc->nc", hidden, v, name=f"back{k}")
        case "fold":
            return y * tp.sum(y, axis=0, keepdims=True)
        case _:
            return tp.relu(y)


def every_pin(program: Program) -> Iterator[Pin]:
    """Every way to cut an operation, and to lay a tensor before the run, or as its operation leaves it."""
    for op in program.operations:
        for dim in [*(dim.name for dim in op.dims if dim.cut and dim.extent > 1), None]:
            yield Pin("op", op.name, (("mesh0", dim),))
    for tensor in program.of_role("input", "param", "value"):
        for axis in [*tensor.axes, *([] if tensor.role == "input" else [None])]:
            yield Pin("tensor", tensor.name, (("mesh0", axis),))


def made(program: Program, machine: Machine, **how: object) -> Plan | None:
    """The plan; None where nothing fits."""
    try:
        return plan(program, machine, time_limit=UNTIL, **how)  # type: ignore[arg-type]
    except (Infeasible, UsageError):  # also a pin that no strategy keeps
        return None


def taken(found: Plan) -> int:
    """Bytes on the fullest device."""
    return max(max(tiers.values()) for tiers in found.document.peak_bytes.values())


def by_pins(program: Program, machine: Machine, options: argparse.Namespace) -> Iterator[tuple[str, Plan]]:
    """None, then with one pin after another."""
    row = (machine.device_count,)
    memory = None
    if options.memory:
        memory = int(options.memory * taken(plan(program, machine, mesh=row, time_limit=UNTIL)))
    pins = sorted(every_pin(program), key=lambda pin: random.Random(f"{options.seed} {pin}").random())
    for some in [[], *([pin] for pin in pins[: options.pins])]:
        found = made(program, machine, mesh=row, memory=memory, pins=some)
        if found is not None:
            yield ", ".join(f"{pin.target} {pin.pattern} {pin.cuts}" for pin in some) or "no pin", found


def by_memory(program: Program, machine: Machine, options: argparse.Namespace) -> Iterator[tuple[str, Plan]]:
    """The largest budget first."""
    mesh = (machine.device_count,) if options.row else None
    most = taken(plan(program, machine, mesh=mesh, time_limit=UNTIL))
    for share in reversed(SHARES):
        found = made(program, machine, mesh=mesh, memory=int(share * most))
        if found is not None:
            yield f"{int(share * most)} bytes", found


def by_devices(program: Program, machine: Machine, _: argparse.Namespace) -> Iterator[tuple[str, Plan]]:
    """The most devices first."""
    for count in range(machine.devices_per_host, 0, -1):
        found = made(program, replace(machine, devices_per_host=count))
        if found is not None:
            yield f"{count} devices", found


def by_meshes(program: Program, machine: Machine, _: argparse.Namespace) -> Iterator[tuple[str, Plan]]:
    """The mesh that is found, then others."""
    count = machine.device_count
    rows = [*((k,) for k in range(count, 0, -1)), *((k, count // k) for k in range(2, count) if count % k == 0)]
    for mesh in [None, *rows]:
        found = made(program, machine, mesh=mesh)
        if found is not None:
            yield "x".join(map(str, mesh)) if mesh else "no mesh", found


KINDS = {"pins": by_pins, "memory": by_memory, "devices": by_devices, "meshes": by_meshes}
FIRST_ALONE = (
    "pins",
    "meshes",
)  # where the first plan is compared with every other, and those are not among themselves


def breaches(kind: str, times: list[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    """What is said of each plan that takes longer than one with less, and how much longer."""
    for k, (wide, seconds) in enumerate(times[:1] if kind in FIRST_ALONE else times):
        for name, other in times[k + 1 :]:
            if seconds > WORTH * other:
                yield f"{wide}: {1e6 * seconds:.2f} us; {name}: {1e6 * other:.2f} us", seconds / other


def main() -> None:
    """Print a line for every program, and one more for every breach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--seeds", default="0:20")
    parser.add_argument("--program", help="FILE.py:PROGRAM in place of random ones")
    parser.add_argument("--set", nargs="*", default=[], help="name=value of its extents")
    parser.add_argument("--machine", default="cpu-4")
    parser.add_argument("--devices", type=int, help="devices of a host; as many as it has by default")
    parser.add_argument("--operations", type=int, default=5)
    parser.add_argument("--scale", type=int, default=1)
    parser.add_argument("--memory", type=float)
    parser.add_argument("--pins", type=int, default=6)
    parser.add_argument("--row", action="store_true", help="budgets on all devices in one row")
    options = parser.parse_args()
    machine = load_machine(options.machine)
    if options.devices:
        machine = replace(machine, devices_per_host=options.devices)
    worst, compared = list[float](), 0
    for seed in range(*map(int, options.seeds.split(":"))):
        began, options.seed = time.process_time(), seed
        if options.program:
            program = load_program(options.program, dict(each.split("=", 1) for each in options.set))
        else:
            program = generated(options.seed, options.operations, options.scale)
        plans = KINDS[options.kind](program, machine, options)
        times = [(name, found.document.predicted.makespan_s) for name, found in plans]
        compared += len(times)
        print(
            f"seed {options.seed}: {len(program.operations)} operations, {time.process_time() - began:.1f} s",
            flush=True,
        )
        for said, ratio in breaches(options.kind, times):
            worst.append(ratio)
            print(f"  {said}, {ratio:.4f}", flush=True)
    print(f"{len(worst)} breaches, {compared} plans, worst {max(worst, default=1.0):.4f}")


if __name__ == "__main__":
    main()
