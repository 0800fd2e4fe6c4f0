"""Large moves: a random induced tree of groups is re-decided exactly by dynamic programming, all else held fixed.

A tree grows from a random group by neighbours that touch it once. The dynamic program sees prices instead of
memory limits (the multipliers of the dual) and Gumbel noise, so that it proposes different answers; a proposal is
taken only if the exact cost does not rise and no limit is broken that was kept before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...compiled import compiled
from ..problem import Ints
from .flat import Flat, Floats
from .reduced import Loads


@compiled
def uniform(state):  # type: ignore[no-untyped-def]
    """The next number in [0, 1) of a splitmix64 generator kept in `state[0]`."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@compiled
def other_end(flat, e, g):  # type: ignore[no-untyped-def]
    return flat.high[e] if flat.low[e] == g else flat.low[e]


_MEMBER = -(1 << 30)  # what `touched` holds for groups of the forest itself


class Scratch(NamedTuple):
    """Room for one forest: `tree[i]` the i-th group in order of growth, `parent[i]` the edge it hangs on, or -1.

    `touched[g]` counts the members that g is adjacent to (negative for members), `table` holds a value per label,
    `arg[i, label of the parent]` the best label of tree[i], `change` the load differences at places.
    """

    touched: Ints
    tree: Ints
    parent: Ints
    waiting: Ints
    table: Floats
    arg: Ints
    proposal: Ints
    change: Ints


def scratch_for(flat: Flat, loads: Loads) -> Scratch:
    groups = len(flat.label_first) - 1
    widest = int(np.diff(flat.label_first).max(initial=1))
    touched, tree, parent, proposal = (np.zeros(groups, dtype=np.int64) for _ in range(4))
    waiting = np.zeros(len(flat.near_edge) + 1, dtype=np.int64)
    table, arg = np.zeros(int(flat.label_first[-1])), np.zeros((groups, widest), dtype=np.int64)
    change = np.zeros(len(loads.slack) + 1, dtype=np.int64)
    return Scratch(touched, tree, parent, waiting, table, arg, proposal, change)


@compiled
def _grow(flat, scratch, size, root, limit, state):  # type: ignore[no-untyped-def]
    """Adds an induced tree from `root` to the forest of `size` groups, up to `limit` groups; returns the new size."""
    touched, waiting = scratch.touched, scratch.waiting
    queued = 1
    waiting[0] = root
    while queued > 0 and size < limit:
        pick = int(uniform(state) * queued)
        g = waiting[pick]
        queued -= 1
        waiting[pick] = waiting[queued]
        if touched[g] < 0 or touched[g] > 1:
            continue
        scratch.tree[size] = g
        scratch.parent[size] = -1
        for i in range(flat.near_first[g], flat.near_first[g + 1]):
            e = flat.near_edge[i]
            h = other_end(flat, e, g)
            if touched[h] < 0:
                scratch.parent[size] = e
            else:
                touched[h] += 1
                if touched[h] == 1:
                    waiting[queued] = h
                    queued += 1
        touched[g] = _MEMBER
        size += 1
    return size


@compiled
def _release(flat, scratch, size):  # type: ignore[no-untyped-def]
    """Clears `touched` again."""
    for i in range(size):
        g = scratch.tree[i]
        scratch.touched[g] = 0
        for j in range(flat.near_first[g], flat.near_first[g + 1]):
            scratch.touched[other_end(flat, flat.near_edge[j], g)] = 0


@compiled
def _add_fixed(flat, table, e, g, base, size, label):  # type: ignore[no-untyped-def]
    """Adds what edge e costs the labels of g while its other end keeps `label`."""
    at = flat.matrix_first[e]
    if flat.low[e] == g:
        h = flat.high[e]
        cols = flat.label_first[h + 1] - flat.label_first[h]
        for k in range(size):
            table[base + k] += flat.matrix[at + k * cols + label]
    else:
        for k in range(size):
            table[base + k] += flat.matrix[at + label * size + k]


@compiled
def _entry(flat, e, g, of_g, of_other):  # type: ignore[no-untyped-def]
    """The cost of edge e under a label of g and one of its other end."""
    h = flat.high[e]
    cols = flat.label_first[h + 1] - flat.label_first[h]
    if flat.low[e] == g:
        return flat.matrix[flat.matrix_first[e] + of_g * cols + of_other]
    return flat.matrix[flat.matrix_first[e] + of_other * cols + of_g]


@compiled
def _to_parent(flat, scratch, i):  # type: ignore[no-untyped-def]
    """Adds to every label of the parent what the best label of tree[i] then costs."""
    g, e, table = scratch.tree[i], scratch.parent[i], scratch.table
    p = other_end(flat, e, g)
    base, above = flat.label_first[g], flat.label_first[p]
    size, labels = flat.label_first[g + 1] - base, flat.label_first[p + 1] - above
    at = flat.matrix_first[e]
    for k in range(labels):
        best, where = np.inf, 0
        for own in range(size):
            entry = at + (own * labels + k if flat.low[e] == g else k * size + own)
            value = table[base + own] + flat.matrix[entry]
            if value < best:
                best, where = value, own
        table[above + k] += best
        scratch.arg[i, k] = where


