"""Search by order, compiled: in one section after another it is decided what lies lowest, or what lies highest.

Of two items that are alive together one lies below the other. Such an order has one packing in which nothing can be
lowered, if any; so orders are searched, and what is lowest in a section may be known long before it is known where. A
section has two sides, and on each a few items have their rank; the search branches on the side, of all sections, that
the fewest of the others can be next on. Both sides are one to the code: what is lower on one is higher on the other,
and offsets count from the capacity down. What prunes, in every section until nothing changes:

- what has a rank, one above the other, and all others together between the two sides;
- others that are known to be below an item, in the order of their bounds, and pairs of which one order has no room;
- items that cannot be next on a side: above at least one of those that can be, and a rank for the only one that can.

A run ends after so many failures. Those of a section make the search return to it. All numbers are int64.
"""

import numpy as np

from ..compiled import compiled_uncounted as compiled
from .search import EXHAUSTED, FOUND, NEVER, STOPPED, settle
from .sides import between, give_rank, hang, lift, precede, stack, touch, undo
from .tables import Instance, Ints, Ordering


@compiled
def read(state: Ordering, a: int, b: int) -> None:
    """Write down how far from either end those at some places of the rows lie at least."""
    n, cells, near = len(state.under), state.cells, state.near
    for k in range(a, b):
        i = state.row_item[k]
        near[0, k] = cells[i]
        near[1, k] = cells[n + i] - state.row_height[k]


@compiled
def sort(line: Ints, near: Ints, a: int, b: int) -> None:
    """Places of the row, those nearest to the side's end first."""
    for k in range(a, b):
        at = k - a
        while at > 0 and near[line[at - 1]] > near[k]:
            line[at] = line[at - 1]
            at -= 1
        line[at] = k


@compiled
def orders(instance: Instance, state: Ordering, a: int, b: int) -> bool:
    """Pairs of which one order has no room have the other; False where neither has."""
    capacity, items, heights = instance.capacity[0], state.row_item, state.row_height
    lowest, highest = state.near[0], state.near[1]
    for j in range(a, b):
        room = capacity - highest[j] - heights[j]
        for i in range(a, b):
            known = lowest[i] + heights[i] <= room or i == j or state.under[items[j], items[i]]
            if not known and not precede(instance, state, items[j], items[i]):
                return False
    return True


@compiled
def pile(instance: Instance, state: Ordering, side: int, a: int, b: int) -> bool:
    """Lift items above all that is known to come before them on the side."""
    line, near, under = state.line[side], state.near[side], state.under
    items, heights = state.row_item, state.row_height
    for k in range(a, b):
        i = items[k]
        top = np.int64(0)
        for at in range(b - a):
            place = line[at]
            other = items[place]
            if under[i, other] if side else under[other, i]:
                top = max(top, near[place]) + heights[place]
        if top > near[k] and not lift(instance, state, side, i, heights[k], top):
            return False
    return True


@compiled
def measure(note: Ints, near: Ints, heights: Ints, top: int, a: int, b: int) -> None:
    """Write down of a side: what reaches from it, the two least distances, the two greatest of the far ends."""
    least, second, most, next_most = np.int64(NEVER), np.int64(NEVER), np.int64(0), np.int64(0)
    for k in range(a, b):
        far = near[k] + heights[k]
        second = min(second, max(least, near[k]))
        least = min(least, near[k])
        next_most = max(next_most, min(most, far))
        most = max(most, far)
    note[0] = top if top > least else least
    note[1], note[2], note[3], note[4] = least, second, most, next_most


@compiled
def fits(line: Ints, near: Ints, heights: Ints, beyond: int, count: int) -> bool:
    """Whether those furthest from a side, ever more of them, have room up to what reaches from the other."""
    behind = np.int64(0)
    for at in range(count - 1, -1, -1):
        behind += heights[line[at]]
        if near[line[at]] + behind > beyond:
            return False
    return True


