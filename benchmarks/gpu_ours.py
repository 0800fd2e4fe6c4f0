"""One row of `make bench-gpu`, planned or run by this project.

python benchmarks/gpu_ours.py plan ROW --machine M --folder F       no GPU: writes F/ROW.plan.json
python benchmarks/gpu_ours.py run ROW --folder F                    a process a GPU, under torchrun for two

The second prints one object of JSON: what a step took, beside what was predicted, task by task.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from gpu_rows import BY_NAME, Row  # type: ignore[import-not-found, unused-ignore]

from tapestry.inputs import random_inputs
from tapestry.planner import Plan, load_plan, plan
from tapestry.planner.format.events import Event
from tapestry.planner.measured import beside
from tapestry.planner.views.peers import measured_peers, predicted_peers
from tapestry.planner.views.timeline import Kinds, timeline_drawing
from tapestry.program import Program
from tapestry.workers.result import RunResult

PLAN_S = 20.0
# A step is run until so many seconds are over, so that the chip is as warm as at work.
BUSY_S, LEAST_STEPS, MOST_STEPS = 1.0, 20, 60
BLOCK = 1 << 26


def planned(row: Row, machine: str, folder: Path) -> dict[str, Any]:
    """The plan of a row, rewritten where the planner holds that for quicker."""
    started = perf_counter()
    memory = {"hbm": row.memory} if row.memory else None
    made = plan(row.bound(), machine, mesh=(row.gpus,), memory=memory, rewrite=True, time_limit=PLAN_S)
    made.save(folder / f"{row.name}.plan.json")
    return {"plan_s": perf_counter() - started, "machine": made.machine.description}


def measured(row: Row, folder: Path, device: str) -> dict[str, Any]:
    """The plan run step after step; nothing but on rank 0."""
    made = load_plan(folder / f"{row.name}.plan.json")
    engine = "torchrun" if row.gpus > 1 else "local"
    given, expected = values(made.program), made.document.predicted.makespan_s
    steps = int(min(MOST_STEPS, max(LEAST_STEPS, BUSY_S / expected)))
    found = made.run(given, engine=engine, device=device, repeat=steps)
    if found.rank:
        return {}
    for name, array in found.outputs.items():
        if not np.isfinite(array.reshape(-1)[:BLOCK].astype(np.float32)).all():
            raise SystemExit(f"{row.name}: {name} is not finite")
    return figures(made, found)


def values(program: Program) -> dict[str, np.ndarray]:
    """Of inputs, params and states; states are not negative: squares are among them."""
    drawn = random_inputs(program, block=BLOCK)
    return {name: abs(value) if program.tensor(name).role == "state" else value for name, value in drawn.items()}


def figures(made: Plan, found: RunResult) -> dict[str, Any]:
    """Seconds of the step, of its parts, and of its tasks."""
    settled = found.steps[len(found.steps) // 4 :]
    timeline, predicted = made.simulate(), made.document.predicted
    middle = sorted(settled, key=lambda step: step.wall_s)[len(settled) // 2]
    tasks = [[b.rank, b.lane, b.name, b.predicted_s, b.measured_s] for b in beside(timeline.events, settled)]
    kinds = Kinds.of(made.resolved)
    drawing = timeline_drawing(kinds, predicted_peers(timeline), measured_peers(middle.events))
    bound = made.document.bound
    return {
        "steps": len(found.steps),
        "step_s": median(step.wall_s for step in settled),
        "least_s": min(step.wall_s for step in settled),
        "predicted_s": predicted.makespan_s,
        "bound_s": None if bound is None else bound.bound_s,
        "predicted_exposed_s": predicted.exposed_transfer_s,
        "exposed_s": exposed(middle.events, middle.wall_s),
        "bytes_moved": found.bytes_moved,
        "shardings": shardings(made),
        "tasks": tasks,
        "timeline": drawing.alone(),
    }


def exposed(events: Sequence[Event], wall_s: float) -> float:
    """Seconds of a step in which a rank computes nothing, of the rank that has most of them."""
    busy: dict[int, float] = {event.rank: 0.0 for event in events}
    reached = dict.fromkeys(busy, 0.0)
    for event in sorted(events, key=lambda event: event.start_s):
        if event.lane == "compute":
            start = max(event.start_s, reached[event.rank])
            busy[event.rank] += max(0.0, event.end_s - start)
            reached[event.rank] = max(reached[event.rank], event.end_s)
    return max(wall_s - seconds for seconds in busy.values())


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
    options = parser.parse_args()
    row = BY_NAME[options.row]
    if options.what == "plan":
        print(json.dumps(planned(row, options.machine, options.folder)))
        return
    found = measured(row, options.folder, options.device)
    if found:
        print(json.dumps(found), flush=True)
    sys.stdout.flush()
    if row.gpus > 1:
        os._exit(0)  # a group whose collectives a graph holds waits for ever when it is destroyed


if __name__ == "__main__":
    main()
