"""What may become of memory at an instant, compiled: some items end, others begin in their place.

A packing that leaves nothing empty is a planar drawing: items are edges, and at each instant what ends and what begins
fall into joints, the vertices, of which each has the same height on both sides and stands together in the row of what
is alive (`rows.py`). What is empty is an item like others, only free: it ends and begins where that is of use. A state
is a tree of rows and what of the instant has no joint yet; a choice is one joint more. All numbers are int64.
"""

from typing import NamedTuple

import numpy as np

from ..compiled import compiled_uncounted as compiled
from .rows import APART, SIZE, SPAN, WHAT, copy, digest, divide, freedom, join_free, mixed, replace
from .search import NEVER
from .tables import Ints

# Columns of a choice: the state that it is made in, what ends and what begins (bits), three free leaves that end with
# it (tokens, or -1), the size of the free one that begins, more free leaves that end with it (bits, in the order of the
# tree), and what has no joint after it (bits). Where nothing begins all that ends becomes free by itself.
STATE, ENDS, BEGINS, FREE, REST, MORE, ENDS_LEFT, BEGINS_LEFT, COLUMNS = 0, 1, 2, 3, 6, 7, 8, 9, 10
# Prices, in thousandths: an item that ends by itself, a free place that ends where nothing is left over; something left
# over, for each free place that ends beside it, and where one of them were not needed; a pair of the same size, others
# by how many there are, a part of what ends in a joint by itself. And how much the logarithm of the orders is worth.
# Last, a free place of which a part is taken and the rest stays where it was.
OWN, USED, LEFT, LEFT_BESIDE, NOT_NEEDED, PAIR, SMALL, PART, FREEDOM, DIVIDED = 0, 1, 2, 3, 4, 5, 6, 7, 8, 9
MOST_FREE = 16  # free places up to which any three may end together
TRIALS = 200  # ways to leave some of the free places out, where more end together


class Instant(NamedTuple):
    """Items that end and that begin, sizes of all items, [1] the number of the step, by which free leaves are named."""

    ends: Ints
    begins: Ints
    sizes: Ints
    step: Ints


class States(NamedTuple):
    """trees [states, tokens, 3], tokens [states] of each, cost [states], ends and begins [states]: what has no joint
    yet, as bits."""

    trees: Ints
    tokens: Ints
    cost: Ints
    ends: Ints
    begins: Ints


class Choices(NamedTuple):
    """Room for choices: rows [.., COLUMNS], cost, worth (cost less what freedom is worth), digest of what becomes of
    it."""

    rows: Ints
    cost: Ints
    worth: Ints
    digest: Ints


class Room(NamedTuple):
    """What one step writes to: marks, leaves, a new tree, one with a leaf divided, pieces, log and hashes of `rows.py`;
    one choice, the free leaves of a tree, places of bits, and how many choices are offered. logarithms, prices: given.
    """

    state: Ints
    leaves: Ints
    tree: Ints
    divided: Ints
    pieces: Ints
    log: Ints
    hashes: Ints
    choice: Ints
    free: Ints
    places: Ints
    offered: Ints
    logarithms: Ints
    prices: Ints


@compiled
def has(bits: int, k: int) -> int:
    return (bits >> k) & 1


@compiled
def total(sizes: Ints, items: Ints, bits: int) -> int:
    found = np.int64(0)
    for k in range(len(items)):
        found += sizes[items[k]] * has(bits, k)
    return int(found)