@compiled
def find_able(instance: Instance, state: Ordering, side: int, total: int, a: int, b: int) -> int:
    """Mark who can be next on the side, before all others without a rank: how many."""
    items, heights, under, able = state.row_item, state.row_height, state.under, state.able
    mine, its = state.window[side], state.window[1 - side]
    nears, beyond = state.near[side], state.near[1 - side]
    capacity = instance.capacity[0]
    count = 0
    for k in range(a, b):
        height = heights[k]
        over = nears[k] + height
        others = mine[2] if nears[k] == mine[1] else mine[1]
        furthest = its[4] if beyond[k] + height == its[3] else its[3]
        can = max(over, others) + total - height + its[0] <= capacity and over + furthest <= capacity
        u = a
        while can and u < b:
            can = under[items[k], items[u]] == 0 if side else under[items[u], items[k]] == 0
            u += 1
        able[k] = can
        count += can
    return count


@compiled
def choose(instance: Instance, state: Ordering, s: int, side: int, total: int) -> int:
    """Who can be next on a side; the others are lifted, and an only one gets the rank. 0: nothing changed, 1, -1: no
    room.
    """
    a, b = between(instance, state, s)
    near, heights = state.near[side], state.row_height
    count = find_able(instance, state, side, total, a, b)
    if count == 0:
        return -1
    state.few[side, s] = count
    only, nearest = -1, np.int64(NEVER)
    for k in range(a, b):
        if state.able[k]:
            only, nearest = k, min(nearest, near[k] + heights[k])
    changed = 0
    for k in range(a, b):
        if state.able[k] == 0 and near[k] < nearest:
            if not lift(instance, state, side, state.row_item[k], heights[k], nearest):
                return -1
            changed = 1
    if count > 1:
        return changed
    height = state.row_height[only]
    room = state.window[1 - side, 0] + total - height
    if not lift(instance, state, 1 - side, state.row_item[only], height, room):
        return -1
    return 1 if give_rank(instance, state, s, side, only) else -1


@compiled
def total_between(instance: Instance, state: Ordering, s: int, low: int, high: int) -> int:
    """Height of those without a rank, all lifted to what reaches from both sides; -1 for no room."""
    a, b = between(instance, state, s)
    n, cells = len(state.under), state.cells
    total = np.int64(0)
    for k in range(a, b):
        i, height = state.row_item[k], state.row_height[k]
        if cells[i] < low and not lift(instance, state, 0, i, height, low):
            return -1
        if cells[n + i] < high + height and not lift(instance, state, 1, i, height, high):
            return -1
        total += height
    return int(total if low + total + high <= instance.capacity[0] else -1)


@compiled
def look(instance: Instance, state: Ordering, s: int) -> int:
    """One round of all rules in a section: 0 where the last ones changed nothing, 1, or -1 for no room."""
    low, high = stack(instance, state, s, 0), stack(instance, state, s, 1)
    total = total_between(instance, state, s, low, high) if low >= 0 and high >= 0 else -1
    if total < 0:
        return -1
    a, b = between(instance, state, s)
    if b - a < 2:
        state.few[:, s] = 0
        if b > a:
            return 1 if give_rank(instance, state, s, 0, a) else -1
        return 0 if hang(instance, state, s, 0, high) and hang(instance, state, s, 1, low) else -1
    read(state, a, b)
    if not orders(instance, state, a, b):
        return -1
    near, heights = state.near, state.row_height
    for side in range(2):
        sort(state.line[side], near[side], a, b)
        if not pile(instance, state, side, a, b):
            return -1
    read(state, a, b)
    for side in range(2):
        measure(state.window[side], near[side], heights, high if side else low, a, b)
        sort(state.line[side], near[side], a, b)
    for side in range(2):
        beyond = instance.capacity[0] - state.window[1 - side, 0]
        if state.window[side, 0] + total > beyond or not fits(state.line[side], near[side], heights, beyond, b - a):
            return -1
    for side in range(2):
        changed = choose(instance, state, s, side, total)
        if changed:
            return changed
    for side in range(2):
        its = state.window[1 - side]
        if not hang(instance, state, s, side, max(its[0] + total, its[3])):
            return -1
    return 0


