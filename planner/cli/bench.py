"""`tapestry bench`: the solvers on the file formats of outside benchmarks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ...errors import CheckFailed, Infeasible, TimeLimit
from .guard import guarded
from .options import Force
from .talk import demand_place, put, put_file, put_json, working

_CHECKING = 0.6  # checking and writing the answer takes no more of what reading took

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
    force: Force = False,
    json: Json = False,
) -> None:
    """Choose one strategy per node; the solution is a JSON list of strategy indices.

    Exit code 3 where no choice keeps the memory limit, 4 where none was found in time.
    """
    if solution_out is not None:
        demand_place(solution_out, force=force)
    began = time.monotonic() - time.process_time()  # the start of the interpreter counts
    from ..solvers.assign import solve
    from ..solvers.assign.check import check_choice
    from ..solvers.assign.plain.iopddl import choice_text, read_problem

    with working("reading"):
        problem = read_problem(file)
    read_s = time.monotonic() - began
    left = time_limit - read_s
    with working("solving"):
        answer = solve(problem, left - min(0.7 + _CHECKING * read_s, 0.1 * left), seed, jobs)
    if answer.choice:
        cost, faults = check_choice(problem, answer.choice)
        if faults or cost != answer.cost:
            raise CheckFailed(f"the choice found is wrong: {faults or f'it costs {cost}'}", where=str(file))
        if solution_out is not None:
            put_file(solution_out, choice_text(answer.choice), force=force)
    result = {
        "status": answer.status,
        "cost": answer.cost,
        "bound": answer.bound,
        "gap": answer.gap,
        "certified_by": answer.certified_by,
        "claimed_bound": answer.claim.bound if answer.claim is not None else None,
        "claimed_by": answer.claimed_by,
        "wall_s": round(time.monotonic() - began, 3),
        "read_s": round(read_s, 3),
        "first_s": round(read_s + answer.history[0][0], 3) if answer.history else None,
        "seed": seed,
    }
    _print(result, json=json)
    if answer.conflict is not None:
        raise Infeasible(answer.conflict.describe(problem), where=str(file))
    if answer.status == "infeasible":
        raise Infeasible("no choice keeps every limit", where=str(file))
    if not answer.choice:
        raise TimeLimit(f"no choice within {time_limit:g} s", where=str(file))


@app.command("pack")
@guarded
def bench_pack(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A packing problem: CSV with id,lower,upper,size.")],
    capacity: Annotated[
        int | None,
        typer.Option("--capacity", metavar="N", min=0, help="As in the file's name, X.N.csv, or 1048576 by default."),
    ] = None,
    time_limit: TimeLimitS = 60.0,
    seed: Seed = 0,
    jobs: Jobs = 2,
    solution_out: SolutionOut = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Give every buffer an offset; the solution is the CSV of the problem with a column of offsets.

    Exit code 3 where it is proved that none fits, 4 where none was found in time.
    """
    if solution_out is not None:
        demand_place(solution_out, force=force)
    began = time.monotonic()
    from ..solvers.pack import pack
    from ..solvers.pack.check import check_packing
    from ..solvers.pack.minimalloc import capacity_of, read_buffers, solution_text

    buffers = read_buffers(file)
    limit = capacity_of(file) if capacity is None else capacity
    with working("packing"):
        packing = pack(buffers, limit, time_limit=time_limit - (time.monotonic() - began), seed=seed, jobs=jobs)
    if packing.status == "packed":
        faults = check_packing(buffers, packing.offsets, limit)
        if faults:
            raise CheckFailed(f"the packing found is wrong: {faults[0]}", where=str(file))
        if solution_out is not None:
            put_file(solution_out, solution_text(buffers, packing.offsets), force=force)
    result = {
        "status": packing.status,
        "buffers": len(buffers),
        "capacity": limit,
        "peak": packing.peak if packing.status == "packed" else None,
        "lower_bound": packing.lower_bound,
        "wall_s": round(time.monotonic() - began, 3),
        "seed": seed,
    }
    _print(result, json=json)
    if packing.witness is not None:
        raise Infeasible(str(packing.witness), where=str(file))
    if packing.status == "unknown":
        raise TimeLimit(f"no packing within {time_limit:g} s", where=str(file))


def _print(result: Mapping[str, object], *, json: bool) -> None:
    put_json(result) if json else put("\n".join(f"{name:<13} {value}" for name, value in result.items()))
