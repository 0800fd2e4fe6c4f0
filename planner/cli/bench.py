"""`tapestry bench`: the solvers on the file formats of outside benchmarks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from ...errors import CheckFailed, Infeasible, TimeLimit
from .guard import guarded
from .talk import put, put_json, working

app = typer.Typer(help="The solvers on outside problems.", no_args_is_help=True)

TimeLimitS = Annotated[
    float, typer.Option("--time-limit", metavar="S", min=0.1, help="Seconds, reading the file included.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of everything random.")]
Jobs = Annotated[int, typer.Option("--jobs", metavar="N", min=1, help="Engines that run side by side.")]
SolutionOut = Annotated[Path | None, typer.Option("--solution-out", metavar="F", help="Write the solution here.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("iopddl")
@guarded
def bench_iopddl(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A sharding problem of the contest, gzipped or not.")],
    time_limit: TimeLimitS = 60.0,
    seed: Seed = 0,
    jobs: Jobs = 2,
    solution_out: SolutionOut = None,
    json: Json = False,
) -> None:
    """Choose one strategy per node; the solution is a JSON list of strategy indices.

    Exit code 3 where no choice keeps the memory limit, 4 where none was found in time.
    """
    began = time.monotonic()
    from ..assign import solve
    from ..assign.check import check_choice
    from ..assign.iopddl import read_problem, write_choice

    with working("reading"):
        problem = read_problem(file)
    left = time_limit - (time.monotonic() - began)
    with working("solving"):
        answer = solve(problem, left - min(1.0, 0.1 * left), seed, jobs)
    if answer.choice:
        cost, faults = check_choice(problem, answer.choice)
        if faults or cost != answer.cost:
            raise CheckFailed(f"the choice found is wrong: {faults or f'it costs {cost}'}", where=str(file))
        if solution_out is not None:
            write_choice(solution_out, answer.choice)
    result = {
        "status": answer.status,
        "cost": answer.cost,
        "bound": answer.bound,
        "gap": answer.gap,
        "certified_by": answer.certified_by,
        "wall_s": round(time.monotonic() - began, 3),
        "seed": seed,
    }
    put_json(result) if json else put("\n".join(f"{name:<13} {value}" for name, value in result.items()))
    if answer.conflict is not None:
        raise Infeasible(answer.conflict.describe(problem), where=str(file))
    if answer.status == "infeasible":
        raise Infeasible("no choice keeps every limit", where=str(file))
    if not answer.choice:
        raise TimeLimit(f"no choice within {time_limit:g} s", where=str(file))
