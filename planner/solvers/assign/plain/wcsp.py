"""toulbar2 on the reduced model, in a process of its own: a cost function network with linear memory constraints.

The process prints what it finds as it goes; this side reads it, so that stopping early keeps the best. A solution that
breaks a memory row which was not stated yet ends the process, and the next one starts with that row.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from ..problem import Ints
from .exact import normalised, violated_places
from .incumbent import Incumbent
from .reduced import HALF, Loads, Reduced

ENTRY_LIMIT = 1_200_000  # pair entries that still fit its propagation
NODE_LIMIT = 2_000  # groups with a choice
_EAGER_PLACES = 12  # as many memory rows are all stated at once
_FIRST_SECONDS = 20.0  # of the first search; each next one has twice as many
_PROCESS = Path(__file__).with_name("wcsp_process.py")

_SOLUTION = re.compile(r"^New solution: ")
_BOUND = re.compile(r"^(?:Optimality gap|Initial lower and upper bounds): \[(-?\d+),")
_PROVED = re.compile(r"^(?:Optimum: |No solution in )")  # "No solution found in" only says that time ran out


def run_wcsp(incumbent: Incumbent, seed: int) -> None:
    """Searches until the deadline; offers solutions and bounds to the incumbent as they come.

    A search that gets nowhere starts again from the best cost known by then, with twice the time and another start: how
    soon it finds the best solution depends on luck that a new beginning redraws.
    """
    loads, seconds, round_ = incumbent.loads, _FIRST_SECONDS, 0
    while incumbent.left > 0.5:
        known, began = list(incumbent.places), time.monotonic()
        places = known if len(loads.slack) > _EAGER_PLACES else list(range(len(loads.slack)))
        allowed = min(seconds, incumbent.left)
        if _run_once(incumbent, places, seed + round_, allowed):
            return
        if len(incumbent.places) == len(known):
            if time.monotonic() - began < 0.5 * allowed:
                return  # it ended at once and has learnt nothing: it cannot run here
            seconds, round_ = 2.0 * seconds, round_ + 1


def engine() -> str:
    return f"toulbar2 {version('pytoulbar2')}"


def _run_once(incumbent: Incumbent, places: list[int], seed: int, seconds: float) -> bool:
    """One process; True if it answered the question, False if its time is up or it must start again with more rows."""
    model, loads = incumbent.model, incumbent.loads
    above = incumbent.cost
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network.npz"
        constant = _write(path, model, loads, places)
        below = str(above - constant if above < HALF else 0)
        command = [sys.executable, "-P", str(_PROCESS), str(path), below, str(seed), str(seconds)]
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, text=True) as process:
            killer = threading.Thread(target=_kill_when_done, args=(process, incumbent), daemon=True)
            killer.start()
            try:
                return _listen(process, incumbent, loads, constant, above)
            finally:
                process.kill()
                killer.join()


def _kill_when_done(process: subprocess.Popen[str], incumbent: Incumbent) -> None:
    while process.poll() is None:
        if incumbent.left <= 0.0 or incumbent.finished.wait(min(incumbent.left, 0.2)):
            process.kill()
            return


def _listen(process: subprocess.Popen[str], incumbent: Incumbent, loads: Loads, constant: int, above: int) -> bool:
    assert process.stdout is not None
    announced = False
    last: Ints | None = None
    for line in process.stdout:
        if announced:
            announced = False
            labels = np.array(line.split(), dtype=np.int64)
            if len(labels) != len(incumbent.model.unary):
                return False  # cut off in the middle of a line
            last = labels
            broken = violated_places(loads, last)
            if broken:
                incumbent.need(broken)
                return False
            incumbent.offer(last)
        elif _SOLUTION.match(line):
            announced = True
        elif found := _BOUND.match(line):
            incumbent.trust(int(found[1]) + constant, engine(), "feasible")
        elif _PROVED.match(line):
            return _proved(incumbent, last, above)
    return False


def _proved(incumbent: Incumbent, last: Ints | None, above: int) -> bool:
    """The search is exhausted: what it found last is optimal, or nothing below `above` exists."""
    if last is not None:
        incumbent.trust(incumbent.model.cost(last), engine(), "optimal")
    elif above < HALF:
        incumbent.trust(above, engine(), "optimal")
    else:
        incumbent.refute(engine())
    return True


def _write(path: Path, model: Reduced, loads: Loads, places: list[int]) -> int:
    """The network as arrays; returns the constant that its costs leave out."""
    unary = [costs.copy() for costs in model.unary]
    matrices = [normalised(matrix, unary[g], unary[h]) for (g, h), matrix in model.edges.items()]
    constant = sum(int(costs.min()) for costs in unary)
    rows = [(p, g, k, int(a)) for p in places for g, held in _row(model, loads, p) for k, a in enumerate(held) if a]
    np.savez(
        path,
        counts=model.label_counts,
        unary=np.concatenate([costs - costs.min() for costs in unary]),
        ends=np.array(list(model.edges), dtype=np.int64).reshape(-1, 2),
        matrices=np.concatenate([matrix.reshape(-1) for matrix in matrices]) if matrices else np.zeros(0, np.int64),
        rows=np.array(rows, dtype=np.int64).reshape(-1, 4),
        places=np.array(places, dtype=np.int64),
        slack=loads.slack[places] if places else np.zeros(0, np.int64),
    )
    return constant


def _row(model: Reduced, loads: Loads, place: int) -> list[tuple[int, Ints]]:
    return list(loads.row(place, model.label_counts).items())
