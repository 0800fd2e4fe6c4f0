"""What no packing can go below, with the instant and the buffers that say so."""

from collections.abc import Iterator, Sequence

from .problem import Buffer, Witness


def max_live(buffers: Sequence[Buffer]) -> tuple[int, int, list[Buffer]]:
    """Largest total alive at one instant, less what in-place reuse can save: (units, instant, the buffers).

    >>> max_live([Buffer("a", 0, 3, 5), Buffer("b", 2, 4, 7)])[:2]
    (12, 2)
    >>> max_live([Buffer("a", 0, 3, 7), Buffer("b", 2, 4, 5, reuses="a")])[:2]
    (7, 0)
    """
    best, instant = 0, 0
    for total, b in sorted(_totals(buffers), key=lambda pair: -pair[0]):
        if total < best:  # reuse only saves
            break
        live = {a.name: a for a in buffers if a.lower <= b.lower < a.upper}
        need = total - (most_saved(live) if any(a.reuses is not None for a in live.values()) else 0)
        if need > best or (need == best > 0 and b.lower < instant):
            best, instant = need, b.lower
    return best, instant, [b for b in buffers if b.lower <= instant < b.upper and b.size]


def _totals(buffers: Sequence[Buffer]) -> Iterator[tuple[int, Buffer]]:
    """What is alive when each buffer starts: totals only grow at a start, so the maxima are there."""
    ends = sorted(buffers, key=lambda b: b.upper)
    total, dead = 0, 0
    starts = sorted(buffers, key=lambda b: b.lower)
    for k, b in enumerate(starts):
        while ends[dead].upper <= b.lower:
            total, dead = total - ends[dead].size, dead + 1
        total += b.size
        if k + 1 == len(starts) or starts[k + 1].lower > b.lower:
            yield total, b


def most_saved(live: dict[str, Buffer]) -> int:
    """Most units that reuse can save among buffers alive together.

    A place is shared by at most two of them (sharing is between an output and the input it names, and of three in one
    place two would have no such tie), so this is a maximum-weight matching of the forest output → input, a shared
    pair saving the size of its output.
    """
    children: dict[str, list[Buffer]] = {}
    roots = []
    for b in live.values():
        if b.reuses is not None and b.reuses in live:
            children.setdefault(b.reuses, []).append(b)
        else:
            roots.append(b.name)
    order = list(roots)
    for name in order:  # grows while it is read: parents before children
        order.extend(c.name for c in children.get(name, ()))
    free: dict[str, int] = {}  # saved below a buffer that shares with none of its outputs
    best: dict[str, int] = {}
    for name in reversed(order):
        below = children.get(name, ())
        free[name] = sum(best[c.name] for c in below)
        gain = max((c.size + free[c.name] - best[c.name] for c in below), default=0)
        best[name] = free[name] + max(gain, 0)
    return sum(best[r] for r in roots)


def pin_conflict(buffers: Sequence[Buffer], capacity: int | None) -> Witness | None:
    """A pinned buffer that ends above the capacity, or two that are pinned onto each other."""
    live: list[Buffer] = []
    for b in sorted((b for b in buffers if b.offset is not None), key=lambda b: (b.lower, b.name)):
        if capacity is not None and _top(b) > capacity:
            return Witness("pins", (b.name,), _top(b), capacity, b.lower)
        live = [a for a in live if a.upper > b.lower]
        for a in live:
            if max(_at(a), _at(b)) < min(_top(a), _top(b)) and not _shared(a, b):
                room = max(_top(a), _top(b)) - min(_at(a), _at(b))
                return Witness("pins", (a.name, b.name), a.size + b.size, room, b.lower)
        live.append(b)
    return None


def pinned_top(buffers: Sequence[Buffer]) -> int:
    """End of the highest pinned buffer; 0 for none."""
    return max((_top(b) for b in buffers if b.offset is not None), default=0)


def _at(b: Buffer) -> int:
    assert b.offset is not None
    return b.offset


def _top(b: Buffer) -> int:
    return _at(b) + b.size


def _shared(a: Buffer, b: Buffer) -> bool:
    return a.offset == b.offset and (a.reuses == b.name or b.reuses == a.name)
