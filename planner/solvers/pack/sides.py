"""The two sides of a section, compiled: what a search by order changes, and takes back.

Distances on side 0 are offsets, on side 1 they count from the capacity down, so that both only grow.
"""

import numpy as np

from ..compiled import compiled_uncounted as compiled
from .search import settle
from .tables import Instance, Ordering


@compiled
def put(state: Ordering, cell: int, value: int) -> None:
    """Change a cell, or note that the run ends, since what is to be undone has no room."""
    k = state.registers[1]
    if k == len(state.trail):
        state.registers[4] = 1
        return
    state.trail[k, 0], state.trail[k, 1] = cell, state.cells[cell]
    state.registers[1] = k + 1
    state.cells[cell] = value


@compiled
def undo(state: Ordering, mark: int) -> None:
    for k in range(state.registers[1] - 1, mark - 1, -1):
        cell = state.trail[k, 0]
        if cell >= 0:
            state.cells[cell] = state.trail[k, 1]
        else:
            state.under[-1 - cell, state.trail[k, 1]] = 0
    state.registers[1] = mark


@compiled
def touch(state: Ordering, a: int, b: int) -> None:
    """Sections a to b are to be looked at."""
    for s in range(a, b):
        if state.stale[s] == 0:
            state.stale[s] = 1
            state.queue[(state.registers[5] + state.registers[6]) % len(state.queue)] = s
            state.registers[6] += 1


@compiled
def lift(instance: Instance, state: Ordering, side: int, item: int, height: int, value: int | np.int64) -> bool:
    """Keep the item that far from the side's end of a section; False where there is no room for it."""
    n, capacity = len(state.under), instance.capacity[0]
    least = int(value + side * height)
    if least <= state.cells[side * n + item]:
        return True
    if side == 0:
        least = settle(instance, item, least)
    elif least <= capacity:
        least += (capacity - least) % instance.align[item]
    if least + state.cells[(1 - side) * n + item] > capacity:
        return False
    put(state, side * n + item, least)
    touch(state, instance.first[item], instance.last[item])
    return bool(state.registers[4] == 0)


@compiled
def precede(instance: Instance, state: Ordering, low: int, high: int) -> bool:
    """One lies below the other; False where it lies above it."""
    if state.under[low, high]:
        return True
    if state.under[high, low]:
        return False
    k = state.registers[1]
    if k == len(state.trail):
        state.registers[4] = 1
        return False
    state.trail[k, 0], state.trail[k, 1] = -1 - low, high
    state.registers[1] = k + 1
    state.under[low, high] = 1
    touch(state, max(instance.first[low], instance.first[high]), min(instance.last[low], instance.last[high]))
    return True


@compiled
def between(instance: Instance, state: Ordering, s: int) -> tuple[int, int]:
    """Where in the section's row those without a rank stand."""
    n, m = len(state.under), len(state.stale)
    return (
        int(instance.sec_at[s] + state.cells[2 * n + s]),
        int(instance.sec_at[s + 1] - state.cells[2 * n + m + s]),
    )


@compiled
def give_rank(instance: Instance, state: Ordering, s: int, side: int, place: int) -> bool:
    """What stands at a place of the row is next on the side; False where one of the others is known to be."""
    n, m = len(state.under), len(state.stale)
    a, b = between(instance, state, s)
    to = b - 1 if side else a
    items, heights = state.row_item, state.row_height
    items[to], items[place] = items[place], items[to]
    heights[to], heights[place] = heights[place], heights[to]
    cell = 2 * n + side * m + s
    put(state, cell, state.cells[cell] + 1)
    touch(state, s, s + 1)
    for k in range(a + 1 - side, b - side):
        low, high = (items[k], items[to]) if side else (items[to], items[k])
        if state.under[low, high] == 0 and not precede(instance, state, low, high):
            return False
    return bool(state.registers[4] == 0)


@compiled
def stack(instance: Instance, state: Ordering, s: int, side: int) -> int:
    """How far from the side's end those with a rank on it reach, each lifted onto the one before; -1 for no room."""
    a, b = between(instance, state, s)
    n, cells = len(state.under), state.cells
    top = np.int64(0)
    first, last, step = (instance.sec_at[s + 1] - 1, b - 1, -1) if side else (instance.sec_at[s], a, 1)
    for k in range(first, last, step):
        i, height = state.row_item[k], state.row_height[k]
        if cells[side * n + i] < top + side * height and not lift(instance, state, side, i, height, top):
            return -1
        top = cells[side * n + i] + (1 - side) * height
    return int(top)


@compiled
def hang(instance: Instance, state: Ordering, s: int, side: int, top: int) -> bool:
    """Keep those with a rank on the side clear of what the rest needs up to the other end."""
    a, b = between(instance, state, s)
    n, cells, other = len(state.under), state.cells, 1 - side
    first, last, step = (b, instance.sec_at[s + 1], 1) if side else (a - 1, instance.sec_at[s] - 1, -1)
    for k in range(first, last, step):
        i, height = state.row_item[k], state.row_height[k]
        if cells[other * n + i] < top + other * height and not lift(instance, state, other, i, height, top):
            return False
        top = cells[other * n + i] + side * height
    return True
