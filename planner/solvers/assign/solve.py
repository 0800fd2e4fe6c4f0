"""`solve`: elimination where few nodes meet, else the problem reduced, then the engines that suit its size.

Problems with supplies or prices are solved as they are (`direct.py`). Every answer is counted in exact integers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from .answer import Assignment
from .direct import Request, solve_directly, solve_narrow
from .problem import AssignmentProblem

_NARROW_NODES = 400  # of a plain problem for which elimination is tried


def solve(
    problem: AssignmentProblem,
    time_limit: float = 60.0,
    seed: int = 0,
    jobs: int = 1,
    iteration_limit: int | None = None,
    hint: Sequence[int] | None = None,
    gap: float = 0.0,
    prove: bool = True,
) -> Assignment:
    """The cheapest feasible choice found within `time_limit` seconds, with a bound that can be recomputed.

    With one job and an `iteration_limit` the answer depends on the seed alone, unless the time limit cuts first. `hint`
    is a choice to start from; it need not be feasible. `gap` is enough: (cost − bound) / cost at which to stop.
    `prove`: what an exact solver says is proved again, where that is affordable, in a form that `check` can recompute.
    """
    work = None if iteration_limit is None else max(0.01, iteration_limit / 100)
    request = Request(time.monotonic(), time_limit, seed, max(1, jobs), work, gap, prove)
    if not problem.plain:
        return solve_directly(problem, request, hint)
    known = solve_narrow(problem, request) if problem.node_count <= _NARROW_NODES else None
    if known is not None and known.choice and (known.gap or 0.0) <= gap:
        return known
    from .plain.solve import solve_plain  # compiled code, loaded only where elimination does not do

    start = hint or (known.choice if known is not None else ())
    return solve_plain(problem, request, iteration_limit, start, known)
