"""What the compiled search reads and writes, as arrays. All numbers are int64."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Instance(NamedTuple):
    """The problem in compressed rows (row k is `x_at[k]:x_at[k + 1]`), items numbered by their first section.

    first, last [items]: sections the item is alive in, half-open. starts [sections + 1]: first item of each section.
    sec_*: per section its items and their heights in it. adj_*: per item the items it meets, and how far above the
    item's offset a neighbour on top of it starts. ban_*: per item the open intervals its offset may not be in, because
    of pinned items, by rising lower end. pin_*: per section the pinned intervals, disjoint, by falling offset.
    align [items]. twins [items]: equal where two items may change places if one lies right on
    the other. capacity [1]: the common ceiling.
    """

    first: Ints
    last: Ints
    starts: Ints
    sec_at: Ints
    sec_item: Ints
    sec_height: Ints
    adj_at: Ints
    adj_item: Ints
    adj_rise: Ints
    ban_at: Ints
    ban_low: Ints
    ban_high: Ints
    pin_at: Ints
    pin_low: Ints
    pin_high: Ints
    align: Ints
    twins: Ints
    capacity: Ints


class State(NamedTuple):
    """Where a search stands. `cells` holds what the trail restores; the five arrays after it are views of it.

    lowest [items]: lowest offset above what is placed. postponed [items]: 1 once it may not stay there. offset [items]:
    -1 if not placed. left [sections]: height still to be placed, and open [sections]: by how many items, which stand
    first in the section's row of row_item and row_height. trail [.., 2]: cell, old value.

    Recomputed at every node: reach [items], a lower bound of the offset; of what is unplaced in a section, top: the
    highest offset the lowest may have, able: how many may be lowest, end: the two lowest ends, owner: whose the
    first is, stale: 1 where these are to be measured again.

    frames [.., 5]: a stretch of sections, trail length at entry and before the choice, the choice: an item, or -1 for a
    stretch of independent parts. registers: frames in use, trail length, last answer (-1: none), nodes visited, and
    whether to stop. blame [sections]: failures seen, and some from the start for how full it is.
    """

    cells: Ints
    lowest: Ints
    postponed: Ints
    offset: Ints
    left: Ints
    open: Ints
    row_item: Ints
    row_height: Ints
    trail: Ints
    reach: Ints
    top: Ints
    able: Ints
    end: Ints
    owner: Ints
    stale: Ints
    frames: Ints
    registers: Ints
    blame: Ints


class Ordering(NamedTuple):
    """Where a search by order stands. Distances on side 0 are offsets, on side 1 they count from the capacity down.

    cells, restored from the trail: how far every item is at least from the end of side 0 [items] and of side 1 [items];
    how many of a section have their rank on side 0 [sections] and on side 1 [sections]. These stand first and last in
    the section's row of row_item and row_height. under [items, items]: 1 where the first is known to lie below the
    second. trail [.., 2]: cell, old value; or -1 - item, the item that was found above it.

    few [2, sections]: how many could be next on a side when last counted. Of the section that is looked at: near
    [2, places]: distances in it, able [places]: who can be next, line [2, places]: places by distance, window [2, 5]:
    what reaches from a side, its two least distances and two greatest far ends. stale [sections], queue: sections to be
    looked at.

    frames [.., 5]: section, side, trail length before the choice, the next choice and the end of the choices, which are
    rows of choices [.., 2]: item, distance. registers: frames in use, trail length, two not used, whether to stop, head
    and length of the queue. blame as in State.
    """

    cells: Ints
    under: NDArray[np.uint8]
    row_item: Ints
    row_height: Ints
    trail: Ints
    few: Ints
    near: Ints
    able: Ints
    line: Ints
    window: Ints
    stale: Ints
    queue: Ints
    frames: Ints
    choices: Ints
    registers: Ints
    blame: Ints
