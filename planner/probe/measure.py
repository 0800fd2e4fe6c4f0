"""The probe: a machine measured by running plans on it, and programs measured on a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace as replaced

from ...inputs import random_inputs
from ...program import Pin, Program
from ..format import LowerBound, Resolved
from ..interface import Plan, plan
from ..machine import (
    READ,
    Curve,
    DeviceModel,
    KernelWorkspace,
    Link,
    Machine,
    Pace,
    Points,
    Rate,
    Tier,
    machine_to_json,
)
from ..machine.errors import MachineError
from ..measured import Step
from ..search.question import Question
from ..search.report import with_prediction
from ..sharding.bound import lower_bound
from ..simulate import Prices, simulate
from ..strategy.mesh import Mesh
from .curves import (
    operation_curves,
    pace_of,
    renewed,
    transfer_curves,
    transfer_samples,
    with_attention,
    with_operations,
    with_slopes,
)
from .programs import AXIS, attention_shapes, moves, slopes_shapes, work
from .sizes import FULL, GPU, GPU_QUICK, QUICK, Sizes
from .times import TaskTimes, task_times

if TYPE_CHECKING:
    import numpy as np

Runs = Callable[[Sequence[tuple[Plan, Mapping[str, "np.ndarray"]]], int], Sequence[Sequence[Step]]]
"""Runs plans on their inputs, each so many steps, and gives the steps of each."""

Say = Callable[[str], None]

# Pins leave one choice an operation: there is nothing to search for, and a busy computer is not to run out of time.
SEARCH_S = 600.0
REPEAT, REPEAT_QUICK = 15, 5
# A program's own steps are few tasks, so more of them are affordable.
STEPS, STEPS_QUICK = 31, 11
# Rounds of planning a program, measuring what it was planned to do, and planning again with that.
ROUNDS = 3
# Elements of a large tensor that are drawn; the others are these again.
BLOCK = 1 << 20


@dataclass(frozen=True)
class Host:
    """What of a machine is not measured: its name, what computes, how many ranks, bytes of its memory for each.

    ``turns``: all ranks are in one process. ``tier``: the memory in which devices compute. ``disk_bytes``: of the disk
    that all share. ``overlap``: see `DeviceModel`. ``graphs``: each device computes by itself, and a step is replayed
    as one graph: what tasks take is measured one by one on one device. ``behind``: the memories between the one in
    which it computes and the disk. ``workspaces``: what its kernels want to work in.
    """

    name: str
    description: str
    device: str
    ranks: int
    tier: str
    memory_bytes: int
    disk_bytes: int
    turns: bool
    overlap: bool
    link: str
    graphs: bool = False
    behind: tuple[Tier, ...] = ()
    workspaces: tuple[KernelWorkspace, ...] = ()

    def sizes(self, *, quick: bool) -> Sizes:
        """What is worth measuring of it."""
        if self.graphs:
            return GPU_QUICK if quick else GPU
        return QUICK if quick else FULL


@dataclass(frozen=True)
class Ways:
    """How plans are run to be measured: for what tasks take, for what those take that a device may do together, and for
    what transfers take between the ranks."""

    tasks: Runs
    joined: Runs
    transfers: Runs


def probed(
    host: Host, ways: Ways, *, quick: bool, device: DeviceModel | None = None, say: Say = lambda _: None
) -> Machine:
    """Measure a machine: with one rank at work, with all, and their transfers; of a machine whose ``device`` is known,
    its transfers alone. Where each device computes by itself, transfers between fewer ranks are measured, too."""
    sizes, repeat = _effort(host, quick=quick)
    first = _unmeasured(host)
    known = device or _device(host, _paces(host, ways, first, quick=quick, say=say))
    if host.ranks == 1:
        return _machine(host, known, ())
    say("measuring transfers")
    curves: list[Curve] = []
    for ranks in _levels(host.ranks, quick=quick)[1:] if host.graphs else [host.ranks]:
        (moved,) = _measured(host, ways.transfers, [_moves_plan(first, ranks, sizes)], repeat)
        curves += transfer_curves(transfer_samples(*moved), ranks)
    return _machine(host, known, tuple(curves))


def _paces(host: Host, ways: Ways, first: Machine, *, quick: bool, say: Say) -> tuple[Pace, ...]:
    """What tasks take with one rank at work, and with all."""
    sizes, repeat = _effort(host, quick=quick)
    say("planning what is to be measured")
    levels = [1] if host.graphs else _levels(host.ranks, quick=quick)
    plans = [_work_plan(first, ranks, sizes) for ranks in levels]
    say("measuring tasks")
    paces = tuple(pace_of(*each, sizes.grids) for each in _measured(host, ways.tasks, plans, repeat))
    if sizes.records is None:
        return paces
    seen = [_attention_plan(first, ranks, sizes) for ranks in levels]
    each = zip(paces, _measured(host, ways.joined, seen, repeat), strict=True)
    kernel = ("attention", sizes.heads.dtype)
    paces = tuple(with_attention(pace, *took, kernel, sizes.records) for pace, took in each)
    sloped = [_slopes_plan(first, ranks, sizes) for ranks in levels]
    return tuple(
        with_slopes(pace, *took, ("slopes", sizes.heads.dtype), sizes.vectors)
        for pace, took in zip(paces, _measured(host, ways.tasks, sloped, repeat), strict=True)
    )


def _effort(host: Host, *, quick: bool) -> tuple[Sizes, int]:
    """What is measured, and how often."""
    return host.sizes(quick=quick), REPEAT_QUICK if quick else REPEAT


def _measured(host: Host, runs: Runs, plans: Sequence[Plan], repeat: int) -> list[tuple[Plan, TaskTimes]]:
    """What the tasks of plans took."""
    found = runs([(made, random_inputs(made.program, block=BLOCK)) for made in plans], repeat)
    return [
        (made, task_times(made.resolved, steps, turns=host.turns)) for made, steps in zip(plans, found, strict=True)
    ]


def _levels(ranks: int, *, quick: bool) -> list[int]:
    """Numbers of ranks at work to be measured: 1 and all, and the powers of two between where there is time."""
    between = [1 << k for k in range(1, ranks.bit_length()) if 1 << k < ranks]
    return sorted({1, ranks, *([] if quick else between)})


def _work_plan(machine: Machine, ranks: int, sizes: Sizes) -> Plan:
    pins = [Pin("op", "*", ((AXIS, "r"),))]
    return plan(work(ranks, sizes), machine, mesh=(ranks,), pins=pins, pieces=False, time_limit=SEARCH_S)


def _attention_plan(machine: Machine, ranks: int, sizes: Sizes) -> Plan:
    pins = [Pin("op", "*", ((AXIS, "r"),))]
    program = attention_shapes(ranks, sizes)
    return plan(program, machine, mesh=(ranks,), pins=pins, pieces=False, time_limit=SEARCH_S)


def _slopes_plan(machine: Machine, ranks: int, sizes: Sizes) -> Plan:
    pins = [Pin("op", "*", ((AXIS, "r"),))]
    program = slopes_shapes(ranks, sizes)
    return plan(program, machine, mesh=(ranks,), pins=pins, pieces=False, time_limit=SEARCH_S)


def _moves_plan(machine: Machine, ranks: int, sizes: Sizes) -> Plan:
    program, pins = moves(ranks, sizes)
    return plan(program, machine, mesh=(ranks,), pins=pins, pieces=False, time_limit=SEARCH_S)


def _unmeasured(host: Host) -> Machine:
    """Any rates: they decide nothing where everything is pinned."""
    pace = Pace(1, 1e-6, ((1.0, 1e-9),))
    return _machine(host, _device(host, (pace,)), ())


def _device(host: Host, paces: tuple[Pace, ...]) -> DeviceModel:
    """Rates, which stand in where there is no curve, are the best of the curves with all ranks at work; that of the
    memory is what the largest copy had, which no cache holds."""
    most = max(paces, key=lambda pace: pace.ranks)
    peak = {(curve.kernel, curve.dtype): _rate(curve.points) / 1e12 for curve in most.curves if curve.kernel != READ}
    peak.setdefault(("elementwise", "f64"), peak.get(("elementwise", "f32"), 1e-3) / 2)
    largest, took = most.copy[-1]
    memory = largest / took / 1e9
    tiers = (
        Tier(host.tier, host.memory_bytes, memory, memory),
        *host.behind,
        Tier("disk", host.disk_bytes, 1.0, 0.5, shared_per_host=True),
    )
    return DeviceModel(
        host.device, most.start_s, tuple(Rate(*key, tflops) for key, tflops in sorted(peak.items())), tiers,
        overlap=host.overlap, paces=paces, workspaces=host.workspaces,
    )  # fmt: skip


def _machine(host: Host, device: DeviceModel, curves: tuple[Curve, ...]) -> Machine:
    links = (_link(host.link, curves),) if host.ranks > 1 else ()
    return Machine(host.name, host.description, device, 1, host.ranks, links)


def _rate(points: Points) -> float:
    return max(size / seconds for size, seconds in points)


def _link(kind: str, curves: tuple[Curve, ...]) -> Link:
    """As fast as the best of its curves; a message of a kind that has none costs at least what the quickest costs."""
    rates = [rate for curve in curves for _, rate in curve.points]
    least = [size / (rate * 1e9) for curve in curves for size, rate in curve.points[:1]]
    return Link(kind, max(rates, default=1.0), min(least, default=1e-4), "host", curves)


def with_program(
    machine: Machine, program: Program, runs: Runs, *, turns: bool, quick: bool, time_limit: float = 20.0,
    ranks: int | None = None, rewrite: bool = False, alone: bool = False, say: Say = lambda _: None,
) -> tuple[Machine, Plan]:  # fmt: skip
    """The machine with what the operations and transfers of a program take, and a plan on it that was measured.

    The plan of least traffic is run first: in it every operation is cut, which no measurement of others may stand for.
    Then the program is planned with what was measured, and run, until it is planned the same way again. Of all plans
    that were run, the one whose steps were the shortest is kept.

    rewrite: see `plan`. alone: what is run are tasks by themselves, and no transfers between ranks: these are priced as
    the machine has them, and the plan that is kept is the quickest as predicted in the end.
    """
    repeat = STEPS_QUICK if quick else STEPS
    size = ranks or machine.device_count
    ran: dict[bytes, tuple[float, Plan]] = {}
    for turn in range(ROUNDS):
        say(f"planning {program.name}")
        objective = "time" if turn else "bytes"
        made = plan(program, machine, mesh=(size,), objective=objective, rewrite=rewrite, time_limit=time_limit)
        if _decided(made) in ran:
            break
        say(f"measuring {program.name}, round {turn + 1}")
        (steps,) = runs([(made, random_inputs(made.program, block=BLOCK))], repeat)
        ran[_decided(made)] = median(step.wall_s for step in steps), made
        machine = measured_on(machine, made, steps, turns=turns, alone=alone)
    known = [(took, restated(made, machine)) for took, made in ran.values()]
    return machine, min(known, key=lambda one: one[1].document.predicted.makespan_s if alone else one[0])[1]


def restated(made: Plan, machine: Machine) -> Plan:
    """The same tasks with the times of another description of the machine, in whose model nobody searched for them."""
    old = made.document
    question = Question.of(made.program, machine, Mesh(tuple(old.mesh), tuple(old.mesh_axes), tuple(old.weights or ())))
    claims = replaced(old.claims, status="measured", objective_s=0.0, objective_bytes=0, model_gap=0.0, kernels=())
    document = replaced(old, machine=question.machine_json, claims=claims)
    timeline = simulate(document, Prices(Resolved(document, made.program), question.book))
    least, makespan = lower_bound(made.program, machine, len(old.devices)), timeline.makespan_s
    bound = LowerBound(least.seconds, (makespan - least.seconds) / makespan if makespan else 0.0, least.chain)
    return Plan(with_prediction(replaced(document, bound=bound), timeline, question), made.program)


def _decided(made: Plan) -> bytes:
    """Tasks and layouts of a plan: what it does, whatever it is predicted to take."""
    return msgspec.json.encode([made.document.tasks, made.document.layouts])


def measured_on(machine: Machine, made: Plan, steps: Sequence[Step], *, turns: bool, alone: bool = False) -> Machine:
    """The machine with what the steps of a plan took, operation by operation and transfer by transfer.

    What the plan is then predicted to take less than its steps took is shared out among its tasks: ranks that wait for
    one another wait for whoever happens to be late, which the means of single tasks do not show. Where tasks were
    measured ``alone``, nobody waited, and the same pace is that of any number of ranks.
    """
    times = task_times(made.resolved, steps, turns=turns)
    nearest = machine.device.pace(len(made.document.devices))
    if nearest is None:
        raise MachineError("has no measured paces", where=machine.name, hint="tapestry machine probe measures them")
    if alone:
        return _with_operations(machine, nearest, made, replace(times, gap=0.0))
    short = times.wall_s - _predicted(made, _with_times(machine, nearest, made, times))
    gap = times.gap + short / max(1, times.most)
    return _with_times(machine, nearest, made, replace(times, gap=max(0.0, gap)))


def _predicted(made: Plan, machine: Machine) -> float:
    """Seconds of the same tasks on another machine."""
    document = replaced(made.document, machine=machine_to_json(machine))
    return simulate(document, Prices(Resolved(document, made.program))).makespan_s


def _with_times(machine: Machine, nearest: Pace, made: Plan, times: TaskTimes) -> Machine:
    """Operations at the pace of so many ranks as the plan has, and transfers."""
    ranks = len(made.document.devices)
    links = tuple(_with_transfers(link, transfer_samples(made, times), ranks) for link in machine.links)
    return replace(_with_operations(machine, replace(nearest, ranks=ranks), made, times), links=links)


def _with_operations(machine: Machine, pace: Pace, made: Plan, times: TaskTimes) -> Machine:
    pace = replace(pace, operations=with_operations(pace, operation_curves(made, times, pace.start_s)))
    paces = {each.ranks: each for each in machine.device.paces} | {pace.ranks: pace}
    return replace(machine, device=replace(machine.device, paces=tuple(paces[count] for count in sorted(paces))))


def _with_transfers(link: Link, measured: Mapping[str, Any], ranks: int) -> Link:
    """Curves of a link with more points; what was measured anew stands in place of what was known."""
    known: dict[str, dict[float, float]] = {
        curve.collective: {size: size / (rate * 1e9) for size, rate in curve.points}
        for curve in link.curve
        if curve.ranks == ranks
    }
    for kind, samples in measured.items():
        known[kind] = dict(renewed(known.get(kind, {}), samples))
    curves = transfer_curves({kind: list(points.items()) for kind, points in known.items()}, ranks)
    others = tuple(curve for curve in link.curve if curve.ranks != ranks)
    made = _link(link.kind, (*others, *curves))
    return replace(made, scope=link.scope)
