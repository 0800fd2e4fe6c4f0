"""What a plan says of itself: objective, bounds and gaps, predicted times, counted traffic."""

from __future__ import annotations

import msgspec

from ..format import Claims, Compute, Document, KernelTime, LowerBound, Predicted, Resolved, Traffic, Transfer
from ..sharding.bound import Certificate
from ..sharding.model import PICO, TIE, Model, evaluate
from ..simulate import Prices
from ..timeline import Timeline
from .found import Found
from .question import Question


def with_report(found: Found, model: Model | None, bound: Certificate, question: Question) -> Document:
    """Fill in what was achieved: objective, bounds, prediction, traffic. ``model``: of the choice, if there is one."""
    document, timeline = found.candidate.document, found.candidate.timeline
    choice, solution = found.choice, found.solution
    placed = {"compute": solution.objective // TIE, "values": 0, "resident": 0}
    parts = evaluate(model, choice)[1] if choice and model is not None else placed
    by_bytes = question.objective == "bytes"
    objective = 0.0 if by_bytes else max(parts["compute"], parts["resident"]) + parts["values"]
    gap = max(0.0, 1 - solution.bound / solution.objective) if solution.objective else 0.0
    makespan = timeline.makespan_s
    moved = sum(parts.values()) if by_bytes else 0
    claims = Claims(solution.status, question.objective, objective / PICO, moved, gap, question.seed)
    proved = LowerBound(bound.seconds, (makespan - bound.seconds) / makespan if makespan else 0.0, bound.chain)
    return with_prediction(msgspec.structs.replace(document, bound=proved, claims=claims), timeline, question)


def with_prediction(document: Document, timeline: Timeline, question: Question) -> Document:
    """The document with its predicted times and counted traffic."""
    prices = Prices(Resolved(document, question.program), question.book)
    predicted = Predicted(timeline.makespan_s, timeline.compute_s, timeline.exposed_transfer_s)
    claims = msgspec.structs.replace(document.claims, kernels=kernel_times(prices))
    return msgspec.structs.replace(document, predicted=predicted, traffic=count_traffic(prices), claims=claims)


def kernel_times(prices: Prices) -> tuple[KernelTime, ...]:
    """The tasks that the model of a kernel times on some rank."""
    found = []
    for task in prices.resolved.document.tasks:
        if isinstance(task, Compute):
            work = prices.compute(task)
            if any(shard.measured for shard in work):
                found.append(KernelTime(task.id, tuple(shard.seconds for shard in work)))
    return tuple(found)


def count_traffic(prices: Prices) -> Traffic:
    """Bytes received from other ranks, in all, by kind of transfer and by link."""
    by_kind: dict[str, int] = {}
    by_link: dict[str, int] = {}
    for task in prices.resolved.document.tasks:
        if not isinstance(task, Transfer):
            continue
        move = prices.move(task)
        nbytes = move.nbytes
        if nbytes:
            by_kind[move.kind] = by_kind.get(move.kind, 0) + nbytes
            for link, share in prices.links(task).items():
                by_link[link] = by_link.get(link, 0) + share
    return Traffic(sum(by_kind.values()), dict(sorted(by_kind.items())), dict(sorted(by_link.items())))
