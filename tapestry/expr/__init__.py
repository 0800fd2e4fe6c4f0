"""Expressions: index expressions, scalar expressions, the scalar functions and monoids."""

from .functions import FUNCTIONS, Function, add_function
from .index import Affine, Bound, Floor, Table
from .monoids import MONOIDS, Component, Monoid, add_monoid
from .numbering import Numbering
from .scalar import (
    Call,
    Cast,
    Const,
    Expr,
    IndexValue,
    Inside,
    Read,
    children,
    children_first,
    depends_on,
    fold,
    fold_all,
    reads,
    rewrite,
    substitute,
    walk,
    with_children,
)
from .several import MOST_PLACES

__all__ = [
    "FUNCTIONS",
    "MONOIDS",
    "MOST_PLACES",
    "Affine",
    "Bound",
    "Call",
    "Cast",
    "Component",
    "Const",
    "Expr",
    "Floor",
    "Function",
    "IndexValue",
    "Inside",
    "Monoid",
    "Numbering",
    "Read",
    "Table",
    "add_function",
    "add_monoid",
    "children",
    "children_first",
    "depends_on",
    "fold",
    "fold_all",
    "reads",
    "rewrite",
    "substitute",
    "walk",
    "with_children",
]
