"""From what was chosen to end and begin together to offsets.

The last row is given an order; going back in time, each row before takes the order that the one after it leaves. A free
leaf of which a part was taken was several places all the time.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from .joints import BEGINS, ENDS, FREE, MORE, REST, Instant, Room, divided, rewritten
from .rows import ANY, SIZE, SPAN, WHAT, join_free, together
from .tables import Ints

Tree = list[list[int]]  # rows of `rows.py`
Order = list[tuple[int, int]]  # what, size; of a free leaf each of its places
Places = Mapping[int, list[tuple[int, int]]]  # of each leaf: numbers that rise along the row, and sizes


def settled(tree: Ints, choices: Sequence[tuple[Instant, Ints]], items: int, room: Room) -> Ints:
    """Offsets of so many items, from the row at first and the choices made one after another."""
    before: list[tuple[Tree, int, Tree, Tree]] = []  # row, divided leaf, what a choice made of it, free leaves joined
    for instant, choice in choices:
        after = rewritten(instant, tree, len(tree), choice, room)
        made = _named(room.tree[:after])
        after, joined = join_free(room.tree, after, room.log)
        before.append((_named(tree), divided(tree, choice), made, room.log[:joined].tolist()))
        tree = room.tree[:after].copy()
    offsets = np.zeros(items, np.int64)
    order = [(leaf[WHAT], leaf[SIZE]) for leaf in _leaves(_named(tree))]
    _put(order, offsets)
    for (row, parted, made, log), (instant, choice) in zip(reversed(before), reversed(choices), strict=True):
        places = _places(order)
        for part, whole in reversed(log):
            places[part] = places[whole]
        order = _before(row, parted, _sorted(made, places), instant, choice)
        _put(order, offsets)
    return offsets


def _before(row: Tree, parted: int, order: Order, instant: Instant, choice: Ints) -> Order:
    """The order of the row before a choice, from that after it."""
    ends = set(_chosen(instant.ends, int(choice[ENDS])))
    if not choice[BEGINS]:
        ended = {-3 - 2 * item: item for item in ends}
        return [(ended.get(what, what), size) for what, size in order]
    begins = set(_chosen(instant.begins, int(choice[BEGINS])))
    if choice[REST] and parted < 0:
        begins.add(-2 - 2 * int(instant.step[0]))
    free = [leaf[WHAT] for leaf in _leaves(row) if leaf[WHAT] < 0]
    ends.update(what for k, what in enumerate(free) if int(choice[MORE]) >> k & 1)
    ends.update(row[token][WHAT] for token in choice[FREE:REST].tolist() if token >= 0 and token != parted)
    places = _places(order)
    here = min(place for what in begins for place, _ in places[what])
    places.update({what: [(here, 0)] for what in ends})
    if parted >= 0:
        _, what, size = row[parted]
        places[what] = [(here, size - int(choice[REST])), *places[what]]
    return _sorted(row, places)


def _chosen(items: Ints, bits: int) -> list[int]:
    return [int(item) for k, item in enumerate(items) if bits >> k & 1]


def _named(tree: Ints) -> Tree:
    """A tree in which a leaf is called the same whether or not it may be several places."""
    return [[span, together(what), size] for span, what, size in tree.tolist()]


def _leaves(tree: Tree) -> Iterable[list[int]]:
    return (token for token in tree if token[SPAN] == 1)


def _places(order: Order) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for place, (what, size) in enumerate(order):
        found.setdefault(what, []).append((place, size))
    return found


def _sorted(tree: Tree, places: Places) -> Order:
    """The order of the tree in which places, equal ones in any order, do not fall."""
    return [leaf for _, found in _under(tree, 0, places) for leaf in found]


def _under(tree: Tree, node: int, places: Places) -> list[tuple[tuple[int, int], Order]]:
    """The least and the greatest place below a node, and its leaves by place; for each place of a leaf in several."""
    span, what, size = tree[node]
    if span == 1:
        several = places[what]
        return [((place, place), [(what, part if len(several) > 1 else size)]) for place, part in several]
    children, child = [], node + 1
    while child < node + span:
        children += _under(tree, child, places)
        child += tree[child][SPAN]
    if what == ANY:
        children.sort(key=lambda found: found[0])
    elif children[0][0] > children[-1][0]:
        children.reverse()
    reach = min(low for (low, _), _ in children), max(high for (_, high), _ in children)
    return [(reach, [leaf for _, found in children for leaf in found])]


def _put(order: Order, offsets: Ints) -> None:
    """Everything in the row on what comes before it."""
    top = 0
    for what, size in order:
        if what >= 0:
            offsets[what] = top
        top += size
