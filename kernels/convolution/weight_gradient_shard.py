"""The weight gradient of one shard of an image's rows: a sum over the buffers its input lies in.

    dw = dw(own rows of x) + dw(halo above) + dw(halo below)

Each term is an ordinary weight gradient of the same dy with an input of its own height and padding, so that the first
needs no halo; their partials lie behind one another in the workspace and are added by one fold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from ..runtime.array import DeviceArray
from . import prepare, weight_gradient
from .launch import Launch, View
from .operands import dense, fetchable, like, room, view
from .problem import ConvolutionProblem
from .sharded import Halo, ShardSteps, check
from .weight_gradient_configuration import Cut, WeightGradientConfiguration, live_rows, plain

WHERE = "conv2d_weight_gradient_shard"


@dataclass(frozen=True)
class Term:
    """One buffer of x: the problem it makes with the shard's dy, and how it is split."""

    problem: ConvolutionProblem
    chosen: WeightGradientConfiguration
    buffer: int  # 0 the shard's own rows, 1 above, 2 below


def terms(problem: ConvolutionProblem, chosen: WeightGradientConfiguration, above: int, below: int) -> tuple[Term, ...]:
    """The terms of a shard whose padding counts `above` and `below` halo rows; the shard's own first.

    Where there are several, none adds its own splits together: the sum is over the splits of all.

    before:  rows of x from -above to h + below
    after:   rows 0 to h; rows 0 to `above` of one buffer; rows 0 to `below` of another
    """
    top, bottom, left, right = problem.padding
    upper = replace(problem, h=above, padding=(top - above, bottom + problem.h, left, right)) if above else None
    lower = replace(problem, h=below, padding=(top + problem.h, bottom - below, left, right)) if below else None
    found = tuple(_terms(chosen, (problem, upper, lower)))
    if len(found) == 1:
        return found
    return tuple(replace(term, chosen=replace(term.chosen, together=False)) for term in found)


def _terms(chosen: WeightGradientConfiguration, parts: tuple[ConvolutionProblem | None, ...]) -> Iterator[Term]:
    for number, part in enumerate(parts):
        if part is None or (number and not live_rows(part)):
            continue
        work = part.n * part.p if chosen.direct else Cut(part, chosen).work
        yield Term(part, replace(chosen, splits=max(1, min(chosen.splits, work))), number)


def all_splits(found: tuple[Term, ...]) -> WeightGradientConfiguration:
    """The configuration whose splits are those of all terms together: what the workspace holds, what the fold adds."""
    return replace(found[0].chosen, splits=sum(term.chosen.splits for term in found))


def workspace_bytes(problem: ConvolutionProblem, chosen: WeightGradientConfiguration, above: int, below: int) -> int:
    """Bytes of the partials of all terms."""
    return weight_gradient.workspace_bytes(problem, all_splits(terms(problem, chosen, above, below)))


def choice(problem: ConvolutionProblem, x: DeviceArray, halo: Halo, dy: DeviceArray) -> WeightGradientConfiguration:
    """The configuration of the shard's own rows, or the plain one where a buffer cannot be fetched."""
    if all(fetchable(view(rows, "halo", WHERE)) for rows in halo if rows is not None):
        return prepare.shared_weight_gradient_choice(problem, x, dy)
    from ..runtime.device import properties

    return plain(problem, properties(x.device).sms)


@lru_cache(maxsize=prepare.REMEMBERED)
def steps(
    problem: ConvolutionProblem,
    x: DeviceArray,
    halo: Halo,
    dy: DeviceArray,
    out: DeviceArray,
    dtype: str,
    workspace: DeviceArray | None,
    chosen: WeightGradientConfiguration,
) -> ShardSteps:
    """The launches of a shard, its operands checked: own rows first, the halo's and the fold when it has arrived."""
    check(halo, problem.input_shape, x, WHERE)
    like(x, dy, "dy", WHERE, problem.output_shape, problem.dtype)
    like(x, out, "out", WHERE, problem.weight_shape, dtype)
    found = terms(problem, chosen, *halo.rows)
    kernels = weight_gradient.kernels(problem, found[0].chosen, dtype == "f32", x.device)
    size = workspace_bytes(problem, chosen, *halo.rows)
    partials = room(workspace, size, WHERE) if workspace is not None else 0
    target = dense(out, "out", WHERE)
    buffers = [view(rows, "x", WHERE) if rows is not None else None for rows in (x, *halo)]
    if found[0].chosen.together:
        made = tuple(_launches(found, buffers, view(dy, "dy", WHERE), target))
        return ShardSteps(prepare.Steps(weight_gradient.prepared(kernels, made)), prepare.Steps(()))
    launches = tuple(_launches(found, buffers, view(dy, "dy", WHERE), partials))
    last = weight_gradient.second_launch(problem, all_splits(found), partials, target)
    leave, fold = kernels
    every, halos = (*[leave] * len(launches), fold), range(1, len(launches))
    ordered = weight_gradient.prepared(every, (*launches, last), behind_event=halos)
    return ShardSteps(prepare.Steps(ordered[:1]), prepare.Steps(ordered[1:]))


def _launches(found: tuple[Term, ...], buffers: list[View | None], dy: View, workspace: int) -> Iterator[Launch]:
    for term in found:
        x = buffers[term.buffer]
        assert x is not None
        yield weight_gradient.first_launch(term.problem, term.chosen, x, dy, workspace)
        workspace += weight_gradient.workspace_bytes(term.problem, term.chosen)
