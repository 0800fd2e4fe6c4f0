"""Canonical search, compiled: items settle downwards, one at a time.

In a canonical packing nothing can be lowered: every item lies on the floor, on a pinned one or on another item. So an
item is either at the lowest offset that what is placed allows, or some item still to be placed goes under it. The
search branches on just that (place it, or postpone it until something else has raised it), and every canonical packing
is reached once. What prunes:

- sections: in each section (a maximal set alive together) all that is still to be placed must fit above the lowest
  offset that any of it can have;
- not first: an item too high to be the lowest one left in a section goes above at least one other of that section;
- postponed items go above at least one item still to be placed;
- of two items of one lifetime, one right on the other, only one order is tried;
- parts of time that no unplaced item connects are searched on their own, so that a failure in one is not blamed on
  choices in another.

All numbers are int64. State is kept in flat arrays with a trail of old values, so that a run can stop and go on.
"""

import numpy as np

from ..compiled import compiled_uncounted as compiled
from .tables import Instance, Ints, State

FOUND, EXHAUSTED, STOPPED = 1, 0, -1
NEVER = 1 << 62
ROUNDS = 4  # of inference at most nodes; more find next to nothing


@compiled
def settle(instance: Instance, item: int, offset: int) -> int:
    """The lowest offset from `offset` on that is aligned and clear of pinned items."""
    align = instance.align[item]
    offset += -offset % align
    for k in range(instance.ban_at[item], instance.ban_at[item + 1]):
        if instance.ban_low[k] < offset < instance.ban_high[k]:
            offset = instance.ban_high[k]
            offset += -offset % align
    return int(offset)


@compiled
def latest(instance: Instance, section: int, height: int) -> int:
    """The highest offset above which `height` still fits in the section, pinned items excepted; -1 for none."""
    ceiling = instance.capacity[0]
    for k in range(instance.pin_at[section], instance.pin_at[section + 1]):
        room = ceiling - instance.pin_high[k]
        if room >= height:
            break
        height -= room
        ceiling = instance.pin_low[k]
    return int(max(ceiling - height, -1))


@compiled
def put(state: State, cell: int, value: int) -> None:
    k = state.registers[1]
    state.trail[k, 0] = cell
    state.trail[k, 1] = state.cells[cell]
    state.registers[1] = k + 1
    state.cells[cell] = value


@compiled
def undo(state: State, mark: int) -> None:
    for k in range(state.registers[1] - 1, mark - 1, -1):
        state.cells[state.trail[k, 0]] = state.trail[k, 1]
    state.registers[1] = mark


@compiled
def place(instance: Instance, state: State, rank: Ints, item: int) -> None:
    """Put the item at its lowest offset, take it out of its sections, and raise what it meets."""
    n, m = len(instance.first), len(instance.starts) - 1
    at = state.lowest[item]
    put(state, 2 * n + item, at)
    for s in range(instance.first[item], instance.last[item]):
        begin = instance.sec_at[s]
        last = begin + state.open[s] - 1
        k = begin
        while state.row_item[k] != item:
            k += 1
        height = state.row_height[k]
        state.row_item[k], state.row_item[last] = state.row_item[last], item
        state.row_height[k], state.row_height[last] = state.row_height[last], height
        put(state, 3 * n + s, state.left[s] - height)
        put(state, 3 * n + m + s, state.open[s] - 1)
    for k in range(instance.adj_at[item], instance.adj_at[item + 1]):
        other = instance.adj_item[k]
        over = at + instance.adj_rise[k]
        if state.offset[other] < 0 and state.lowest[other] < over:
            put(state, other, settle(instance, other, over))
            twin = instance.twins[other] == instance.twins[item] and rank[other] < rank[item]
            twin = twin and state.lowest[other] == over  # right on it: the other way round is the same, and is kept
            if state.postponed[other] != twin:
                put(state, n + other, int(twin))


