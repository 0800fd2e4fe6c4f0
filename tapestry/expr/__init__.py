"""Expressions: index expressions, scalar expressions, the scalar functions and monoids."""

from .functions import FUNCTIONS, MONOIDS, Function, Monoid
from .index import Affine, Bound, Floor
from .scalar import Call, Cast, Const, Expr, IndexValue, Inside, Read, children, reads, rewrite, substitute, walk

__all__ = [
    "FUNCTIONS",
    "MONOIDS",
    "Affine",
    "Bound",
    "Call",
    "Cast",
    "Const",
    "Expr",
    "Floor",
    "Function",
    "IndexValue",
    "Inside",
    "Monoid",
    "Read",
    "children",
    "reads",
    "rewrite",
    "substitute",
    "walk",
]
