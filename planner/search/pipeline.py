"""From a program and a machine to a plan document: decide, lower, place, simulate, keep the best schedule."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec

from ...program import Pin, Program
from ...serialize import program_to_json
from ..format import Document, Predicted, Resolved, Solver, Traffic, Transfer
from ..lowering.emit import Emitted, emit, sharding_of
from ..lowering.memory import place
from ..lowering.order import reordered
from ..lowering.steps import Decisions, Schedule, StepBuilder
from ..lowering.waits import waits_of
from ..machine import Machine
from ..machine.embed import machine_to_json
from ..sharding.assignment import Solution
from ..sharding.bound import lower_bound_seconds
from ..sharding.model import PICO, Model, build_model, evaluate, satisfied
from ..sharding.nodes import Node, all_nodes
from ..sharding.repetition import find_repetition
from ..simulate import PriceBook, Prices, Timeline, simulate
from ..strategy.layouts import Layout, Mesh
from ..strategy.strategies import StrategyTable

Progress = Callable[[str], None]


@dataclass(eq=False)
class Context:
    """Everything about one planning problem that does not change while it is solved."""

    program: Program
    machine: Machine
    mesh: Mesh
    objective: str
    pins: tuple[Pin, ...]
    time_limit: float
    seed: int
    jobs: int
    say: Progress

    def __post_init__(self) -> None:
        self.book = PriceBook(self.machine, self.mesh)
        self.layouts, self.pricing = self.book.layouts, self.book.traffic
        self.table = StrategyTable(self.program, self.mesh, self.machine, self.layouts)
        self.program_json = program_to_json(self.program)
        self.machine_json = msgspec.json.decode(msgspec.json.encode(machine_to_json(self.machine)))
        self.tier = self.machine.device.compute_tier.name
        self.capacity = self.machine.capacity_bytes(self.tier)


@dataclass(frozen=True, eq=False)
class Candidate:
    """One lowered plan and its predicted timeline."""

    decisions: Decisions
    document: Document
    timeline: Timeline
    peak: int
    schedule: Schedule


def make_plan(context: Context) -> Document:
    """The whole pipeline. Raises Infeasible, TimeLimit or UsageError."""
    from .search import Search  # it lowers what it finds, with the functions below

    started = time.perf_counter()
    context.say("strategies")
    nodes = all_nodes(context.program, context.table, context.objective, context.pins)
    repetition = find_repetition(context.program, context.table)
    model = build_model(context.program, nodes, repetition, context.pricing, context.objective, context.capacity)
    context.say("solving")
    bound = lower_bound_seconds(nodes, context.mesh.size)
    found = Search(context, model, started).run()
    return _with_report(found.candidate, model, found.choice, found.solution, bound, context)


def decide(nodes: list[Node], model: Model, choice: Mapping[int, int]) -> Decisions:
    """A choice spelled out for every tensor and operation."""
    homes, strategies, ends = {}, {}, {}
    for k, node in enumerate(nodes):
        option = model.option(choice, k)
        if node.kind == "op":
            assert node.op is not None
            # Tied copies share one strategy object: their layouts are interned by structure.
            strategies[node.name] = node.strategies[option]
        elif node.kind == "source":
            layout = node.homes[option]
            assert layout is not None
            homes[node.tensor.name] = layout
        else:
            ends[node.tensor.name] = node.needs[option][0]
    return Decisions(homes, strategies, ends)


# How far ahead resident tensors are gathered, the most eager first; 0 takes the least memory.
AHEAD = (24, 12, 6, 3, 1)


def best_candidate(context: Context, decisions: Decisions, ideal: float) -> Candidate:
    """The lowered plan with the shortest simulated makespan among those that fit; the smallest if none does.

    Looking further is pointless once a schedule comes within 1 % of the model's own estimate, ``ideal`` seconds.
    """
    if not _moves(context, decisions, resident=True):
        candidates = {Schedule(): lower(context, decisions, Schedule())}
    else:
        candidates = _looked_ahead(context, decisions, ideal)
    best = _best(context, candidates)
    if best.peak <= context.capacity and _moves(context, decisions, resident=False):
        listed = replace(best.schedule, listed=True)
        candidates[listed] = lower(context, decisions, listed)
    return _best(context, candidates)


def _looked_ahead(context: Context, decisions: Decisions, ideal: float) -> dict[Schedule, Candidate]:
    """Gathers of resident tensors at several distances from their use, and before or after moves of fresh values."""
    least = lower(context, decisions, Schedule(0))
    candidates = {least.schedule: least}
    if least.peak > context.capacity:
        return candidates
    for ahead in AHEAD:
        candidates[Schedule(ahead)] = latest = lower(context, decisions, Schedule(ahead))
        if latest.peak <= context.capacity and latest.timeline.makespan_s <= 1.01 * ideal:
            break
    eager = replace(_best(context, candidates).schedule, gathers_first=True)
    candidates[eager] = lower(context, decisions, eager)
    return candidates


def _best(context: Context, candidates: Mapping[Schedule, Candidate]) -> Candidate:
    fitting = [c for c in candidates.values() if c.peak <= context.capacity]
    return (
        min(fitting, key=lambda c: c.timeline.makespan_s) if fitting else min(candidates.values(), key=lambda c: c.peak)
    )


def _moves(context: Context, decisions: Decisions, *, resident: bool) -> bool:
    """Whether some resident tensor (else: some input or computed value) is moved at all."""
    roles = ("param", "state", "const") if resident else ("input", "value")
    for op in context.program.operations:
        for name, need in zip(op.operands, decisions.strategies[op.name].needs, strict=True):
            if context.program.tensor(name).role in roles and not satisfied(_home(context, decisions, name), need):
                return True
    return False


def _home(context: Context, decisions: Decisions, name: str) -> Layout:
    """Where a tensor is before it is moved."""
    producer = context.program.producer.get(name)
    return decisions.homes[name] if producer is None else decisions.strategies[producer.name].writes


def lower(context: Context, decisions: Decisions, schedule: Schedule) -> Candidate:
    """One plan document for given decisions, with its simulated timeline."""
    for op in context.program.operations:
        context.table.prove(op, decisions.strategies[op.name].cuts)
    program = reordered(context.program, decisions, context.pricing) if schedule.listed else context.program
    steps = StepBuilder(program, decisions, context.pricing, context.layouts, schedule).build()
    arena = place(steps, context.capacity)
    emitted = emit(steps, arena, waits_of(steps, arena), context.tier)
    document = _document(context, decisions, emitted, arena.peak)
    timeline = simulate(document, Prices(Resolved(document, context.program), context.book))
    return Candidate(decisions, document, timeline, arena.peak, schedule)


def _document(context: Context, decisions: Decisions, emitted: Emitted, peak: int) -> Document:
    shardings = {name: sharding_of(strategy, context.mesh) for name, strategy in decisions.strategies.items()}
    empty = Solver("pinned", context.objective, 0.0, 0, None, 0.0, None, None, context.seed)
    return Document(
        program=context.program_json,
        machine=context.machine_json,
        mesh=context.mesh.shape,
        mesh_axes=context.mesh.axes,
        devices=tuple(range(context.mesh.size)),
        layouts=emitted.layouts,
        buffers=emitted.buffers,
        tasks=emitted.tasks,
        outputs=emitted.outputs,
        states=emitted.states,
        shardings=shardings,
        solver=empty,
        predicted=Predicted(0.0, 0.0, 0.0),
        traffic=Traffic(0, {}, {}),
        peak_bytes={str(rank): {context.tier: peak} for rank in range(context.mesh.size)},
    )


def _with_report(
    candidate: Candidate, model: Model, choice: Mapping[int, int], solution: Solution, bound: float, context: Context
) -> Document:
    """Fill in what was achieved: objective, bounds, prediction, traffic."""
    document, timeline = candidate.document, candidate.timeline
    _, parts = evaluate(model, choice)
    by_bytes = context.objective == "bytes"
    objective = 0.0 if by_bytes else max(parts["compute"], parts["resident"]) + parts["values"]
    gap = max(0.0, 1 - solution.bound / solution.objective) if solution.objective else 0.0
    makespan = timeline.makespan_s
    solver = Solver(
        solution.status,
        context.objective,
        objective / PICO,
        sum(parts.values()) if by_bytes else 0,
        bound,
        gap,
        (makespan - bound) / makespan if makespan else 0.0,
        None,  # how long it took is no part of the plan: the same input gives the same bytes
        context.seed,
    )
    return with_prediction(document, timeline, solver, context)


def with_prediction(document: Document, timeline: Timeline, solver: Solver, context: Context) -> Document:
    """The document with its predicted times and counted traffic."""
    prices = Prices(Resolved(document, context.program), context.book)
    predicted = Predicted(timeline.makespan_s, timeline.compute_s, timeline.exposed_transfer_s)
    return msgspec.structs.replace(document, solver=solver, predicted=predicted, traffic=count_traffic(prices))


def count_traffic(prices: Prices) -> Traffic:
    """Bytes received from other ranks, in all, by kind of transfer and by link."""
    by_kind: dict[str, int] = {}
    by_link: dict[str, int] = {}
    for task in prices.resolved.document.tasks:
        if not isinstance(task, Transfer):
            continue
        move = prices.move(task)
        nbytes = move.elements * prices.resolved.program.tensor(task.tensor).itemsize
        if nbytes:
            by_kind[move.kind] = by_kind.get(move.kind, 0) + nbytes
            for link, share in prices.links(task).items():
                by_link[link] = by_link.get(link, 0) + share
    return Traffic(sum(by_kind.values()), dict(sorted(by_kind.items())), dict(sorted(by_link.items())))