@compiled
def measure(instance: Instance, state: State, s: int, mark: bool) -> int:
    """Bring top, able, end and owner of a section up to date, and raise what cannot be lowest in it.

    How many rose, their sections being marked stale if `mark` is set; -1 where nothing can be lowest.
    """
    begin = instance.sec_at[s]
    items = state.row_item[begin : begin + state.open[s]]
    heights = state.row_height[begin : begin + state.open[s]]
    reach = state.reach
    top = latest(instance, s, state.left[s])
    end = second = np.int64(NEVER)
    owner, count = -1, 0
    for k in range(len(items)):
        i = items[k]
        at = reach[i]
        count += at <= top
        over = at + heights[k]
        second = min(second, max(end, over))
        owner = i if over < end else owner
        end = min(end, over)
    state.top[s], state.able[s], state.owner[s] = top, count, owner
    state.end[s, 0], state.end[s, 1] = end, second
    if count == 0:
        state.blame[s] += 1
        return -1
    rose = 0
    if count < len(items):
        for i in items:
            least = second if i == owner else end
            if top < reach[i] < least:
                reach[i] = settle(instance, i, int(least))
                rose += 1
                if mark:
                    state.stale[instance.first[i] : instance.last[i]] = 1
    return rose


@compiled
def under(instance: Instance, state: State, item: int) -> int:
    """The lowest top of anything unplaced that meets the item, by what its sections were measured to hold."""
    least = np.int64(NEVER)
    for s in range(instance.first[item], instance.last[item]):
        least = min(least, state.end[s, np.int64(state.owner[s] == item)])
    return int(least)


@compiled
def lift(instance: Instance, state: State, a: int, b: int) -> int:
    """Put postponed items above the lowest thing that can go under them. How many rose; -1 where nothing can.

    The sections of those that rose are marked stale.
    """
    rose = 0
    for i in range(instance.starts[a], instance.starts[b]):
        if state.postponed[i] == 0 or state.offset[i] >= 0:
            continue
        least = under(instance, state, i)
        if least == NEVER:
            for s in range(instance.first[i], instance.last[i]):
                state.blame[s] += 1
            return -1
        if least > state.reach[i]:
            state.reach[i] = settle(instance, i, least)
            state.stale[instance.first[i] : instance.last[i]] = 1
            rose += 1
    return rose


@compiled
def propagate(instance: Instance, state: State, a: int, b: int, to_the_end: bool) -> bool:
    """Lower bounds of the offsets in sections a to b; False where something cannot fit.

    Either a few rounds, of which the later only follow what `lift` raised, or to the fixed point of both rules.
    """
    for i in range(instance.starts[a], instance.starts[b]):
        state.reach[i] = state.lowest[i]
    state.stale[a:b] = 1
    rounds = 0
    while to_the_end or rounds < ROUNDS:
        rounds += 1
        rose = 0
        for s in range(a, b):
            if state.stale[s]:
                state.stale[s] = 0
                if state.open[s] > 0:
                    raised = measure(instance, state, s, to_the_end)
                    if raised < 0:
                        return False
                    rose += raised * to_the_end
        lifted = lift(instance, state, a, b)
        if lifted < 0:
            return False
        if rose + lifted == 0:
            break
    return True


@compiled
def free(instance: Instance, state: State, i: int) -> bool:
    """Whether the item may be placed at its lowest offset: nothing forbids it, and nothing unplaced fits under it."""
    at = state.lowest[i]
    return bool(state.postponed[i] == 0 and state.reach[i] == at and under(instance, state, i) > at)


@compiled
def lowest_item(instance: Instance, state: State, rank: Ints, a: int, b: int) -> int:
    """The unplaced item with the lowest offset it may have now, then the smallest rank; -1 if there is none."""
    best = -1
    for i in range(instance.starts[a], instance.starts[b]):
        if state.offset[i] >= 0 or state.postponed[i] or state.reach[i] > state.lowest[i]:
            continue
        lower = best < 0 or state.lowest[i] < state.lowest[best]
        if lower or (state.lowest[i] == state.lowest[best] and rank[i] < rank[best]):
            best = i
    return best


@compiled
def lowest_bound(instance: Instance, state: State, a: int, b: int) -> int:
    """The least lower bound of an unplaced item in sections a to b."""
    least = np.int64(NEVER)
    for i in range(instance.starts[a], instance.starts[b]):
        if state.offset[i] < 0:
            least = min(least, state.reach[i])
    return int(least)


@compiled
def critical_item(instance: Instance, state: State, rank: Ints, a: int, b: int) -> int:
    """The lowest item, ties by rank, of the section with the fewest that may be lowest for its blame; -1 for none."""
    reach = state.reach
    best = -1
    fewest = 1e300
    for s in range(a, b):
        if state.open[s] == 0 or state.able[s] / (1.0 + state.blame[s]) >= fewest:
            continue
        choice = -1
        for k in range(instance.sec_at[s], instance.sec_at[s] + state.open[s]):
            i = state.row_item[k]
            if reach[i] > state.top[s]:
                continue
            lower = choice < 0 or reach[i] < reach[choice] or (reach[i] == reach[choice] and rank[i] < rank[choice])
            if lower and free(instance, state, i):
                choice = i
        if choice >= 0:
            best, fewest = choice, state.able[s] / (1.0 + state.blame[s])
    return best


