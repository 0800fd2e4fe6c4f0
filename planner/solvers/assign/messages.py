"""Messages between nodes and the pairs that they meet in, and shares of what readers pay together: compiled loops.

A pair is a source and one reader, with a table [what the source's strategy is to it, what the reader's is]. For
messages m from a pair to its two nodes the sum of

    min over strategies of (cost + Σ m),   node by node,      and      min of (table − m − m),   pair by pair,

is a bound, whatever the messages. Nodes are gone through forwards and backwards; each takes all that its pairs can
give and hands equal parts of what it has to the pairs that come later (TRW-S: Kolmogorov, IEEE TPAMI 28, 2006). Readers
of one supply divide its costs: what a share is more than the bound needs of it is divided anew among all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import compiled
from .problem import Ints

Floats = NDArray[np.float64]

NEVER = np.inf  # in a table: what the source's strategy rules out


class Layout(NamedTuple):
    """Where everything is. Of a pair the source is side 0 and the reader side 1.

    `node_first`: by node its strategies. `near_first`, `near_pair`, `near_side`: by node the pairs that it is in.
    `node`, `size`, `face_first`, `message_first`: [pair, side]; `face`: by strategy of the node what it is to the pair.
    `table_first` by pair. `group`: the supply of the pair, -1 for an edge; its pairs come one after another.
    `serving_first` by pair and what a reader asks for, from `serving_at` of the pair on: the items that serve it.
    `share_first` by pair: [source, item]. `pair_first`, `items`, `cost_first`: by group.
    """

    node_first: Ints
    near_first: Ints
    near_pair: Ints
    near_side: Ints
    node: Ints
    size: Ints
    face_first: Ints
    face: Ints
    message_first: Ints
    table_first: Ints
    group: Ints
    serving_at: Ints
    serving_first: Ints
    serving: Ints
    share_first: Ints
    pair_first: Ints
    items: Ints
    cost_first: Ints


class Duals(NamedTuple):
    """`unary`: costs by strategy. `tables` of pairs, `costs` of the items of groups, `shares` of them, `messages`."""

    unary: Floats
    tables: Floats
    costs: Floats
    shares: Floats
    messages: Floats


@compiled
def fill(at: Layout, duals: Duals, g: int) -> None:
    """The tables of a group from its shares: the least share of an item that serves; 0 where none is asked for."""
    items = at.items[g]
    for p in range(at.pair_first[g], at.pair_first[g + 1]):
        for x in range(at.size[p, 0]):
            for y in range(at.size[p, 1]):
                entry = at.table_first[p] + x * at.size[p, 1] + y
                first = at.serving_at[p] + y
                if duals.tables[entry] == NEVER or at.serving_first[first] == at.serving_first[first + 1]:
                    continue
                least = np.inf
                for k in range(at.serving_first[first], at.serving_first[first + 1]):
                    least = min(least, duals.shares[at.share_first[p] + x * items + at.serving[k]])
                duals.tables[entry] = least


@compiled
def _least(at: Layout, duals: Duals, p: int) -> float:
    """Of a pair."""
    least = np.inf
    for x in range(at.size[p, 0]):
        for y in range(at.size[p, 1]):
            entry = duals.tables[at.table_first[p] + x * at.size[p, 1] + y]
            least = min(
                least, entry - duals.messages[at.message_first[p, 0] + x] - duals.messages[at.message_first[p, 1] + y]
            )
    return least


@compiled
def _divide(at: Layout, duals: Duals, g: int) -> None:
    """Leaves each reader of a group what it needs so that its least stays, and divides the rest equally."""
    items, first, last = at.items[g], at.pair_first[g], at.pair_first[g + 1]
    if last - first < 2:
        return
    size = at.size[first, 0] * items
    rest = duals.costs[at.cost_first[g] : at.cost_first[g] + size].copy()
    for p in range(first, last):
        least = _least(at, duals, p)
        share = duals.shares[at.share_first[p] : at.share_first[p] + size]
        share[:] = 0.0
        for x in range(at.size[p, 0]):
            for y in range(at.size[p, 1]):
                if duals.tables[at.table_first[p] + x * at.size[p, 1] + y] == NEVER:
                    continue
                need = least + duals.messages[at.message_first[p, 0] + x] + duals.messages[at.message_first[p, 1] + y]
                start = at.serving_at[p] + y
                for k in range(at.serving_first[start], at.serving_first[start + 1]):
                    entry = x * items + at.serving[k]
                    share[entry] = max(share[entry], need)
        for k in range(size):
            rest[k] -= share[k]
    for k in range(size):
        for p in range(first, last):
            duals.shares[at.share_first[p] + k] += max(0.0, rest[k]) / (last - first)
    fill(at, duals, g)


@compiled
def _take(at: Layout, duals: Duals, p: int, side: int) -> None:
    """Moves to a node all that a pair can give it."""
    other = 1 - side
    mine, theirs = at.message_first[p, side], at.message_first[p, other]
    step, far = (at.size[p, 1], 1) if side == 0 else (1, at.size[p, 1])
    for x in range(at.size[p, side]):
        least = np.inf
        for y in range(at.size[p, other]):
            least = min(least, duals.tables[at.table_first[p] + x * step + y * far] - duals.messages[theirs + y])
        duals.messages[mine + x] = least


@compiled
def _hand(at: Layout, duals: Duals, p: int, side: int, belief: Floats, part: float) -> None:
    """Gives part of what a node has to a pair."""
    mine = at.message_first[p, side]
    least = np.full(at.size[p, side], np.inf)
    for s in range(len(belief)):
        x = at.face[at.face_first[p, side] + s]
        least[x] = min(least[x], belief[s])
    for x in range(len(least)):
        duals.messages[mine + x] -= part * least[x]


@compiled
def _belief(at: Layout, duals: Duals, v: int) -> Floats:
    """What the strategies of a node cost with all that its pairs have given."""
    belief = duals.unary[at.node_first[v] : at.node_first[v + 1]].copy()
    for k in range(at.near_first[v], at.near_first[v + 1]):
        p, side = at.near_pair[k], at.near_side[k]
        mine, face = at.message_first[p, side], at.face_first[p, side]
        for s in range(len(belief)):
            belief[s] += duals.messages[mine + at.face[face + s]]
    return belief


@compiled
def sweep(at: Layout, duals: Duals, forward: bool) -> None:
    """Once through all nodes."""
    count = len(at.node_first) - 1
    for step in range(count):
        v = step if forward else count - 1 - step
        below = above = 0  # pairs with nodes of smaller and of larger numbers
        near = range(at.near_first[v], at.near_first[v + 1])
        for k in near:
            p, side = at.near_pair[k], at.near_side[k]
            if side == 0 and at.group[p] >= 0 and at.pair_first[at.group[p]] == p:
                _divide(at, duals, at.group[p])
            below += at.node[p, 1 - side] < v
            above += at.node[p, 1 - side] > v
        for k in near:
            _take(at, duals, at.near_pair[k], at.near_side[k])
        belief = _belief(at, duals, v)
        part = 1.0 / max(below, above, 1)
        for k in near:
            p, side = at.near_pair[k], at.near_side[k]
            u = at.node[p, 1 - side]
            if (u > v and forward) or (u < v and not forward):
                _hand(at, duals, p, side, belief, part)


@compiled
def leasts(at: Layout, duals: Duals) -> tuple[Floats, Floats]:
    """What nodes, and what pairs add to the bound."""
    nodes, pairs = np.empty(len(at.node_first) - 1), np.empty(len(at.group))
    for v in range(len(nodes)):
        nodes[v] = _belief(at, duals, v).min()
    for p in range(len(pairs)):
        pairs[p] = _least(at, duals, p)
    return nodes, pairs


@compiled
def spared(at: Layout, duals: Duals) -> Floats:
    """By strategy how much more than the bound every choice with it costs at least: in its node, and in its pairs."""
    found = np.empty(len(duals.unary))
    for v in range(len(at.node_first) - 1):
        spare = _belief(at, duals, v)
        spare -= spare.min()
        for k in range(at.near_first[v], at.near_first[v + 1]):
            p, side = at.near_pair[k], at.near_side[k]
            mine, face = at.message_first[p, side], at.face_first[p, side]
            before = duals.messages[mine : mine + at.size[p, side]].copy()
            least = _least(at, duals, p)
            _take(at, duals, p, side)
            for s in range(len(spare)):
                x = at.face[face + s]
                spare[s] += duals.messages[mine + x] - before[x] - least
            duals.messages[mine : mine + at.size[p, side]] = before
        found[at.node_first[v] : at.node_first[v + 1]] = spare
    return found


@compiled
def decided(at: Layout, duals: Duals) -> Ints:
    """A strategy for every node, one after another: by the tables of pairs with those before, and by messages."""
    count = len(at.node_first) - 1
    choice = np.zeros(count, dtype=np.int64)
    for v in range(count):
        belief = _belief(at, duals, v)
        for k in range(at.near_first[v], at.near_first[v + 1]):
            p, side = at.near_pair[k], at.near_side[k]
            u = at.node[p, 1 - side]
            if u >= v:
                continue
            y = at.face[at.face_first[p, 1 - side] + choice[u]]
            theirs = duals.messages[at.message_first[p, 1 - side] + y]
            step, far = (at.size[p, 1], 1) if side == 0 else (1, at.size[p, 1])
            for s in range(len(belief)):
                x = at.face[at.face_first[p, side] + s]
                entry = duals.tables[at.table_first[p] + x * step + y * far]
                belief[s] += entry - theirs - duals.messages[at.message_first[p, side] + x]
        choice[v] = belief.argmin()
    return choice
