"""From what was chosen to end and begin together to offsets.

The last row is given an order; going back in time, each row before takes the order that the one after it leaves.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from .joints import BEGINS, ENDS, FREE, REST, Instant, Room, rewritten
from .rows import ANY, SIZE, SPAN, WHAT, join_free
from .tables import Ints

Tree = list[list[int]]  # rows of `rows.py`


def settled(tree: Ints, choices: Sequence[tuple[Instant, Ints]], items: int, room: Room) -> Ints:
    """Offsets of so many items, from the row at first and the choices made one after another."""
    before: list[tuple[Tree, Tree, Tree]] = []  # each row, what a choice made of it, and free leaves joined then
    for instant, choice in choices:
        after = rewritten(instant, tree, len(tree), choice, room)
        made = room.tree[:after].tolist()
        after, joined = join_free(room.tree, after, room.log)
        before.append((tree.tolist(), made, room.log[:joined].tolist()))
        tree = room.tree[:after].copy()
    offsets = np.zeros(items, np.int64)
    order = [leaf[WHAT] for leaf in _leaves(tree.tolist())]
    _put(tree.tolist(), order, offsets)
    for (row, made, log), (instant, choice) in zip(reversed(before), reversed(choices), strict=True):
        place = {what: k for k, what in enumerate(order)}
        for part, whole in reversed(log):
            place[part] = place[whole]
        order = _before(row, _sorted(made, place), instant, choice)
        _put(row, order, offsets)
    return offsets


def _before(row: Tree, order: Sequence[int], instant: Instant, choice: Ints) -> list[int]:
    """The order of the row before a choice, from that after it."""
    ends = set(_chosen(instant.ends, int(choice[ENDS])))
    if not choice[BEGINS]:
        ended = {-3 - 2 * item: item for item in ends}
        return [ended.get(what, what) for what in order]
    begins = set(_chosen(instant.begins, int(choice[BEGINS])))
    if choice[REST]:
        begins.add(-2 - 2 * int(instant.step[0]))
    ends.update(row[token][WHAT] for token in choice[FREE:REST].tolist() if token >= 0)
    place = {what: k for k, what in enumerate(order)}
    here = min(place[what] for what in begins)
    return _sorted(row, {**place, **dict.fromkeys(ends, here)})


def _chosen(items: Ints, bits: int) -> list[int]:
    return [int(item) for k, item in enumerate(items) if bits >> k & 1]


def _leaves(tree: Tree) -> Iterable[list[int]]:
    return (token for token in tree if token[SPAN] == 1)


def _sorted(tree: Tree, place: Mapping[int, int]) -> list[int]:
    """The order of the tree in which places, equal ones in any order, do not fall."""
    return _under(tree, 0, place)[1]


def _under(tree: Tree, node: int, place: Mapping[int, int]) -> tuple[tuple[int, int], list[int]]:
    """The least and the greatest place below a node, and its leaves by place."""
    span, what, _ = tree[node]
    if span == 1:
        return (place[what], place[what]), [what]
    children, child = [], node + 1
    while child < node + span:
        children.append(_under(tree, child, place))
        child += tree[child][SPAN]
    if what == ANY:
        children.sort(key=lambda found: found[0])
    elif children[0][0] > children[-1][0]:
        children.reverse()
    reach = min(low for (low, _), _ in children), max(high for (_, high), _ in children)
    return reach, [what for _, found in children for what in found]


def _put(tree: Tree, order: Iterable[int], offsets: Ints) -> None:
    """Everything in the row on what comes before it."""
    size = {leaf[WHAT]: leaf[SIZE] for leaf in _leaves(tree)}
    top = 0
    for what in order:
        if what >= 0:
            offsets[what] = top
        top += size[what]