@compiled
def _decide(flat, scratch, size, priced, labels, heat, state):  # type: ignore[no-untyped-def]
    """The labels of the forest that minimise the priced (and, with `heat`, perturbed) cost, into `proposal[group]`."""
    table, proposal = scratch.table, scratch.proposal
    for i in range(size):
        g = scratch.tree[i]
        base = flat.label_first[g]
        count = flat.label_first[g + 1] - base
        for k in range(count):
            table[base + k] = priced[base + k]
            if heat > 0.0:
                table[base + k] += heat * np.log(1e-12 - np.log(uniform(state) + 1e-300))
        for j in range(flat.near_first[g], flat.near_first[g + 1]):
            e = flat.near_edge[j]
            h = other_end(flat, e, g)
            if scratch.touched[h] >= 0:
                _add_fixed(flat, table, e, g, base, count, labels[h])
    for i in range(size - 1, -1, -1):
        if scratch.parent[i] >= 0:
            _to_parent(flat, scratch, i)
    for i in range(size):
        g, e = scratch.tree[i], scratch.parent[i]
        if e < 0:
            base = flat.label_first[g]
            proposal[g] = np.argmin(table[base : flat.label_first[g + 1]])
        else:
            proposal[g] = scratch.arg[i, proposal[other_end(flat, e, g)]]


@compiled
def _cost_change(flat, scratch, size, labels):  # type: ignore[no-untyped-def]
    """What the proposal adds to the true cost."""
    total = 0.0
    for i in range(size):
        g = scratch.tree[i]
        old, new = labels[g], scratch.proposal[g]
        base = flat.label_first[g]
        total += flat.unary[base + new] - flat.unary[base + old]
        for j in range(flat.near_first[g], flat.near_first[g + 1]):
            e = flat.near_edge[j]
            h = other_end(flat, e, g)
            if scratch.touched[h] >= 0:
                total += _entry(flat, e, g, new, labels[h]) - _entry(flat, e, g, old, labels[h])
            elif scratch.parent[i] == e:
                total += _entry(flat, e, g, new, scratch.proposal[h]) - _entry(flat, e, g, old, labels[h])
    return total


@compiled
def load_change(loads, scratch, size, labels):  # type: ignore[no-untyped-def]
    """Marks the load differences of the proposal in `change`; returns the places [begin, end) they span."""
    begin, end = len(loads.slack), 0
    for i in range(size):
        g = scratch.tree[i]
        old, new = labels[g], scratch.proposal[g]
        if old == new:
            continue
        for q in range(loads.rows_of[g], loads.rows_of[g + 1]):
            more = loads.values[loads.first[q] + new] - loads.values[loads.first[q] + old]
            if more != 0:
                scratch.change[loads.start[q]] += more
                scratch.change[loads.stop[q]] -= more
                begin, end = min(begin, loads.start[q]), max(end, loads.stop[q])
    return begin, end


@compiled
def broken(scratch, over, begin, end):  # type: ignore[no-untyped-def]
    """By how much the marked differences raise what is above the limits."""
    more, running = 0, 0
    for t in range(begin, end):
        running += scratch.change[t]
        if running != 0:
            more += max(over[t] + running, 0) - max(over[t], 0)
    return more


@compiled
def settle(scratch, size, labels, over, begin, end, accepted):  # type: ignore[no-untyped-def]
    """Takes the proposal over, or not, and clears the marks."""
    running = 0
    for t in range(begin, end + 1):
        if t < len(scratch.change):
            running += scratch.change[t]
            scratch.change[t] = 0
            if accepted and t < end:
                over[t] += running
    if accepted:
        for i in range(size):
            labels[scratch.tree[i]] = scratch.proposal[scratch.tree[i]]


@compiled
def sweep_forest(flat, loads, scratch, priced, labels, over, heat, state):  # type: ignore[no-untyped-def]
    """Re-decides a random induced forest of the whole model; the priced cost does not rise (without `heat`)."""
    groups = len(labels)
    size = 0
    for _ in range(2 * groups):
        root = int(uniform(state) * groups)
        if scratch.touched[root] == 0:
            size = _grow(flat, scratch, size, root, groups, state)
    _decide(flat, scratch, size, priced, labels, heat, state)
    gain = _cost_change(flat, scratch, size, labels)
    begin, end = load_change(loads, scratch, size, labels)
    settle(scratch, size, labels, over, begin, end, True)
    _release(flat, scratch, size)
    return gain


@compiled
def try_moves(flat, loads, scratch, priced, labels, over, roots, count, largest, heat, slope, state):  # type: ignore[no-untyped-def]
    """`count` moves of at most `largest` groups around random `roots`; returns the change of the true cost.

    A move is taken if it adds nothing above the limits and at most `slope` to the cost, or less above the limits.
    """
    total = 0.0
    for _ in range(count):
        limit = int(2.0 ** (1.0 + uniform(state) * np.log2(largest / 2.0)))
        warm = heat * 10.0 ** (-3.0 * uniform(state)) if uniform(state) < 0.9 else 0.0
        root = roots[int(uniform(state) * len(roots))]
        size = _grow(flat, scratch, 0, root, limit, state)
        _decide(flat, scratch, size, priced, labels, warm, state)
        more = _cost_change(flat, scratch, size, labels)
        begin, end = load_change(loads, scratch, size, labels)
        above = broken(scratch, over, begin, end)
        accepted = above < 0 or (above == 0 and more <= slope)
        settle(scratch, size, labels, over, begin, end, accepted)
        _release(flat, scratch, size)
        if accepted:
            total += more
    return total
