"""All orders that what lies in memory at one instant may have, compiled: PQ-trees as flat tables.

A tree [tokens, 3] stands in preorder: how many tokens the subtree has, what it is, its size. A leaf (one token) is an
item, or free (a negative number). The children of an `ANY` node may stand in any order, those of a `LINE` in theirs or
in reverse; an inner node has at least two. What stands together is marked 2 in `state`, its node 1 where only some of
it is, and 0 is the rest. A free leaf that may be several places among the children of its node, which is `ANY`, has a
number below -APART.

K. Booth, G. Lueker: Testing for the consecutive ones property, interval graphs, and graph planarity using PQ-tree
algorithms (1976). Trees here have tens of leaves, so that each is written anew instead of being changed.
"""

import numpy as np

from ..compiled import compiled_uncounted as compiled
from .tables import Ints

SPAN, WHAT, SIZE = 0, 1, 2
ANY, LINE = 0, 1
APART = 1 << 40


@compiled
def together(what: int | np.int64) -> int:
    """What a leaf is once it can be one place only."""
    return int(what + APART if what < -APART else what)


@compiled
def mark_nodes(tree: Ints, n: int, state: Ints) -> None:
    """From marks of leaves to those of inner nodes."""
    for k in range(n - 1, -1, -1):
        end = k + tree[k, SPAN]
        if end == k + 1:
            continue
        least, most = 2, 0
        child = k + 1
        while child < end:
            least, most = min(least, state[child]), max(most, state[child])
            child += tree[child, SPAN]
        state[k] = least if least == most else 1


@compiled
def copy(tree: Ints, begin: int, end: int, out: Ints, at: int) -> int:
    """Tokens of one tree to another; where they end there."""
    for k in range(begin, end):
        out[at, SPAN], out[at, WHAT], out[at, SIZE] = tree[k, SPAN], tree[k, WHAT], tree[k, SIZE]
        at += 1
    return at


@compiled
def close(out: Ints, head: int, at: int, what: int) -> None:
    """Write the first token of a node whose children are written."""
    out[head, SPAN], out[head, WHAT], out[head, SIZE] = at - head, what, 0


@compiled
def write_leaves(leaves: Ints, count: int, out: Ints, at: int) -> int:
    """Leaves [.., 2] (what, size) in any order."""
    head = at
    at += count > 1
    for k in range(count):
        out[at, SPAN], out[at, WHAT], out[at, SIZE] = 1, leaves[k, 0], leaves[k, 1]
        at += 1
    if count > 1:
        close(out, head, at, ANY)
    return at


@compiled
def write_unmarked(tree: Ints, state: Ints, node: int, out: Ints, at: int) -> int:
    """The unmarked children of a node, one after another."""
    child = node + 1
    while child < node + tree[node, SPAN]:
        if state[child] == 0:
            at = copy(tree, child, child + tree[child, SPAN], out, at)
        child += tree[child, SPAN]
    return at


@compiled
def write_piece(tree: Ints, state: Ints, piece: int, out: Ints, at: int) -> int:
    """A subtree, or for -1 - k the unmarked children of node k in any order. A leaf by itself is in one place."""
    if piece >= 0:
        end = copy(tree, piece, piece + tree[piece, SPAN], out, at)
        out[at, WHAT] = together(out[at, WHAT])
        return end
    head = at
    at = write_unmarked(tree, state, -1 - piece, out, at + 1)
    close(out, head, at, ANY)
    return at


@compiled
def beside_any(tree: Ints, state: Ints, node: int, pieces: Ints, count: int) -> tuple[int, int]:
    """See `beside`."""
    partial, free, last = -1, 0, -1
    child = node + 1
    while child < node + tree[node, SPAN]:
        if state[child] == 1:
            if partial >= 0:
                return -1, -1
            partial = child
        elif state[child] == 0:
            free, last = free + 1, child
        child += tree[child, SPAN]
    if free:
        pieces[count] = last if free == 1 else -1 - node
        count += 1
    return count, partial


