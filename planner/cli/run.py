"""`tapestry run`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ...errors import UsageError
from ...printable import columns
from .guard import guarded
from .options import Force
from .plan_file import Json, PlanFile, given_plan
from .talk import demand_place, put, put_file, put_json, warnings_said, working

if TYPE_CHECKING:
    from ...program import Program
    from .tensor_file import Array


@guarded
def run(
    plan: PlanFile,
    inputs: Annotated[
        Path | None, typer.Option(metavar="F.safetensors", help="Inputs, params and states, by name.")
    ] = None,
    random: Annotated[int | None, typer.Option(min=0, metavar="SEED", help="Draw them instead.")] = None,
    outputs: Annotated[Path | None, typer.Option(metavar="F.safetensors", help="Write outputs and states.")] = None,
    device: Annotated[
        str,
        typer.Option(metavar="NAME", help="What computes: a device of the workers, or module:Class."),
    ] = "auto",
    engine: Annotated[
        Literal["local", "torchrun", "ray"], typer.Option(help="One process, or one a device, started by whom.")
    ] = "local",
    patience: Annotated[
        float | None,
        typer.Option(
            min=0.1, metavar="S", help="Seconds without a sign of a rank, or of progress, that end a run: 30."
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="Steps: params are loaded once, states go on.")] = 1,
    trace: Annotated[
        Path | None, typer.Option(metavar="F", help="Write the predicted and the measured timeline for Perfetto.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="F", help="Write the page of the plan with the measured timeline in it.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare with the reference.")] = False,
    force: Force = False,
    json: Json = False,
) -> None:
    """Run a plan on workers and count what it moves."""
    from ..measured import beside, walls

    for file in (outputs, trace, html):
        if file is not None:
            demand_place(file, force=force)
    planned = given_plan(plan)
    if verify and repeat > 1 and planned.document.states:
        names = ", ".join(planned.document.states)
        hint = "the reference takes one step; leave out --repeat, or --verify"
        raise UsageError(f"--verify compares one step, and {repeat} change the states {names}", hint=hint)
    with warnings_said():
        given = _given(planned.program, inputs, random)
    with working("running"), warnings_said():
        waits = {} if patience is None else {"patience_s": patience}
        result = planned.run(given, device=device, engine=engine, repeat=repeat, **waits)
    if result.rank:
        return  # inside a torchrun: rank 0 has the outputs and speaks for all
    if outputs is not None:
        _save(outputs, result.outputs, force=force)
    if trace is not None:
        from ..views.trace import plan_trace

        put_file(trace, plan_trace(planned, result), force=force)
    if html is not None:
        from ..views.html import plan_html

        put_file(html, plan_html(planned, run=result), force=force)
    figures: dict[str, Any] = {
        "bytes_moved": result.bytes_moved,
        "bytes_planned": planned.document.traffic.bytes_total,
        "wall_s": result.wall_s,
        "predicted_s": planned.document.predicted.makespan_s,
        "baseline_bytes": result.baseline_bytes,
        **(walls(result.steps) if repeat > 1 else {}),
    }
    if json:
        figures["tasks"] = [asdict(task) for task in beside(planned.simulate().events, result.steps)]
    _report(figures, planned.program, given if verify else None, result.outputs, json=json)


def _given(program: Program, inputs: Path | None, random: int | None) -> dict[str, Array]:
    if (inputs is None) == (random is None):
        raise UsageError("a run takes either --inputs F.safetensors or --random SEED")
    if inputs is not None:
        from .tensor_file import load_tensors

        return load_tensors(inputs, program)
    from ...inputs import random_inputs

    return random_inputs(program, random or 0)


def _save(path: Path, arrays: Mapping[str, Array], *, force: bool) -> None:
    from ...workers.stores.tensors import stored_tensors

    put_file(path, *stored_tensors(arrays), force=force)


def _report(
    figures: dict[str, Any],
    program: Program,
    given: dict[str, Array] | None,
    found: Mapping[str, Array],
    *,
    json: bool,
) -> None:
    """The figures, with those of the reference where its inputs are `given`. CheckFailed where the values differ."""
    from .verification import demand_equal, summary

    compared = []
    if given is not None:
        from ...closeness import Yardstick

        with working("evaluating the reference"):
            compared = Yardstick.of(program, given).differences(found)
        figures |= summary(compared)
    if json:
        put_json(figures)
    else:
        rows = [[name, f"{value:.6g}" if isinstance(value, float) else str(value)] for name, value in figures.items()]
        put("\n".join([columns(rows), *map(str, compared)]))
    demand_equal(compared)
