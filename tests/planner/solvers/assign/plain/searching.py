"""A search of a reduced problem, and its first labels found by trying all."""

from __future__ import annotations

import time

import numpy as np

from tapestry.planner.solvers.assign import AssignmentProblem
from tapestry.planner.solvers.assign.plain.flat import flatten
from tapestry.planner.solvers.assign.plain.incumbent import Incumbent
from tapestry.planner.solvers.assign.plain.reduce import reduce
from tapestry.planner.solvers.assign.plain.reduced import loads_of
from tapestry.planner.solvers.assign.plain.search import Search


def searching(problem: AssignmentProblem, seed: int = 0) -> Search:
    """Without labels, and with an hour to go."""
    model, _ = reduce(problem)
    now = time.monotonic()
    loads = loads_of(model)
    incumbent = Incumbent(model, loads, now, now + 3600.0)
    return Search.begin(flatten(model), loads, incumbent, seed)


def offered(search: Search) -> bool:
    """Whether the first labels that keep all limits were found by trying all."""
    counts = search.incumbent.model.label_counts.tolist()
    return any(search.incumbent.offer(np.array(labels)) for labels in np.ndindex(*counts))
