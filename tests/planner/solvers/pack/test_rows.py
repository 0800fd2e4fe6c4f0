"""Trees of rows against the orders written out one by one."""

from __future__ import annotations

import random
from itertools import permutations, product
from typing import TypeAlias

import numpy as np
import pytest

from tapestry.planner.solvers.pack.rows import (
    ANY,
    APART,
    LINE,
    SPAN,
    WHAT,
    digest,
    divide,
    freedom,
    join_free,
    replace,
    together,
    write_leaves,
)
from tapestry.planner.solvers.pack.tables import Ints

TOKENS = 100
Order: TypeAlias = tuple[int, ...]


def fresh() -> Ints:
    return np.zeros((TOKENS, 3), np.int64)


def leaves_of(tree: Ints, n: int) -> list[int]:
    return [int(what) for span, what, _ in tree[:n] if span == 1]


def orders(tree: Ints, node: int = 0) -> set[Order]:
    """All orders below a node."""
    span, what, _ = tree[node]
    if span == 1:
        return {(int(what),)}
    children, child = [], node + 1
    while child < node + span:
        children.append(orders(tree, child))
        child += int(tree[child, SPAN])
    ways = permutations(children) if what == ANY else [tuple(children), tuple(reversed(children))]
    return {sum(parts, ()) for way in ways for parts in product(*way)}


def replaced(before: set[Order], marked: set[int], after: list[int]) -> set[Order]:
    """Every order in which the marked stand together, with the others in any order in their place."""
    found = set()
    for order in before:
        at = [k for k, what in enumerate(order) if what in marked]
        if at[-1] - at[0] + 1 == len(marked):
            found |= {order[: at[0]] + way + order[at[-1] + 1 :] for way in permutations(after)}
    return found


def changed(tree: Ints, n: int, marked: set[int], after: list[int]) -> tuple[Ints, int]:
    state = np.zeros(TOKENS, np.int64)
    state[:n] = [2 * (span == 1 and what in marked) for span, what, _ in tree[:n]]
    leaves, out = np.array([[what, 1] for what in after], np.int64), fresh()
    return out, replace(tree, n, state, leaves, len(after), out, np.zeros(TOKENS, np.int64))


@pytest.mark.parametrize("seed", range(300))
def test_what_stands_together_is_replaced_in_just_the_orders_that_have_it_so(seed: int) -> None:
    source = random.Random(seed)
    tree, first = fresh(), list(range(source.randint(2, 6)))
    n = write_leaves(np.array([[what, 1] for what in first], np.int64), len(first), tree, 0)
    known = orders(tree)
    for step in range(5):
        alive = leaves_of(tree, n)
        marked = set(source.sample(alive, source.randint(1, min(4, len(alive)))))
        many = 1 if len(alive) - len(marked) > 4 else source.randint(1, 2)
        after = [10 * (step + 1) + k for k in range(many)]
        out, length = changed(tree, n, marked, after)
        wanted = replaced(known, marked, after)
        assert (length >= 0) == bool(wanted)
        if length < 0:
            return
        assert orders(out) == wanted
        counted = freedom(out, length, np.array([0, *(1e6 * np.log(np.arange(1, 9)))]).round().astype(np.int64))
        assert round(np.exp(counted / 1e6)) == len(wanted)
        tree, n, known = out, length, wanted


@pytest.mark.parametrize("seed", range(100))
def test_free_leaves_side_by_side_become_one(seed: int) -> None:
    """The orders that are left are those of before, without what became part of another."""
    source = random.Random(seed)
    tree, first = fresh(), [k if source.random() < 0.5 else -1 - k for k in range(5)]
    n = write_leaves(np.array([[what, 1] for what in first], np.int64), len(first), tree, 0)
    for step in range(3):
        alive = leaves_of(tree, n)
        after = [source.choice([1, -1]) * (10 * (step + 1) + k) for k in range(source.randint(1, 2))]
        out, length = changed(tree, n, set(source.sample(alive, min(2, len(alive)))), after)
        if length >= 0:
            tree, n = out, length
    before, log = orders(tree), np.zeros((TOKENS, 2), np.int64)
    n, joined = join_free(tree, n, log)
    gone = {int(part): int(whole) for part, whole in log[:joined]}
    assert orders(tree) == {tuple(what for what in order if what not in gone) for order in before}
    assert int(tree[:n, 2].sum()) == len(first) + sum_of_changes(before, len(first))


@pytest.mark.parametrize("seed", range(200))
def test_a_leaf_that_may_be_several_places_is_divided_as_if_it_had_been_two_all_along(seed: int) -> None:
    source = random.Random(seed)
    tree, first = fresh(), [*range(source.randint(2, 4)), -1 - APART]
    n = write_leaves(np.array([[what, 2] for what in first], np.int64), len(first), tree, 0)
    known = set(permutations([*first, -1]))
    for step in range(4):
        others = [what for what in leaves_of(tree, n) if what >= 0]
        marked = set(source.sample(others, source.randint(1, min(3, len(others)))))
        after = [10 * (step + 1) + k for k in range(source.randint(1, 3 if len(others) - len(marked) < 3 else 1))]
        out, length = changed(tree, n, marked, after)
        wanted = replaced(known, marked, after)
        if length < 0:
            return
        tree, n, known = out, join_free(out, length, np.zeros((TOKENS, 2), np.int64))[0], wanted
        free = next(k for k in range(n) if tree[k, SPAN] == 1 and tree[k, WHAT] < 0)
        if tree[free, WHAT] == -1:  # one place: in all orders the two stand together
            assert all(abs(order.index(-1) - order.index(-1 - APART)) == 1 for order in known)
            return
        length = divide(tree, n, free, 1, out := fresh())
        assert orders(out) == known
        assert out[:length, 2].sum() == tree[:n, 2].sum()


def test_only_leaves_that_may_be_several_places_are_called_otherwise() -> None:
    assert [together(what) for what in (7, 0, -1, -8, -1 - APART, -8 - APART)] == [7, 0, -1, -8, -1, -8]


def sum_of_changes(before: set[Order], at_first: int) -> int:
    """How many leaves of size 1 there are more than at first."""
    return len(next(iter(before))) - at_first


def test_trees_of_the_same_orders_have_the_same_digest() -> None:
    hashes = np.zeros(TOKENS, np.int64)

    def line(*what: int) -> Ints:
        return np.array([[len(what) + 1, LINE, 0], *([1, k, 1] for k in what)], np.int64)

    def loose(*what: int) -> Ints:
        return np.array([[len(what) + 1, ANY, 0], *([1, k, 1] for k in what)], np.int64)

    assert digest(line(1, 2, 3), 4, hashes) == digest(line(3, 2, 1), 4, hashes)
    assert digest(line(1, 2, 3), 4, hashes) != digest(line(2, 1, 3), 4, hashes)
    assert digest(loose(1, 2, 3), 4, hashes) == digest(loose(2, 3, 1), 4, hashes)
    assert digest(loose(1, 2, 3), 4, hashes) != digest(line(1, 2, 3), 4, hashes)
    assert digest(loose(1, -2, 3), 4, hashes) == digest(loose(1, -9, 3), 4, hashes)
    assert int(line(1, 2, 3)[0, WHAT]) == LINE
