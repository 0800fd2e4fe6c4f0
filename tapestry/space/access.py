"""Accesses: from the points of an index space to the elements of a tensor, by quasi-affine rows.

Strides, dilations, negative and mixed-sign coefficients, floors and mods by constants are all rows; a guard says where
the access touches the tensor at all. The images are those of `tapestry.space.image`, as for the reads of an operation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..expr.index import Affine, Bound
from .projection import Image, projection
from .region import Box, Grid, Region

if TYPE_CHECKING:
    import islpy

    from .indexset import IndexSet


@dataclass(frozen=True)
class Access:
    """One index row per axis of a tensor, over named dimensions, where all bounds of ``guard`` hold.

    >>> x, y = Affine.dim("x"), Affine.dim("y")
    >>> str(Access(("x", "y"), (x - y,)).image(Box((0, 0), (4, 4))).region)
    '-3:4'
    """

    dims: tuple[str, ...]
    rows: tuple[Affine, ...]
    guard: tuple[Bound, ...] = ()

    def __post_init__(self) -> None:
        used = {name for row in self.rows for name in row.dims} | {name for b in self.guard for name in b.expr.dims}
        unknown = sorted(used - set(self.dims))
        if unknown or len(set(self.dims)) != len(self.dims):
            known = ", ".join(self.dims)
            raise UsageError(f"access over ({known}): {unknown[0] if unknown else known!r} is unknown or named twice")

    @staticmethod
    def linear(matrix: Sequence[Sequence[int]], offset: Sequence[int], dims: Sequence[str] | None = None) -> Access:
        """The rows ``matrix @ point + offset``; dimensions are called i0, i1, ... unless named.

        >>> print(Access.linear([[2, 1], [0, -1]], [-1, 5]))
        [i0, i1] -> [2*i0 + i1 - 1, -i1 + 5]
        """
        width = len(matrix[0]) if matrix else 0
        names = tuple(dims) if dims is not None else tuple(f"i{k}" for k in range(width))
        if len(offset) != len(matrix) or any(len(row) != len(names) for row in matrix):
            raise UsageError(f"{len(matrix)} rows over {len(names)} dimensions need as many offsets and columns")
        terms = [[Affine.dim(name) * c for name, c in zip(names, row, strict=True)] for row in matrix]
        return Access(names, tuple(sum(row, Affine((), b)) for row, b in zip(terms, offset, strict=True)))

    def image(self, domain: Region | Grid | Box) -> Image:
        """The elements that the points of a domain touch: exact, or a hull labelled as one."""
        region = domain if isinstance(domain, Region) else domain.region()
        if any(grid.ndim != len(self.dims) for grid in region.grids):
            raise UsageError(f"an access over ({', '.join(self.dims)}) meets a domain of {region.grids[0].ndim} axes")
        return projection(self.dims, self.rows, self.guard).image(region)

    def at(self, point: Sequence[int]) -> tuple[int, ...] | None:
        """The element touched from one point, or None where the guard fails."""
        values = dict(zip(self.dims, point, strict=True))
        if not all(bound.holds(values) for bound in self.guard):
            return None
        return tuple(int(row.evaluate(values)) for row in self.rows)

    def after(self, inner: Access) -> Access:
        """This access of the elements that ``inner`` touches: composition, this one applied last.

        >>> half = Access.linear([[2]], [0]).after(Access(("x",), (Affine.dim("x") // 2,)))
        >>> print(half)
        [x] -> [2*(x//2)]
        """
        if len(inner.rows) != len(self.dims):
            raise UsageError("accesses do not compose", sides={"rows": inner, "dimensions": self})
        values: Mapping[str, Affine] = dict(zip(self.dims, inner.rows, strict=True))
        guard = (*inner.guard, *(bound.substitute(values) for bound in self.guard))
        return Access(inner.dims, tuple(row.substitute(values) for row in self.rows), guard)

    def to_isl(self) -> islpy.Map:
        """The relation from points to elements."""
        from . import polyhedral
        from .indexset import relation_text

        return polyhedral.read_map(relation_text(self.dims, self.rows, self.guard))

    def prove_onto(self, domain: IndexSet, target: IndexSet) -> None:
        """Each element of ``target`` is touched from exactly one point of ``domain``, and nothing else is touched.

        Raises `NotCovered`, `LeavesDomain` or `Overlap` with a witness.
        """
        from .proofs import prove_relation

        prove_relation(self.to_isl().intersect_domain(domain.points), target)

    def image_set(self, domain: IndexSet) -> IndexSet:
        """The exact image of any index set, by isl."""
        from .indexset import image_set

        return image_set(self.dims, self.rows, domain, self.guard)

    def __str__(self) -> str:
        guard = f" where {' and '.join(map(str, self.guard))}" if self.guard else ""
        return f"[{', '.join(self.dims)}] -> [{', '.join(map(str, self.rows))}]{guard}"
