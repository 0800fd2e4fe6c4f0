"""Exact reduction: what forbidden pairs already decide, so that solvers see a smaller problem with the same answers.

Three rules run on a worklist of pairs until none applies:

- *arc consistency*: a label without an allowed partner in some neighbour is dropped;
- *separable pairs*: a matrix a[i] + b[j] is folded into its two nodes;
- *functional merging*: where every label of g has exactly one allowed partner in h, h is a function of g, and g absorbs
  its costs, its pairs and its memory. Bijections and merges that add no entries come first, merges of hubs last.

Every dropped label and every merge is recorded as a `Step` with the edges that justify it, so that a bound on the
reduced problem can be checked on the original one (`check.py`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...compiled import compiled
from ..answer import Step
from ..problem import FORBIDDEN, AssignmentProblem, Ints
from .reduced import HALF, Reduced

_Pairs = list[dict[int, Ints]]  # per node: neighbour -> matrix [labels of node, labels of neighbour]
_Causes = list[dict[int, tuple[int, ...]]]  # per node: neighbour -> the edges in that matrix

GROWTH_LIMIT = 2_000_000  # pair entries a single merge may add; beyond it the pair simply stays
_INTERPRETED = 100_000  # pair entries up to which the inspection runs as it stands: compiling takes seconds


class Contradiction(Exception):
    """The forbidden pairs alone leave `node` without a strategy, by the steps taken so far."""

    def __init__(self, node: int, steps: tuple[Step, ...]) -> None:
        super().__init__(f"node {node}")
        self.node, self.steps = node, steps


@dataclass(eq=False)
class _State:
    unary: list[Ints]
    labels: list[Ints]  # per node: the strategies its labels stand for
    pairs: _Pairs
    causes: _Causes
    into: list[tuple[int, Ints] | None]  # per merged node: its owner, and its strategy under each strategy of the owner
    inspect: Callable[[Ints], tuple[int, int, int, int, bool]]
    steps: list[Step] = field(default_factory=list)
    queue: dict[tuple[int, int], None] = field(default_factory=dict)
    merges: list[tuple[int, int, int]] = field(default_factory=list)


def reduce(problem: AssignmentProblem, *, merging: bool = True) -> tuple[Reduced, tuple[Step, ...]]:
    """The smaller model with the same feasible choices and costs, and why. Raises Contradiction if there are none."""
    state = _initial(problem)
    while state.queue or state.merges:
        while state.queue:
            (g, h), _ = state.queue.popitem()
            if h in state.pairs[g]:
                _revise(state, g, h, merging)
        if state.merges:
            price, g, h = heapq.heappop(state.merges)
            _try_merge(state, price, g, h)
    return _model(problem, state), tuple(state.steps)


def _initial(problem: AssignmentProblem) -> _State:
    n = problem.node_count
    unary = [problem.costs[v].copy() for v in range(n)]
    pairs: _Pairs = [{} for _ in range(n)]
    causes: _Causes = [{} for _ in range(n)]
    for e, (u, v) in enumerate(problem.edges.tolist()):
        matrix = problem.matrix(e)
        if u == v:
            unary[u] = _sum(unary[u], np.ascontiguousarray(matrix.diagonal()))
        else:
            _join(pairs, causes, u, v, matrix, (e,))
    labels = [np.arange(len(costs)) for costs in unary]
    small = len(problem.edge_costs.values) <= _INTERPRETED
    state = _State(unary, labels, pairs, causes, [None] * n, _inspect.py_func if small else _inspect)
    for v in range(n):
        _keep(state, v, unary[v] < HALF)
    state.queue.update({(u, v): None for u in range(n) for v in pairs[u] if u < v})
    return state


def _join(pairs: _Pairs, causes: _Causes, u: int, v: int, matrix: Ints, why: tuple[int, ...]) -> None:
    """Adds a matrix [u, v] to what stands between u and v; the two directions are views of one array."""
    if v in pairs[u]:
        matrix, why = _sum(pairs[u][v], matrix), causes[u][v] + why
    matrix = np.minimum(matrix, FORBIDDEN)
    pairs[u][v], pairs[v][u] = matrix, matrix.T
    causes[u][v] = causes[v][u] = why


def _sum(a: Ints, b: Ints) -> Ints:
    """Saturating: forbidden plus anything is forbidden."""
    return np.where((a >= HALF) | (b >= HALF), FORBIDDEN, a + b)


def _keep(state: _State, g: int, kept: NDArray[np.bool_]) -> None:
    """Restricts g to some of its labels."""
    if kept.all():
        return
    if not kept.any():
        raise Contradiction(g, tuple(state.steps))
    state.unary[g], state.labels[g] = state.unary[g][kept], state.labels[g][kept]
    for h, matrix in state.pairs[g].items():
        state.pairs[g][h] = smaller = np.ascontiguousarray(matrix[kept])
        state.pairs[h][g] = smaller.T
        state.queue[min(g, h), max(g, h)] = None


def _revise(state: _State, g: int, h: int, merging: bool) -> None:
    """Applies the rules to one pair."""
    least_row, most_row, least_col, most_col, separable = state.inspect(state.pairs[g][h])
    if least_row == 0:
        return _prune(state, g, h)
    if least_col == 0:
        return _prune(state, h, g)
    if separable:
        return _fold(state, g, h)
    if merging:
        for one, other, most in ((g, h, most_row), (h, g, most_col)):
            if most == 1:
                heapq.heappush(state.merges, (_price(state, one, other), one, other))
    return None


@compiled
def _inspect(matrix):  # type: ignore[no-untyped-def]
    """Fewest and most allowed partners of a row and of a column, and whether the matrix is a[i] + b[j]."""
    rows, cols = matrix.shape
    per_col = np.zeros(cols, dtype=np.int64)
    least, most = cols, 0
    separable = True
    for i in range(rows):
        count = 0
        for j in range(cols):
            if matrix[i, j] < HALF:
                count += 1
                per_col[j] += 1
                if separable and matrix[i, j] - matrix[i, 0] != matrix[0, j] - matrix[0, 0]:
                    separable = False
            else:
                separable = False
        least, most = min(least, count), max(most, count)
    return least, most, per_col.min(), per_col.max(), separable


def _prune(state: _State, g: int, h: int) -> None:
    state.steps.append(Step(False, g, h, state.causes[g][h]))
    state.queue[min(g, h), max(g, h)] = None
    _keep(state, g, np.any(state.pairs[g][h] < HALF, axis=1))


def _fold(state: _State, g: int, h: int) -> None:
    matrix = state.pairs[g][h]
    state.unary[g] = state.unary[g] + matrix[:, 0]
    state.unary[h] = state.unary[h] + (matrix[0] - matrix[0, 0])
    _cut(state, g, h)


def _cut(state: _State, g: int, h: int) -> None:
    del state.pairs[g][h], state.pairs[h][g], state.causes[g][h], state.causes[h][g]


def _price(state: _State, g: int, h: int) -> int:
    """The order of merges: few pairs that move, few labels that each of them gains; bijections gain none."""
    return len(state.pairs[h]) * (1 + 4 * (len(state.labels[g]) - len(state.labels[h])))


def _growth(state: _State, g: int, h: int) -> int:
    """Pair entries that absorbing h into g adds."""
    mine, other = len(state.labels[g]), len(state.labels[h])
    moving = [k for k in state.pairs[h] if k != g]
    return sum(((0 if k in state.pairs[g] else mine) - other) * len(state.labels[k]) for k in moving) - mine * other


def _try_merge(state: _State, price: int, g: int, h: int) -> None:
    """Merges if the pair is still there and its price is still what it was; otherwise puts it back at its price."""
    if h not in state.pairs[g]:
        return
    now = _price(state, g, h)
    if now > price:
        heapq.heappush(state.merges, (now, g, h))
    elif len(state.labels[g]) == len(state.labels[h]) or _growth(state, g, h) < GROWTH_LIMIT:
        _merge(state, g, h)


def _merge(state: _State, g: int, h: int) -> None:
    """h = f(g): g absorbs h."""
    matrix = state.pairs[g][h]
    allowed = matrix < HALF
    if not (allowed.sum(axis=1) == 1).all():  # pruned since, and queued again then
        return
    f = allowed.argmax(axis=1)
    state.steps.append(Step(True, g, h, state.causes[g][h]))
    state.unary[g] = state.unary[g] + matrix[np.arange(len(f)), f] + state.unary[h][f]
    of_strategy = np.full(int(state.labels[g].max()) + 1, -1, dtype=np.int64)
    of_strategy[state.labels[g]] = state.labels[h][f]
    state.into[h] = (g, of_strategy)
    neighbours = [(k, m, state.causes[h][k]) for k, m in state.pairs[h].items() if k != g]
    for k in list(state.pairs[h]):
        _cut(state, h, k)
    for k, m, why in neighbours:
        _join(state.pairs, state.causes, g, k, m[f], why)
        state.queue[min(g, k), max(g, k)] = None


def _model(problem: AssignmentProblem, state: _State) -> Reduced:
    """Numbers the surviving nodes as groups and composes the chains of merges, each owner before what it absorbed."""
    n = problem.node_count
    number = {v: i for i, v in enumerate(v for v in range(n) if state.into[v] is None)}
    owner = [-1] * n
    strategy: list[Ints] = [np.zeros(0, dtype=np.int64)] * n
    for v in range(n):
        chain = [v]
        while owner[chain[-1]] < 0 and (merged := state.into[chain[-1]]) is not None:
            chain.append(merged[0])
        for w in reversed(chain):
            absorbed = state.into[w]
            if absorbed is None:
                owner[w], strategy[w] = number[w], state.labels[w]
            else:
                owner[w], strategy[w] = owner[absorbed[0]], absorbed[1][strategy[absorbed[0]]]
    edges = {
        (number[u], number[v]): np.ascontiguousarray(matrix)
        for u in number
        for v, matrix in state.pairs[u].items()
        if u < v
    }
    return Reduced(problem, np.array(owner, dtype=np.int64), strategy, [state.unary[v] for v in number], edges)
