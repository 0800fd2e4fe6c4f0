"""One row of `make bench-gpu`, planned or run by this project.

python benchmarks/gpu_ours.py plan ROW --machine M --folder F       no GPU: writes F/ROW.plan.json
python benchmarks/gpu_ours.py run ROW --folder F                    a process a GPU, under torchrun for two

The second prints objects of JSON, the last of which counts: what a step took, on one GPU in turns with torch's, beside
what was predicted, task by task.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import astuple, replace
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from gpu_jobs import passed  # type: ignore[import-not-found, unused-ignore]
from gpu_rows import BY_NAME, Row  # type: ignore[import-not-found, unused-ignore]
from gpu_steps import Contender, Moment, seconds  # type: ignore[import-not-found, unused-ignore]

from tapestry.dtypes import DTYPES
from tapestry.inputs import random_inputs
from tapestry.planner import Plan, load_plan, plan
from tapestry.planner.format.events import Event
from tapestry.planner.measured import beside
from tapestry.planner.views.peers import measured_peers, predicted_peers
from tapestry.planner.views.timeline import Kinds, timeline_drawing
from tapestry.program import Program, Tensor
from tapestry.workers.between import carrying, filling, first_buffers
from tapestry.workers.device import in_order
from tapestry.workers.devices import open_device
from tapestry.workers.engines.held import Held, OneOfMany, held
from tapestry.workers.result import Step
from tapestry.workers.whole import whole_array

PLAN_S = 40.0
BEGAN = perf_counter()
NOTED = 12  # steps whose tasks are timed
BLOCK = 1 << 21  # elements that are drawn of a tensor, over and over, and looked at
LARGEST = 1e6
SAME = 1e-2  # parts of a norm


def planned(row: Row, machine: str, folder: Path) -> dict[str, Any]:
    """The plan of a row, rewritten where the planner holds that for quicker."""
    started = perf_counter()
    memory = {"hbm": row.memory} if row.memory else None
    made = plan(kept(row.bound()), machine, mesh=(row.gpus,), memory=memory, rewrite=True, time_limit=PLAN_S)
    made.save(folder / f"{row.name}.plan.json")
    return {"plan_s": perf_counter() - started, "machine": made.machine.description}


def kept(program: Program) -> Program:
    """A program whose inputs are params: they stay where they are from step to step, as those of torch do."""
    return replace(
        program, tensors=tuple(replace(t, role="param") if t.role == "input" else t for t in program.tensors)
    )


class Ours:
    """The ranks of a plan that this process holds: a step a call, asked for without waiting for the one before.

    States go on from step to step, params stay where they are.
    """

    def __init__(self, made: Plan, given: Mapping[str, np.ndarray], device: str, engine: str) -> None:
        self.made, self.plan = made, made.resolved
        self.device = open_device(device)
        self.held: Held = held(engine, self.device, self.plan, poison=False)
        self._until = ExitStack()
        self._until.enter_context(self.device.running())
        ranks = self.held.ranks
        kept = first_buffers(self.plan, "const", "param", "state", "input")
        wholes = {buffer.tensor: whole_array(made.program.tensor(buffer.tensor), given) for buffer in kept}
        in_order(filling(ranks, kept, wholes))()
        self._carry = in_order([run for rank in ranks for run in carrying(self.device, self.plan, rank)])
        self.begin()
        self.held.replay(perf_counter())
        self.held.settle(may_fail=False)  # what failed in it is raised; later tasks of such a step do nothing
        self.bytes_moved = self.held.transport.bytes_moved
        self.wait()
        self._after()
        self.held.keep()

    def _after(self) -> None:
        """What a step that was not asked for by `step` leaves to be done."""
        self._carry()
        self.wait()

    def begin(self) -> None:
        self.wait()
        self._until.close()
        self._until.enter_context(self.device.running())

    def step(self) -> None:
        self.held.replay(0.0)
        self._carry()

    def mark(self) -> Moment:
        return self.device.mark()

    def wait(self) -> None:
        self.held.wait()
        self.device.synchronise()

    def agreed(self, value: float) -> float:
        """The largest of all ranks."""
        return self.held.group.maximum(value) if isinstance(self.held, OneOfMany) else value

    def noted(self) -> list[Step]:
        """Steps whose tasks are timed, of all ranks; on rank 0 alone."""
        self.held.keep(timed=True)
        mine: list[list[Event]] = []
        for _ in range(NOTED):
            if isinstance(self.held, OneOfMany):
                self.wait()
                self.held.group.barrier()
            mine.append(self.held.replay(perf_counter()))
            self._carry()
        ranks = [mine]
        if isinstance(self.held, OneOfMany):
            said = json.dumps([[astuple(event) for event in events] for events in mine]).encode()
            ranks = [[[Event(*e) for e in events] for events in json.loads(p)] for p in self.held.group.gathered(said)]
        steps = [list(chain(*of_ranks)) for of_ranks in zip(*ranks, strict=True)]
        return [Step(max(e.end_s for e in events), sorted(events, key=lambda e: e.start_s)) for events in steps]

    def outputs(self) -> dict[str, np.ndarray]:
        """Of the last step, whole, on rank 0; nothing on the others."""
        found = {}
        for tensor, buffer in self.made.document.outputs.items():
            array, run = self.held.gathered(tensor, buffer, near=False)
            run()
            self.wait()
            if array is not None:
                found[tensor] = array
        return found


def strange(first: Mapping[str, np.ndarray], last: Mapping[str, np.ndarray], *, same: bool) -> list[str]:
    """The outputs of a last step that are not ordinary, or, where steps are to leave the ``same``, are far from the
    first one's: numbers are rounded otherwise where threads add in another order."""
    found = []
    for tensor, array in last.items():
        if not ordinary(array):
            some = array.reshape(-1)[:BLOCK].astype(np.float64)
            found.append(f"{tensor}: {np.count_nonzero(~np.isfinite(some))} not finite, to {np.nanmax(abs(some)):g}")
        elif same and (far := away(array, first[tensor])) > SAME:
            found.append(f"{tensor}: {far:.2g} of its norm away from the first step's")
    return found


