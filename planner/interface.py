"""The Python interface: `plan` makes a `Plan`; a `Plan` checks, simulates, explains, draws, saves and runs itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..files import write_file
from ..program import Pin, Program
from .collecting import collected_rarely
from .format import Document, Resolved
from .format.codec import decode_unchanged, encode
from .machine import Machine

if TYPE_CHECKING:
    import numpy as np

    from ..workers.compiled import Compiled
    from ..workers.result import RunResult
    from .check import Report
    from .diff import Difference
    from .explain import Explanation
    from .format.checked import Checked
    from .timeline import Timeline
    from .views.inline import Page


class Plan:
    """A plan document with everything one does with it. Compare or store ``document``; the rest is derived."""

    def __init__(self, document: Document, program: Program | None = None, wall_s: float | None = None) -> None:
        self.document = document
        self.wall_s = wall_s
        self._resolved = Resolved(document, program)
        self._made_here = program is not None

    @property
    def program(self) -> Program:
        return self._resolved.program

    @cached_property
    def resolved(self) -> Resolved:
        """The document with its regions parsed and its program built, each once.

        CheckFailed for a plan from elsewhere that is not well-formed, or would hang; `check` says more.
        """
        if not self._made_here:
            _demand_form(self.document)
        return self._resolved

    @cached_property
    def machine(self) -> Machine:
        from .machine.embed import machine_from_json

        return machine_from_json(self.document.machine)

    def check(self) -> Report:
        """Prove the plan, by code that knows nothing of the solver."""
        from .check import check

        return check(self.document)

    def simulate(self) -> Timeline:
        """The predicted timeline."""
        from .simulate import Prices, simulate

        return simulate(self.document, Prices(self.resolved))

    def explain(self, op: str | None = None, *, more: str | int = 0) -> Explanation:
        """Why this strategy: per operation its time, its traffic, and the next best with what it would cost; of the
        whole plan what is full, and what a faster link would save.

        more: memory more on each device ("1GiB" or bytes), with which it is planned again to say what that saves.
        """
        from .explain import explain
        from .machine.units import parse_bytes

        return explain(self.resolved, op, parse_bytes(more))

    def diff(self, other: Plan) -> Difference:
        """What is different in another plan: what was asked, times and sizes, how operations are cut, where tensors
        lie.
        """
        from .diff import diff

        return diff(self, other)

    @cached_property
    def checked(self) -> Checked:
        """The plan as workers take it. CheckFailed if its check rejects it: it would run, and give other values."""
        from .check import checked

        return checked(self._resolved)

    def run(self, inputs: Mapping[str, np.ndarray], **options: Any) -> RunResult:
        """Prove the plan, once, and run it on workers; inputs, params and states by name, whole arrays.

        See `tapestry.workers.run` for the options (``device``, ``engine``, ...). CheckFailed for a plan that its check
        rejects.
        """
        from ..workers import run

        result: RunResult = run(self.checked, inputs, **options)
        return result

    def compile(self, values: Mapping[str, np.ndarray], **options: Any) -> Compiled:
        """Prove the plan, load params and states (``values``, whole arrays by name) and bind its tasks, once.

        The result is called once a step: see `tapestry.workers.Compiled` for it and for the options (``device``,
        ``engine``).
        """
        from ..workers import Compiled

        return Compiled(self.checked, values, **options)

    def to_json(self) -> bytes:
        """The document as bytes, identical for identical plans."""
        with collected_rarely():
            return encode(self.document)

    def save(self, path: str | Path, *, replace: bool = True) -> None:
        """Write the plan, whole or not at all. UsageError for a file that is there, unless it may be replaced."""
        write_file(path, self.to_json(), replace=replace)

    def page(self, run: RunResult | None = None) -> Page:
        """What ``tapestry show --html`` writes, for a notebook to show: timeline, who sends what, memory, shard maps.

        run: what `run` gave, drawn below the prediction.
        """
        from .views.html import plan_html
        from .views.inline import Page

        return Page(plan_html(self, run=run))

    def summary(self) -> dict[str, Any]:
        """What ``tapestry plan --json`` prints: solver, prediction, traffic, peaks, shardings, number of tasks.

        ``claims`` names the fields that are the planner's word alone; `check` proves the others.
        """
        import msgspec

        names = ("format", "predicted", "traffic", "peak_bytes", "shardings")
        data: dict[str, Any] = {name: msgspec.to_builtins(getattr(self.document, name)) for name in names}
        bound = self.document.bound
        proved = {"bound_s": None, "gap": None, "chain": None} if bound is None else msgspec.to_builtins(bound)
        claims = {**msgspec.to_builtins(self.document.claims), "wall_s": self.wall_s}
        data["origin"] = claims.pop("origin")
        data["solver"] = {**claims, **proved}
        data["claims"] = [f"solver.{name}" for name in claims]
        data["tasks"] = sum(len(self.resolved.participants(task)) for task in self.document.tasks)
        return data

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        """How Jupyter shows a plan: the pictures, and the same in words beside them."""
        from .views.html import plan_svg
        from .views.text import plan_text

        return {"image/svg+xml": plan_svg(self), "text/plain": plan_text(self)}

    def __repr__(self) -> str:
        predicted = self.document.predicted
        mesh = "x".join(map(str, self.document.mesh))
        return (
            f"<Plan of {self.program.name} on {self.machine.name} mesh {mesh}: "
            f"makespan {predicted.makespan_s:.3g} s, {self.document.traffic.bytes_total} bytes moved>"
        )


def run_plans(plans: Sequence[tuple[Plan, Mapping[str, np.ndarray]]], **options: Any) -> list[RunResult]:
    """Run plans on their inputs one after another, in the same processes where an engine has any.

    The options are those of `Plan.run`, for all of them.
    """
    from ..workers.running import run_each

    found: list[RunResult] = run_each([(plan.checked, inputs) for plan, inputs in plans], **options)
    return found


def _demand_form(document: Document) -> None:
    from .check import check_form, demand

    demand(check_form(document), "the plan is not well-formed")


@collected_rarely()
def plan(
    program: Program,
    machine: Machine | str | Path,
    *,
    mesh: Sequence[int] | Mapping[str, int] | None = None,
    memory: int | str | Mapping[str, int | str] | None = None,
    pins: Sequence[Pin] = (),
    objective: str = "time",
    rewrite: bool = False,
    pieces: bool = True,
    time_limit: float = 60.0,
    since: float | None = None,
    seed: int = 0,
    jobs: int = 1,
    progress: Callable[[str], None] | None = None,
) -> Plan:
    """Shard a bound program over (the first devices of) a machine.

    mesh: logical grid over the first devices. By default several are tried, of all devices and of fewer, and the
    shortest plan is kept; its claims say what each would give. With pins that name an axis, and for the objective
    "bytes", it is all devices in one row. memory: a budget in place of what each device has ("8GiB" or bytes), or
    budgets by tier ({"hbm": "8GiB", "host": 0} or "hbm=8GiB,host=0"). pins: beside the program's own. objective: "time"
    (predicted makespan) or "bytes" (least traffic with no rank above its equal share of the work). rewrite: the program
    is cleaned and fused first where that is quicker (see `tapestry.rewrites`); the plan's program is then that one, its
    inputs, params, states and outputs as they were. pieces: operations beside exposed transfers may be computed in
    pieces.

    The plan is the same for the same arguments while ``time_limit`` seconds do not end the search. They count from the
    call, or from ``since``, a moment by `time.monotonic`: what there is by then is kept, and where there is none, none
    is looked for much longer. If they are over before the call, the first plan that fits is made.

    Raises UsageError (bad arguments or pins), Infeasible (with the binding tensors and the least budget), TimeLimit.
    """
    import time

    from ..rewrites import Rewritten
    from ..verify import verify
    from .arguments import (
        demand_limits,
        demand_short,
        given_machine,
        given_memory,
        given_mesh,
        given_pins,
        given_program,
    )
    from .clock import WRITING, Clock, now
    from .origin import origin_of, with_origin
    from .search.meshes import shares
    from .search.pipeline import make_best_plan, make_plan
    from .search.question import Question
    from .search.ready import made_ready
    from .strategy.mesh import Mesh

    started = time.perf_counter()
    demand_limits(objective, time_limit, seed, jobs)
    clock = Clock(time_limit, now() if since is None else since)
    clock.late = inf if clock.up else clock.late
    program = given_program(program).with_pins(*given_pins(pins))
    model = given_memory(memory, given_machine(machine))
    verify(program)
    row = Mesh.of(given_mesh(mesh, model.device_count), model.device_count)
    found = made_ready(program, model, row) if rewrite else Rewritten(program, program)

    def asked(grid: Mesh, clock: Clock) -> Question:
        return Question.of(
            found.program, model, grid, objective, program.pins,
            clock=clock, seed=seed, jobs=jobs, say=progress or (lambda _: None),
            pieces=pieces,
        )  # fmt: skip

    with clock.foretells(WRITING):
        demand_short(program, model)
        first = asked(row, clock)
    named = any(pin.cuts for pin in program.pins)  # of the axes of one row
    if mesh is None and not named and objective == "time" and model.device_count > 1:
        divided = shares(found.program, max(model.devices_per_host, model.hosts))
        made = make_best_plan(asked, model, clock, divided)
    else:
        made = make_plan(first)
    found = found if made.form is None else found.then(made.form)
    document = with_origin(made.document, origin_of(found))
    return Plan(document, found.program, time.perf_counter() - started)


def load_plan(path: str | Path) -> Plan:
    """Read a saved plan.

    UsageError for a file that is missing, truncated, of another version or malformed, CheckFailed for one that was
    changed after it was written.
    """
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the plan: {error.strerror}", where=str(path)) from None
    return Plan(decode_unchanged(data, str(path)))