@compiled
def following(bits: int) -> int:
    """The next larger number with as many bits."""
    low = bits & -bits
    high = bits + low
    return (((high ^ bits) >> 2) // low) | high


@compiled
def set_free(instant: Instant, tree: Ints, n: int, ends: int, out: Ints) -> int:
    """Every item that ends leaves its place free."""
    copy(tree, 0, n, out, 0)
    for k in range(n):
        for j in range(len(instant.ends)):
            if tree[k, SPAN] == 1 and tree[k, WHAT] == instant.ends[j] and has(ends, j):
                out[k, WHAT] = -3 - 2 * instant.ends[j]
    return n


@compiled
def divided(tree: Ints, choice: Ints) -> int:
    """The free leaf of which only a part ends, since it may be several places; -1 for none."""
    for k in range(FREE, REST):
        token = choice[k]
        if token >= 0 and tree[token, WHAT] < -APART and 0 < choice[REST] < tree[token, SIZE]:
            return int(token)
    return -1


@compiled
def rewritten(instant: Instant, tree: Ints, n: int, choice: Ints, room: Room) -> int:
    """Tokens of `room.tree` after the choice, before free ones are joined; -1 where no row has it so."""
    if choice[BEGINS] == 0:
        return set_free(instant, tree, n, choice[ENDS], room.tree)
    state, leaves = room.state, room.leaves
    parted, given, tokens = divided(tree, choice), tree, n
    if parted >= 0:
        n = divide(tree, n, parted, choice[REST], room.divided)
        tree = room.divided
    for k in range(n):
        state[k] = 0
        for j in range(len(instant.ends)):
            if tree[k, SPAN] == 1 and tree[k, WHAT] == instant.ends[j] and has(choice[ENDS], j):
                state[k] = 2
    for k in range(FREE, REST):
        if choice[k] >= 0:
            state[choice[k] + (0 <= parted <= choice[k])] = 2
    which = 0
    for k in range(tokens if choice[MORE] else 0):
        if given[k, SPAN] == 1 and given[k, WHAT] < 0:
            if has(choice[MORE], which):
                state[k + (0 <= parted <= k)] = 2
            which += 1
    count = 0
    for j in range(len(instant.begins)):
        if has(choice[BEGINS], j):
            leaves[count, 0], leaves[count, 1] = instant.begins[j], instant.sizes[instant.begins[j]]
            count += 1
    if choice[REST] and parted < 0:
        leaves[count, 0], leaves[count, 1] = -2 - 2 * instant.step[0] - APART, choice[REST]
        count += 1
    return replace(tree, n, state, leaves, count, room.tree, room.pieces)


@compiled
def offer(instant: Instant, states: States, choices: Choices, room: Room, cost: int) -> None:
    """Note the choice in `room` if a row has it so and there is room for it."""
    s, k = room.choice[STATE], room.offered[0]
    if k == len(choices.cost):
        return
    n = rewritten(instant, states.trees[s], states.tokens[s], room.choice, room)
    if n < 0:
        return
    n, _ = join_free(room.tree, n, room.log)
    if 2 * (n + 64) > len(room.tree):
        return
    ends, begins = states.ends[s] & ~room.choice[ENDS], states.begins[s] & ~room.choice[BEGINS]
    room.choice[ENDS_LEFT], room.choice[BEGINS_LEFT] = ends, begins
    for column in range(COLUMNS):
        choices.rows[k, column] = room.choice[column]
    choices.cost[k] = states.cost[s] + cost
    choices.worth[k] = choices.cost[k] - freedom(room.tree, n, room.logarithms) * room.prices[FREEDOM] // 1000
    choices.digest[k] = mixed(digest(room.tree, n, room.hashes) + 31 * ends + 1000003 * begins)
    room.offered[0] = k + 1


@compiled
def offer_all(
    instant: Instant, states: States, choices: Choices, room: Room, need: int, number: int, cost: int
) -> None:
    """The joint of what `room.choice` has, beside what ends up to three of so many free places.

    `need`: how much larger is what begins than what ends.
    """
    choice, free, prices = room.choice, room.free, room.prices
    tree = states.trees[choice[STATE]]
    for a in range(-1, number):
        for b in range(a, number if a >= 0 else 0):
            for c in range(b, number if b > a and number <= MOST_FREE else b + 1):
                choice[FREE] = free[a] if a >= 0 else -1
                choice[FREE + 1] = free[b] if b > a else -1
                choice[FREE + 2] = free[c] if c > b else -1
                size, least, count = np.int64(0), np.int64(NEVER), 0
                for k in range(FREE, REST):
                    if choice[k] >= 0:
                        size, least = size + tree[choice[k], SIZE], min(least, tree[choice[k], SIZE])
                        count += 1
                rest = size - need
                spare = count > 0 and rest >= least  # one more than is needed
                nothing = choice[ENDS] == 0
                if rest < 0 or (nothing and count == 0) or (spare and (nothing or count > 1)):
                    continue
                choice[REST] = rest
                price = prices[USED] * count if rest == 0 else prices[LEFT] + prices[LEFT_BESIDE] * count
                if divided(tree, choice) >= 0:
                    price = prices[DIVIDED] + prices[USED] * (count - 1)
                offer(instant, states, choices, room, cost + price + prices[NOT_NEEDED] * spare)


@compiled
def offer_many(
    instant: Instant, states: States, choices: Choices, room: Room, need: int, number: int, cost: int
) -> None:
    """The joint of what `room.choice` has, beside what ends more free places than `offer_all` tries.

    What is full afterwards leaves few of them out. No more of those that end may be left out.
    """
    choice, free, prices, left_out = room.choice, room.free, room.prices, room.places
    tree = states.trees[choice[STATE]]
    few = 3 if number <= MOST_FREE else 2
    rest = -need
    for k in range(number):
        rest += tree[free[k], SIZE]
    if number <= few or number > 60 or rest < 0:
        return
    ends, count, k, trials = (1 << number) - 1, 0, 0, 0
    while trials < TRIALS:
        while k < number and tree[free[k], SIZE] > rest:
            k += 1
        if k < number:
            left_out[count] = k
            count += 1
            rest -= tree[free[k], SIZE]
            ends ^= 1 << k
            k += 1
            continue
        trials += 1
        minimal, several = number - count > few, -1
        for j in range(number if minimal else 0):
            if has(ends, j):
                minimal = minimal and tree[free[j], SIZE] > rest
                several = j if tree[free[j], WHAT] < -APART else several
        if minimal:
            beside = prices[LEFT] + prices[LEFT_BESIDE] * few
            price = prices[USED] * (number - count) if rest == 0 else beside
            choice[FREE], choice[FREE + 1], choice[FREE + 2] = -1, -1, -1
            choice[REST], choice[MORE] = rest, ends
            if several >= 0:  # a part of it stays
                choice[FREE], choice[MORE] = free[several], ends ^ (1 << several)
            offer(instant, states, choices, room, cost + price)
        if count == 0:
            break
        count -= 1
        k = left_out[count]
        rest += tree[free[k], SIZE]
        ends ^= 1 << k
        k += 1
    choice[MORE] = 0


@compiled
def offer_whole(instant: Instant, states: States, choices: Choices, room: Room, number: int) -> None:
    """All that begins, in one joint with all that ends, or all but one."""
    choice = room.choice
    s = choice[STATE]
    ends, begins, sizes = states.ends[s], states.begins[s], instant.sizes
    need = total(sizes, instant.begins, begins) - total(sizes, instant.ends, ends)
    choice[ENDS], choice[BEGINS] = ends, begins
    offer_all(instant, states, choices, room, need, number, 0)
    offer_many(instant, states, choices, room, need, number, 0)
    for j in range(len(instant.ends)):
        if has(ends, j):
            choice[ENDS] = ends & ~(1 << j)
            need_more = need + sizes[instant.ends[j]]
            offer_all(instant, states, choices, room, need_more, number, room.prices[OWN])
            offer_many(instant, states, choices, room, need_more, number, room.prices[OWN])


@compiled
def offer_part(instant: Instant, states: States, choices: Choices, room: Room, number: int, members: int) -> None:
    """A joint of some of what ends and begins, where sizes agree, also with one free place; or of one of each."""
    choice, free, prices = room.choice, room.free, room.prices
    tree = states.trees[choice[STATE]]
    none = choice[ENDS] == 0
    need = total(instant.sizes, instant.begins, choice[BEGINS]) - total(instant.sizes, instant.ends, choice[ENDS])
    choice[FREE], choice[FREE + 1], choice[FREE + 2], choice[REST] = -1, -1, -1, 0
    if need == 0 and not none:
        price = prices[PAIR] if members == 2 else prices[SMALL] * (members - 1)
        offer(instant, states, choices, room, price)
    elif need < 0 and members == 2 and not none:
        choice[REST] = -need
        offer(instant, states, choices, room, prices[PART])
    elif need > 0:
        for k in range(number):
            rest = tree[free[k], SIZE] - need
            apart = tree[free[k], WHAT] < -APART
            if rest == 0 or (rest > 0 and ((none and members == 1) or (apart and members == 2))):
                choice[FREE], choice[REST] = free[k], rest
                price = prices[PAIR] if members == 1 else prices[SMALL] * members
                if rest:
                    price = prices[DIVIDED] * members if apart else prices[PART]
                offer(instant, states, choices, room, price)


@compiled
def spread_bits(bits: int, places: Ints, begin: int) -> int:
    """Bit k at the k-th of the places from `begin` on."""
    found, k = 0, begin
    while bits:
        found |= (bits & 1) << places[k]
        bits >>= 1
        k += 1
    return found


@compiled
def list_places(bits: int, places: Ints, begin: int) -> int:
    """Write down which bits are set: how many."""
    count = 0
    for k in range(63):
        if has(bits, k):
            places[begin + count] = k
            count += 1
    return count


@compiled
def offer_parts(instant: Instant, states: States, choices: Choices, room: Room, number: int) -> None:
    """Joints of a few of what ends and a few of what begins, fewer where there are many."""
    choice, places = room.choice, room.places
    s = choice[STATE]
    ending, beginning = list_places(states.ends[s], places, 0), list_places(states.begins[s], places, 64)
    many = ending + beginning
    most = 3 if many <= 10 else 2
    for e in range(min(most, ending) + 1):
        for b in range(1, min(most, beginning) + 1):
            if e + b == many or (e + b > 3 and many > 16):
                continue
            ends = (1 << e) - 1
            while ends < 1 << ending:
                begins = (1 << b) - 1
                while begins < 1 << beginning:
                    choice[ENDS], choice[BEGINS] = spread_bits(ends, places, 0), spread_bits(begins, places, 64)
                    offer_part(instant, states, choices, room, number, e + b)
                    begins = following(begins)
                if ends == 0:
                    break
                ends = following(ends)


@compiled
def offer_choices(instant: Instant, states: States, choices: Choices, room: Room) -> None:
    """All choices of all states, up to as many as there is room for; `room.offered` says how many."""
    room.offered[0] = 0
    choice = room.choice
    for s in range(len(states.tokens)):
        choice[STATE], choice[FREE], choice[FREE + 1], choice[FREE + 2], choice[REST] = s, -1, -1, -1, 0
        choice[MORE] = 0
        if states.begins[s] == 0:
            choice[ENDS], choice[BEGINS] = states.ends[s], 0
            alone = list_places(states.ends[s], room.places, 0) if len(instant.begins) else 0
            offer(instant, states, choices, room, room.prices[OWN] * alone)
            continue
        tree, number = states.trees[s], 0
        for k in range(states.tokens[s]):
            if tree[k, SPAN] == 1 and tree[k, WHAT] < 0:
                room.free[number] = k
                number += 1
        offer_whole(instant, states, choices, room, number)
        offer_parts(instant, states, choices, room, number)


@compiled
def follow(instant: Instant, states: States, chosen: Ints, room: Room, out: States) -> None:
    """The states that some choices lead to."""
    for k in range(len(chosen)):
        s = chosen[k, STATE]
        n = rewritten(instant, states.trees[s], states.tokens[s], chosen[k], room)
        n, _ = join_free(room.tree, n, room.log)
        copy(room.tree, 0, n, out.trees[k], 0)
        out.tokens[k] = n
        out.ends[k], out.begins[k] = chosen[k, ENDS_LEFT], chosen[k, BEGINS_LEFT]