def away(values: np.ndarray, others: np.ndarray) -> float:
    """The norm of the difference, in parts of that of the others."""
    ours, theirs = (array.reshape(-1)[:: max(1, array.size // BLOCK)].astype(np.float64) for array in (values, others))
    norm = float(np.linalg.norm(theirs))
    return float(np.linalg.norm(ours - theirs)) / norm if norm else float(np.any(ours))


def ordinary(values: np.ndarray) -> bool:
    """Whether numbers are finite and no larger than data are: a chip multiplies NaNs and zeros with less power."""
    some = values.reshape(-1)[:BLOCK].astype(np.float64)
    return bool(np.isfinite(some).all() and (abs(some) <= LARGEST).all())


def measured(row: Row, folder: Path, device: str, gate: Path | None = None) -> dict[str, Any]:
    """The steps of a row, in turns with those of torch where it has such a rival; nothing but on rank 0."""
    made = load_plan(folder / f"{row.name}.plan.json")
    given = values(made.program) | row.given
    empty = [name for name, value in given.items() if value.size > 1 and not np.any(value)]
    if odd := [*empty, *(name for name, value in given.items() if not ordinary(value))]:
        raise SystemExit(f"{row.name}: {', '.join(odd)}: nothing but zeros, or not finite, or beyond {LARGEST:g}")
    said("values drawn")
    ours = Ours(made, given, device, "torchrun" if row.gpus > 1 else "local")
    first = ours.outputs()
    said("bound")
    contenders: dict[str, Contender] = {"ours": ours, **rivals(row)}
    said("rivals ready")
    if isinstance(ours.held, OneOfMany):
        ours.held.group.barrier()
    passed(gate)
    taken = seconds(contenders, ours.agreed)
    said("timed")
    steps = ours.noted()
    if wrong := strange(first, ours.outputs(), same=not made.program.states):
        raise SystemExit(f"{row.name}: of outputs {'; '.join(wrong)}")
    return figures(made, ours, taken.pop("ours"), steps) | {"others": taken} if steps else {}


def said(what: str) -> None:
    """What took how long, for whoever pays for the machine by the second."""
    print(f"{perf_counter() - BEGAN:.1f} s: {what}", file=sys.stderr, flush=True)


def rivals(row: Row) -> dict[str, Contender]:
    """What a torch user has for the program, ready to run."""
    if not row.model:
        return {}
    import torch
    from gpu_steps import OfTorch  # type: ignore[import-not-found, unused-ignore]
    from gpu_torch import contenders  # type: ignore[import-not-found, unused-ignore]

    torch.set_grad_enabled(False)
    return {name: OfTorch(step) for name, step in contenders(row.model[0], **row.model[1]).items()}


def values(program: Program) -> dict[str, np.ndarray]:
    """Of inputs, params and states; states are not negative: squares are among them. Floats of one role, type and shape
    are the same, so that a process holds one layer of many."""
    given = program.of_role("input", "param", "state")
    drawn: dict[tuple[str, ...], str] = {}
    like = {t.name: drawn.setdefault(_kind(t), t.name) for t in given}
    some = replace(program, tensors=tuple(t for t in program.tensors if like.get(t.name, t.name) == t.name))
    found = random_inputs(some, block=BLOCK)
    found = {name: abs(value) if program.tensor(name).role == "state" else value for name, value in found.items()}
    return {name: found[first] for name, first in like.items()}


def _kind(tensor: Tensor) -> tuple[str, ...]:
    apart = () if DTYPES[tensor.dtype].kind == "float" else (tensor.name,)
    return (tensor.role, tensor.dtype, str(tensor.shape), *apart)


def figures(made: Plan, ours: Ours, step_s: float, steps: Sequence[Step]) -> dict[str, Any]:
    """Seconds of the step, of its parts, and of its tasks."""
    settled = steps[len(steps) // 4 :]
    timeline, predicted = made.simulate(), made.document.predicted
    middle = sorted(settled, key=lambda step: step.wall_s)[len(settled) // 2]
    tasks = [[b.rank, b.lane, b.name, b.predicted_s, b.measured_s, b.kernel] for b in beside(timeline.events, settled)]
    kinds = Kinds.of(made.resolved)
    drawing = timeline_drawing(kinds, predicted_peers(timeline), measured_peers(middle.events))
    bound, waits = made.document.bound, exposed(middle.events, middle.wall_s)
    return {
        "step_s": step_s,
        "noted_s": middle.wall_s,
        "predicted_s": predicted.makespan_s,
        "bound_s": None if bound is None else bound.bound_s,
        "predicted_exposed_s": predicted.exposed_transfer_s,
        "exposed_s": max(waits),
        "exposed_least_s": min(waits),
        "bytes_moved": ours.bytes_moved,
        "shardings": shardings(made),
        "tasks": tasks,
        "timeline": drawing.alone(),
    }


def exposed(events: Sequence[Event], wall_s: float) -> list[float]:
    """Seconds of a step in which a rank computes nothing, of each rank."""
    busy: dict[int, float] = {event.rank: 0.0 for event in events}
    reached = dict.fromkeys(busy, 0.0)
    for event in sorted(events, key=lambda event: event.start_s):
        if event.lane == "compute":
            start = max(event.start_s, reached[event.rank])
            busy[event.rank] += max(0.0, event.end_s - start)
            reached[event.rank] = max(reached[event.rank], event.end_s)
    return [wall_s - seconds for _, seconds in sorted(busy.items())]


def shardings(made: Plan) -> dict[str, int]:
    """How operations are cut, and how many so."""
    found: dict[str, int] = {}
    for sharding in made.document.shardings.values():
        cut = _cut(sharding)
        found[cut] = found.get(cut, 0) + 1
    return found


def _cut(sharding: Any) -> str:
    partition: Mapping[str, Any] = sharding.partition
    return ", ".join(f"{dim} by {how}" for dim, how in sorted(partition.items())) or "whole"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("plan", "run"))
    parser.add_argument("row", choices=sorted(BY_NAME))
    parser.add_argument("--machine", default="h200x2")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--device", default="cupy")
    parser.add_argument("--gate", type=Path, help="when all is ready make GATE.ready, and go on when there is GATE.go")
    options = parser.parse_args()
    row = BY_NAME[options.row]
    if options.what == "plan":
        print(json.dumps(planned(row, options.machine, options.folder)))
        return
    found = measured(row, options.folder, options.device, options.gate)
    if found:
        print(json.dumps(found), flush=True)
    sys.stdout.flush()
    if row.gpus > 1:
        os._exit(0)  # a group whose collectives a graph holds waits for ever when it is destroyed


if __name__ == "__main__":
    main()
