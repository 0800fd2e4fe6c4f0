"""Accesses: from the points of an index space to the elements of a tensor, by quasi-affine rows.

Strides, dilations, negative and mixed-sign coefficients, floors and mods by constants are all rows; a guard says where
the access touches the tensor at all. Proofs ask isl about them; the images of the reads of operations are those of
`tapestry.space.projection`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..expr.index import Affine, Bound

if TYPE_CHECKING:
    import islpy

    from .indexset import IndexSet


@dataclass(frozen=True)
class Access:
    """One index row per axis of a tensor, over named dimensions, where all bounds of ``guard`` hold.

    >>> p, r = Affine.dim("p"), Affine.dim("r")
    >>> print(Access(("p", "r"), (2 * p + r,), (Bound(r, 0, 3),)))
    [p, r] -> [2*p + r] where 0 <= r < 3
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