@compiled
def part_end(instance: Instance, state: State, a: int, b: int) -> int:
    """Where the part that begins at section a ends: the first section that no unplaced item crosses into."""
    end = a + 1
    for i in range(instance.starts[a], instance.starts[b]):
        if instance.first[i] >= end:
            break
        if state.offset[i] < 0:
            end = max(end, instance.last[i])
    return end


@compiled
def hardest_part(instance: Instance, state: State, a: int, b: int) -> tuple[int, int]:
    """The independent part of sections a to b that was blamed most of those not done; (b, b) if all are."""
    best = (b, b)
    most = -1
    while a < b:
        end = part_end(instance, state, a, b)
        blame, unplaced = 0, 0
        for s in range(a, end):
            blame += state.blame[s]
            unplaced += state.open[s]
        if unplaced and blame > most:
            best, most = (a, end), blame
        a = end
    return best


@compiled
def push(state: State, a: int, b: int) -> None:
    frame = state.frames[state.registers[0]]
    frame[0], frame[1], frame[2], frame[3], frame[4] = a, b, state.registers[1], 0, 0
    state.registers[0] += 1


@compiled
def begin(instance: Instance, state: State) -> None:
    """Every item as low as pinned ones let it, and the whole as one part to search."""
    for i in range(len(instance.first)):
        state.lowest[i] = settle(instance, i, 0)
    push(state, 0, len(instance.starts) - 1)


@compiled
def pop(state: State, answer: int) -> int:
    """Leave the frame on top with an answer; without a packing, as it was found."""
    state.registers[0] -= 1
    if answer == EXHAUSTED:
        undo(state, state.frames[state.registers[0]][2])
    return answer


@compiled
def expand(instance: Instance, state: State, rank: Ints, by_level: bool) -> int:
    """One node: bounds, then parts or a choice. The answer of the frame on top, or STOPPED where another is now."""
    frame = state.frames[state.registers[0] - 1]
    a, b = frame[0], frame[1]
    if not propagate(instance, state, a, b, False):
        return pop(state, EXHAUSTED)
    begin, end = hardest_part(instance, state, a, b)
    if begin == b:
        return pop(state, FOUND)
    if end - begin < b - a:
        frame[4] = -1
        push(state, begin, end)
        return STOPPED
    item = -1 if by_level else critical_item(instance, state, rank, a, b)
    if item < 0:
        item = lowest_item(instance, state, rank, a, b)
        if item >= 0 and lowest_bound(instance, state, a, b) < state.lowest[item]:
            # Something may yet go under it. At the fixed point whatever has the lowest bound may be placed.
            item = lowest_item(instance, state, rank, a, b) if propagate(instance, state, a, b, True) else -1
    if item < 0:  # bounds only rise, so that nothing may be placed at the fixed point either: there is none
        return pop(state, EXHAUSTED)
    frame[3], frame[4] = state.registers[1], item
    place(instance, state, rank, item)
    push(state, a, b)
    return STOPPED


@compiled
def resume(instance: Instance, state: State, answer: int) -> int:
    """Hand the answer of what was above to the frame on top. Its own answer, or STOPPED where there is more to do."""
    frame = state.frames[state.registers[0] - 1]
    if frame[4] < 0:
        if answer == EXHAUSTED:
            return pop(state, EXHAUSTED)
        begin, end = hardest_part(instance, state, frame[0], frame[1])
        if begin == frame[1]:
            return pop(state, FOUND)
        push(state, begin, end)
        return STOPPED
    if answer == FOUND:
        return pop(state, FOUND)
    undo(state, frame[3])
    put(state, len(instance.first) + frame[4], 1)
    return STOPPED


@compiled
def search(instance: Instance, state: State, rank: Ints, by_level: bool, nodes: int) -> int:
    """Go on for so many nodes: FOUND (offsets hold a packing), EXHAUSTED (there is none) or STOPPED."""
    answer = state.registers[2]
    while state.registers[0] > 0:
        if answer != STOPPED:
            answer = resume(instance, state, answer)
        elif nodes > 0 and state.registers[4] == 0:
            nodes -= 1
            state.registers[3] += 1
            answer = expand(instance, state, rank, by_level)
        else:
            break
    state.registers[2] = answer
    return int(answer)