@compiled
def propagate(instance: Instance, state: Ordering) -> bool:
    """Every section that something changed in, until nothing changes; False where there is no room."""
    while state.registers[6] > 0:
        s = state.queue[state.registers[5]]
        state.registers[5] = (state.registers[5] + 1) % len(state.queue)
        state.registers[6] -= 1
        state.stale[s] = 0
        changed = 1
        while changed > 0:
            changed = look(instance, state, s)
        if changed < 0:
            state.blame[s] += 1
            while state.registers[6] > 0:
                state.stale[state.queue[state.registers[5]]] = 0
                state.registers[5] = (state.registers[5] + 1) % len(state.queue)
                state.registers[6] -= 1
            return False
    return True


@compiled
def list_choices(instance: Instance, state: Ordering, rank: Ints, s: int, side: int, begin: int) -> int:
    """Write down from `begin` on who can be next on a side, the nearest to its end first, then by rank; up to where."""
    a, b = between(instance, state, s)
    total = 0
    for k in range(a, b):
        total += state.row_height[k]
    read(state, a, b)
    for which in range(2):
        top = stack(instance, state, s, which)
        measure(state.window[which], state.near[which], state.row_height, top, a, b)
    find_able(instance, state, side, total, a, b)
    end = begin
    for k in range(a, b):
        if state.able[k] == 0:
            continue
        i = state.row_item[k]
        near = state.near[side, k]
        at = end
        while at > begin:
            other, distance = state.choices[at - 1, 0], state.choices[at - 1, 1]
            if distance < near or (distance == near and rank[other] < rank[i]):
                break
            state.choices[at, 0], state.choices[at, 1] = other, distance
            at -= 1
        state.choices[at, 0], state.choices[at, 1] = i, near
        end += 1
    return int(end)


@compiled
def branch(instance: Instance, state: Ordering, rank: Ints) -> bool:
    """A frame for the side with the fewest that can be next for its section's blame; False if all is decided."""
    best, which, fewest = -1, 0, 1e300
    for s in range(len(state.stale)):
        a, b = between(instance, state, s)
        for side in range(2 * (b - a > 1)):
            if state.few[side, s] / (1.0 + state.blame[s]) < fewest:
                best, which, fewest = s, side, state.few[side, s] / (1.0 + state.blame[s])
    if best < 0:
        return False
    depth = state.registers[0]
    begin = 0 if depth == 0 else state.frames[depth - 1, 4]
    end = list_choices(instance, state, rank, best, which, begin)
    frame = state.frames[depth]
    frame[0], frame[1], frame[2], frame[3], frame[4] = best, which, state.registers[1], begin, end
    state.registers[0] += 1
    return True


@compiled
def advance(instance: Instance, state: Ordering) -> bool:
    """The next choice that does not fail at once, of the deepest frame that has one; False if none has."""
    while state.registers[0] > 0:
        frame = state.frames[state.registers[0] - 1]
        undo(state, frame[2])
        if frame[3] == frame[4]:
            state.registers[0] -= 1
            continue
        item = state.choices[frame[3], 0]
        frame[3] += 1
        k = between(instance, state, frame[0])[0]
        while state.row_item[k] != item:
            k += 1
        give_rank(instance, state, frame[0], frame[1], k)  # possible: nothing is known to come before it
        return True
    return False


@compiled
def rank_all(instance: Instance, state: Ordering, rank: Ints, failures: int) -> int:
    """Until so many failures: FOUND (`cells` begin with a packing's offsets), EXHAUSTED (there is none) or STOPPED."""
    for i in range(len(state.under)):
        state.cells[i] = settle(instance, i, 0)
    touch(state, 0, len(state.stale))
    while state.registers[4] == 0:
        if propagate(instance, state):
            if state.registers[4] == 0 and not branch(instance, state, rank):
                return FOUND
        elif failures == 0:
            return STOPPED
        else:
            failures -= 1
        if not advance(instance, state):
            return EXHAUSTED if state.registers[4] == 0 else STOPPED
    return STOPPED
