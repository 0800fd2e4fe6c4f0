"""The scalar functions and the monoids: names, arity, cost and the algebraic facts that rewrites and the planner ask
for.

Semantics are those of NumPy's function of the same meaning, on the compute type (see `tapestry.expr.scalar`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Function:
    """A scalar function. ``result`` says how its dtype follows from the arguments'.

    ``same``: the promotion of the arguments; ``bool``: a truth value; ``float``: the promotion, at least a float;
    ``branch``: the promotion of all arguments but the first. ``flops`` is the cost the planner charges per point.
    """

    name: str
    arity: int
    result: Literal["same", "bool", "float", "branch"] = "same"
    flops: int = 1
    symbol: str = ""


def _table(*functions: Function) -> dict[str, Function]:
    return {function.name: function for function in functions}


FUNCTIONS: dict[str, Function] = _table(
    Function("add", 2, symbol="+"),
    Function("subtract", 2, symbol="-"),
    Function("multiply", 2, symbol="*"),
    Function("divide", 2, "float", 4, "/"),
    Function("floor_divide", 2, flops=4, symbol="//"),
    Function("remainder", 2, flops=4, symbol="%"),
    Function("power", 2, flops=16, symbol="**"),
    Function("minimum", 2),
    Function("maximum", 2),
    Function("less", 2, "bool", symbol="<"),
    Function("less_equal", 2, "bool", symbol="<="),
    Function("greater", 2, "bool", symbol=">"),
    Function("greater_equal", 2, "bool", symbol=">="),
    Function("equal", 2, "bool", symbol="=="),
    Function("not_equal", 2, "bool", symbol="!="),
    Function("logical_and", 2, "bool", symbol="&"),
    Function("logical_or", 2, "bool", symbol="|"),
    Function("logical_not", 1, "bool", symbol="~"),
    Function("where", 3, "branch"),
    Function("negative", 1, symbol="-"),
    Function("abs", 1),
    Function("sign", 1),
    Function("floor", 1, "float"),
    Function("ceil", 1, "float"),
    Function("exp", 1, "float", 8),
    Function("log", 1, "float", 8),
    Function("sqrt", 1, "float", 4),
    Function("rsqrt", 1, "float", 4),
    Function("sin", 1, "float", 8),
    Function("cos", 1, "float", 8),
    Function("tanh", 1, "float", 12),
    Function("erf", 1, "float", 12),
    Function("sigmoid", 1, "float", 10),
)


@dataclass(frozen=True)
class Monoid:
    """An associative, commutative fold with an identity.

    ``exact``: folding in any grouping gives the same bits for every dtype (max, min, and, or); otherwise only for
    integers. ``idempotent``: folding the same value twice changes nothing, so parts may overlap. ``state_axis``:
    elements along the last axis are one value (a record), so that axis may not be cut; used by block states.
    """

    name: str
    exact: bool = False
    idempotent: bool = False
    state_axis: bool = False


MONOIDS: dict[str, Monoid] = {
    monoid.name: monoid
    for monoid in (
        Monoid("sum"),
        Monoid("prod"),
        Monoid("max", exact=True, idempotent=True),
        Monoid("min", exact=True, idempotent=True),
        Monoid("any", exact=True, idempotent=True),
        Monoid("all", exact=True, idempotent=True),
        # (m, l, o) of online softmax, stored as [..., (o_0 ... o_{e-1}, l, m)]: see tapestry.ops.attention.
        Monoid("online_softmax", state_axis=True),
    )
}
