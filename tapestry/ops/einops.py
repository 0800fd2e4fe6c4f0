"""einops' notation: ``rearrange``, ``reduce`` and ``repeat`` by a pattern of names.

``"b (h w) c -> b c h w"``: names separated by spaces, several axes in one as a group in parentheses, 1 for an axis of
extent 1, ``...`` for any axes. Extents that the shapes do not give are given by name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Literal

from ..dsl.door import door
from ..dsl.tensor import Tensor, unique_names
from ..errors import UsageError
from . import reduction
from .views import broadcast_to, reshape, transpose

Fold = Literal["sum", "mean", "max", "min", "prod", "any", "all"]
Side = tuple[tuple[str, ...], ...]  # axes, each a group of names
_PACKED = "(...)"  # the dots within a group
_FOLDS = {name: getattr(reduction, name) for name in ("sum", "mean", "max", "min", "prod", "any", "all")}


@door
def rearrange(x: Tensor, /, pattern: str, **extents: int) -> Tensor:
    """The same elements with axes in another order, taken apart or put together.

    ``tp.rearrange(x, "n (h p) (w q) c -> n (h w) (p q c)", p=4, q=4)`` cuts an image into patches. A view. Raises
    UsageError with the pattern, the shape and what contradicts.
    """
    plan = _plan("rearrange", pattern, x, extents)
    plan.demand_same_names()
    return _composed(_ordered(_taken_apart(x, plan), plan.names, plan.wanted), plan)


@door
def reduce(x: Tensor, /, pattern: str, fold: Fold, **extents: int) -> Tensor:
    """`rearrange`, with the axes folded that only the left has: ``tp.reduce(x, "n c (h 2) w -> n c h", "max")``."""
    plan = _plan("reduce", pattern, x, extents)
    plan.demand_known(plan.wanted)
    apart = _taken_apart(x, plan)
    folded = [k for k, name in enumerate(plan.names) if name not in plan.wanted]
    kept = [name for name in plan.names if name in plan.wanted]
    small = _FOLDS[fold](apart, folded) if folded else apart
    return _composed(_ordered(small, kept, plan.wanted), plan)


@door
def repeat(x: Tensor, /, pattern: str, **extents: int) -> Tensor:
    """`rearrange`, axes that only the right side has repeating x: ``tp.repeat(x, "n c -> n (c r)", r=3)``. A view."""
    plan = _plan("repeat", pattern, x, extents)
    missing = [name for name in plan.names if name not in plan.wanted]
    if missing:
        raise plan.error(f"{missing[0]} is not on the right side", "tp.reduce folds axes")
    fresh = [name for name in plan.wanted if name not in plan.names]
    plan.demand_extents(fresh)
    apart = _taken_apart(x, plan)
    shape = (*(plan.extents[name] for name in fresh), *apart.shape)
    wide = broadcast_to(apart, shape) if fresh else apart
    return _composed(_ordered(wide, [*fresh, *plan.names], plan.wanted), plan)


@dataclass
class _Plan:
    """A parsed pattern: both sides, ``...`` written out, and the extents of all names that are known."""

    call: str
    pattern: str
    x: Tensor
    left: Side
    right: Side
    extents: dict[str, int]

    @property
    def names(self) -> list[str]:
        return [name for group in self.left for name in group]

    @property
    def wanted(self) -> list[str]:
        return [name for group in self.right for name in group]

    def error(self, what: str, hint: str | None = None) -> UsageError:
        plain = re.sub(r"@\w+", "", what)
        return UsageError(f'{self.call}("{self.pattern}"): {plain}', sides={"tensor": repr(self.x)}, hint=hint)

    def demand_same_names(self) -> None:
        odd = sorted(set(self.names) ^ set(self.wanted))
        if odd:
            raise self.error(f"{odd[0]} is on one side only", "tp.reduce folds axes, tp.repeat adds some")

    def demand_known(self, names: list[str]) -> None:
        odd = [name for name in names if name not in self.names]
        if odd:
            raise self.error(f"{odd[0]} is not on the left side", "tp.repeat adds axes")

    def demand_extents(self, names: list[str]) -> None:
        odd = [name for name in names if name not in self.extents]
        if odd:
            raise self.error(f"nothing gives the extent of {odd[0]}", f"{self.call}(..., {odd[0]}=2)")


def _plan(call: str, pattern: str, x: Tensor, extents: dict[str, int]) -> _Plan:
    left, arrow, right = pattern.partition("->")
    plan = _Plan(call, pattern, x, (), (), dict(extents))
    if not arrow or "->" in right:
        raise plan.error("a pattern has a left and a right side", '"n c -> c n"')
    sides = [_side(plan, text, mark) for text, mark in ((left, "left"), (right, "right"))]
    rank = sum(group != ("...",) for group in sides[0])
    dots = tuple((f"...{k}",) for k in range(max(0, x.ndim - rank)))
    plan.left, plan.right = (_written_out(side, dots) for side in sides)
    given = [name for name in extents if name not in (*plan.names, *plan.wanted)]
    repeated = next((n for side in (plan.names, plan.wanted) for n in side if side.count(n) > 1), None)
    if given or repeated:
        raise plan.error(f"{given[0]} is not in the pattern" if given else f"{repeated} stands twice on one side")
    if len(plan.left) != x.ndim:
        raise plan.error(f"{len(plan.left)} axes on the left side, the tensor has {x.ndim}")
    for group, extent in zip(plan.left, x.shape, strict=True):
        _solve(plan, group, extent)
    return plan


def _side(plan: _Plan, text: str, mark: str) -> Side:
    """The groups of one side; a number is the name of an axis of that extent, one of its own."""
    groups: list[tuple[str, ...]] = []
    inside: list[str] | None = None
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        if word in "()":
            if (word == "(") != (inside is None):
                raise plan.error("the parentheses do not match")
            if inside is not None:
                groups.append(tuple(inside))
            inside = [] if word == "(" else None
            continue
        if not (word == "..." or word.isidentifier() or word.isdecimal()):
            raise plan.error(f"{word!r} is no name of an axis", "names, numbers, ..., and groups in parentheses")
        if word.isdecimal():
            if word == "1" and inside is None:
                groups.append(())
                continue
            label = f"{word}@{mark}{sum(map(len, groups)) + len(inside or ())}"
            plan.extents[label], word = int(word), label
        if inside is None:
            groups.append((word,))
        else:
            inside.append(_PACKED if word == "..." else word)
    if inside is not None:
        raise plan.error("the parentheses do not match")
    return tuple(groups)


def _written_out(side: Side, dots: Side) -> Side:
    """The side with as many axes as there are in the place of the dots; within a group they are one axis."""
    names = tuple(name for group in dots for name in group)
    found: list[tuple[str, ...]] = []
    for group in side:
        if group == ("...",):
            found += dots
        else:
            found.append(tuple(name for one in group for name in (names if one == _PACKED else (one,))))
    return tuple(found)


def _solve(plan: _Plan, group: tuple[str, ...], extent: int) -> None:
    """The one extent of a group that is not given follows from the axis."""
    unknown = [name for name in group if name not in plan.extents]
    known = prod(plan.extents[name] for name in group if name in plan.extents)
    if len(unknown) > 1:
        raise plan.error(f"nothing gives the extents of {' and '.join(unknown)}", f"{plan.call}(..., {unknown[0]}=2)")
    if (not unknown and known != extent) or (unknown and (not known or extent % known)):
        raise plan.error(f"({' '.join(group)}) does not make up an axis of extent {extent}")
    if unknown:
        plan.extents[unknown[0]] = extent // known


def _taken_apart(x: Tensor, plan: _Plan) -> Tensor:
    names = plan.names
    return reshape(x, [plan.extents[name] for name in names], axes=_axes(names))


def _ordered(x: Tensor, names: list[str], wanted: list[str]) -> Tensor:
    return transpose(x, [names.index(name) for name in wanted])


def _composed(x: Tensor, plan: _Plan) -> Tensor:
    shape = [prod(plan.extents[name] for name in group) for group in plan.right]
    return reshape(x, shape, axes=_axes(["_".join(group) or "one" for group in plan.right]))


def _axes(names: list[str]) -> tuple[str, ...]:
    """The names as those of axes: dots and numbers are no identifiers."""
    plain = ("".join(c if c.isalnum() or c == "_" else "" for c in name) for name in names)
    return unique_names(tuple(name if name.isidentifier() else f"d{name}" for name in plain))