@compiled
def beside_line(tree: Ints, state: Ints, node: int, pieces: Ints, count: int) -> tuple[int, int]:
    """See `beside`. What is marked stands at one end of the line, next to it the one child that is marked in part."""
    end, begin, partial = node + tree[node, SPAN], count, -1
    child = last = node + 1
    while child < end:
        last, child = child, child + tree[child, SPAN]
    flipped = state[node + 1] == 2 or state[last] == 0
    before = -1
    child = node + 1
    while child < end:
        mark = 2 - state[child] if flipped else state[child]
        if mark < before or mark == before == 1:
            return -1, -1
        before = mark
        if state[child] == 0:
            pieces[count] = child
            count += 1
        elif state[child] == 1:
            partial = child
        child += tree[child, SPAN]
    if flipped:
        for k in range((count - begin) // 2):
            pieces[begin + k], pieces[count - 1 - k] = pieces[count - 1 - k], pieces[begin + k]
    return count, partial


@compiled
def beside(tree: Ints, state: Ints, node: int, pieces: Ints, count: int) -> int:
    """What is unmarked of a node marked in part, from the outside towards what is marked, which has to be at one end.

    Appended to the pieces: how many there are then; -1 where no order has it so. Nothing for -1.
    """
    while node >= 0 and count >= 0:
        if tree[node, WHAT] == ANY:
            count, node = beside_any(tree, state, node, pieces, count)
        else:
            count, node = beside_line(tree, state, node, pieces, count)
    return count


@compiled
def rewrite_any(tree: Ints, state: Ints, node: int, leaves: Ints, count: int, out: Ints, at: int, pieces: Ints) -> int:
    """See `replace`: at the lowest node that has all that is marked."""
    one, two, free = -1, -1, 0
    child = node + 1
    while child < node + tree[node, SPAN]:
        if state[child] == 1:
            if two >= 0:
                return -1
            one, two = child, one
        free += state[child] == 0
        child += tree[child, SPAN]
    left = beside(tree, state, one, pieces, 0)
    right = beside(tree, state, two, pieces, left) if left >= 0 else -1
    if right < 0:
        return -1
    head = at
    if free:
        at = write_unmarked(tree, state, node, out, at + 1)
    inner = at
    at += right > 0
    for k in range(left):
        at = write_piece(tree, state, pieces[k], out, at)
    at = write_leaves(leaves, count, out, at)
    for k in range(right - 1, left - 1, -1):
        at = write_piece(tree, state, pieces[k], out, at)
    if right:
        close(out, inner, at, ANY if right == 1 else LINE)
    if free:
        close(out, head, at, ANY)
    return at


@compiled
def rewrite_line(tree: Ints, state: Ints, node: int, leaves: Ints, count: int, out: Ints, at: int, pieces: Ints) -> int:
    """See `replace`: at the lowest node that has all that is marked."""
    head, children, passed = at, 0, False  # whether all that is marked has been passed
    at += 1
    begun = False
    child = node + 1
    while child < node + tree[node, SPAN]:
        mark = state[child]
        if mark > 0 and passed:
            return -1
        if begun and not passed and mark < 2:
            at = write_leaves(leaves, count, out, at)
            children, passed = children + 1, True
        if mark == 0:
            at = copy(tree, child, child + tree[child, SPAN], out, at)
            children += 1
        elif mark == 1:
            found = beside(tree, state, child, pieces, 0)
            if found < 0:
                return -1
            for k in range(found):
                at = write_piece(tree, state, pieces[found - 1 - k if passed else k], out, at)
            children += found
        begun = begun or mark > 0
        child += tree[child, SPAN]
    if not passed:
        at = write_leaves(leaves, count, out, at)
        children += 1
    close(out, head, at, ANY if children == 2 else LINE)
    return at


@compiled
def replace(tree: Ints, n: int, state: Ints, leaves: Ints, count: int, out: Ints, pieces: Ints) -> int:
    """The orders in which the marked leaves stand together, with others in their place, in any order: tokens of `out`.

    -1 where there is no such order.
    """
    mark_nodes(tree, n, state)
    node = 0
    while state[node] != 2:
        only, several = -1, False
        child = node + 1
        while child < node + tree[node, SPAN]:
            if state[child] > 0:
                several = only >= 0
                only = child
            if several:
                break
            child += tree[child, SPAN]
        if several:
            break
        node = only
    end = node + tree[node, SPAN]
    copy(tree, 0, node, out, 0)
    if state[node] == 2:
        at = write_leaves(leaves, count, out, node)
    elif tree[node, WHAT] == ANY:
        at = rewrite_any(tree, state, node, leaves, count, out, node, pieces)
    else:
        at = rewrite_line(tree, state, node, leaves, count, out, node, pieces)
    if at < 0:
        return -1
    widen(out, node, at - end)
    return copy(tree, end, n, out, at)


@compiled
def widen(tree: Ints, below: int, by: int) -> None:
    """Note that the nodes above a token have so many tokens more."""
    for k in range(below):
        if tree[k, SPAN] > 1 and k + tree[k, SPAN] > below:
            tree[k, SPAN] += by


@compiled
def drop(tree: Ints, n: int, begin: int, end: int) -> int:
    """Take out tokens that some node above them has: how many are left."""
    widen(tree, begin, begin - end)
    return copy(tree, end, n, tree, begin)


@compiled
def join(tree: Ints, n: int, first: int, second: int, log: Ints, logged: int) -> int:
    """Two free leaves, one right after the other, become one: tokens left. Logged as (part, whole)."""
    tree[first, WHAT] = together(tree[first, WHAT])
    log[logged, 0], log[logged, 1] = together(tree[second, WHAT]), tree[first, WHAT]
    tree[first, SIZE] += tree[second, SIZE]
    return drop(tree, n, second, second + 1)


@compiled
def join_free(tree: Ints, n: int, log: Ints) -> tuple[int, int]:
    """Free leaves that stand side by side in all orders become one: tokens left, and how many rows of `log` tell so."""
    logged = 0
    for k in range(n - 1, -1, -1):
        if k >= n or tree[k, SPAN] == 1:
            continue
        every = True
        child = k + 1
        while child < k + tree[k, SPAN]:
            every = every and tree[child, WHAT] < 0 and tree[child, SPAN] == 1
            child += tree[child, SPAN]
        child, children = k + 1, 1
        while child + tree[child, SPAN] < k + tree[k, SPAN]:
            after = child + tree[child, SPAN]
            both = tree[child, SPAN] == tree[after, SPAN] == 1 and tree[child, WHAT] < 0 and tree[after, WHAT] < 0
            if both and (every or tree[k, WHAT] == LINE):
                n = join(tree, n, child, after, log, logged)
                logged += 1
            else:
                child, children = after, children + 1
        if children == 2:
            tree[k, WHAT] = ANY
        elif children == 1:  # the node's one child takes its place
            widen(tree, k, -1)
            n = copy(tree, k + 1, n, tree, k)
            tree[k, WHAT] = together(tree[k, WHAT])
    return n, logged


@compiled
def divide(tree: Ints, n: int, token: int, rest: int, out: Ints) -> int:
    """A leaf in two, of which the first has the size `rest` and may be several places: tokens of `out`."""
    at = copy(tree, 0, token + 1, out, 0)
    out[token, SIZE] = rest
    out[at, SPAN], out[at, WHAT] = 1, together(tree[token, WHAT])
    out[at, SIZE] = tree[token, SIZE] - rest
    widen(out, token, 1)
    return copy(tree, token + 1, n, out, at + 1)


@compiled
def mixed(value: int | np.int64) -> int:
    """Scrambled, so that sums of such tell sets apart."""
    value = (value ^ (value >> 30)) * -4658895280553007687
    value = (value ^ (value >> 27)) * -7723592293110705685
    return int(value ^ (value >> 31))


@compiled
def digest(tree: Ints, n: int, hashes: Ints) -> int:
    """Equal for trees of the same orders; free leaves of one size are alike."""
    for k in range(n - 1, -1, -1):
        if tree[k, SPAN] == 1:
            kind = -2 if tree[k, WHAT] < -APART else max(tree[k, WHAT], -1)
            hashes[k] = mixed(kind * 1000003 + tree[k, SIZE] * 7919 + 12345)
            continue
        total, forth, back, power = np.int64(77), np.int64(5), np.int64(5), np.int64(1)
        child = k + 1
        while child < k + tree[k, SPAN]:
            total += mixed(hashes[child] + 11)
            forth = forth * 1000000007 + hashes[child]
            back += hashes[child] * power
            power *= 1000000007
            child += tree[child, SPAN]
        back += 5 * (power - 1)
        hashes[k] = mixed(total if tree[k, WHAT] == ANY else (forth + back) ^ mixed(forth * back))
    return int(hashes[0])


@compiled
def freedom(tree: Ints, n: int, logarithms: Ints) -> int:
    """Logarithm of the number of orders."""
    total = 0
    for k in range(n):
        if tree[k, SPAN] == 1:
            continue
        if tree[k, WHAT] == LINE:
            total += logarithms[2]
            continue
        child, children = k + 1, 0
        while child < k + tree[k, SPAN]:
            children += 1
            total += logarithms[children]
            child += tree[child, SPAN]
    return int(total)
