"""The monoids: what it means to fold many values into one, in any grouping.

A monoid folds *records*. A record has components; each point of a fold is lifted to one, records are combined, and what
is stored at the end is the finish of the last. A partial result is a record that is not finished. Everything here is
written in the expressions of the language, so that evaluators, the planner and the checker need no monoid's name:

    lift      of ``x`` (the value at a point) and ``i`` (its position among the folded points, row-major); a monoid
              whose lift reads ``y`` too folds pairs, `pair(x, y)`; ``e`` is the component's value in the identity
    combine   of ``a.NAME`` and ``b.NAME``, the components of two records, ``a`` the earlier
    finish    of ``r.NAME``, the components of one record
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from typing import Any, Literal

from ..dtypes import DTYPES, extreme, promote
from . import derivatives as d
from .derivatives import call
from .functions import FUNCTIONS
from .scalar import Call, Const, Expr, Read, walk

Law = Literal["associative", "commutative", "idempotent"]
Rule = Literal["stored", "value", "partial", "accumulator", "position"]
Result = Literal["value", "counted", "truth", "float", "position"]

VALUE, SECOND, POSITION, NOTHING = Read("x", ()), Read("y", ()), Read("i", ()), Read("e", ())


@dataclass(frozen=True)
class Component:
    """One component of a record.

    dtype      ``stored``: that of the fold's result, so that a value is rounded or wrapped before it is folded;
               ``value``: that of what is folded; ``accumulator``: that of the result, but f32 for 16-bit floats;
               ``partial``: that of the result if it has the exponents of the accumulator (bf16 those of f32), so that
               no partial result overflows where the whole does not, else the accumulator's; ``position``: int64
    identity   its value in the identity; an infinity is the least or greatest value of the dtype
    vector     whether it is all of a packed record that the other components leave, rather than one element
    step       what combine comes to where ``b`` is the record of a single point, if that takes less
    """

    name: str
    dtype: Rule
    identity: float | int
    combine: Expr
    lift: Expr = VALUE
    vector: bool = False
    step: Expr | None = None

    def dtype_for(self, value: str, stored: str) -> str:
        """The dtype in which it is kept in a fold of ``value`` whose result is ``stored``."""
        wide = accumulator_dtype(value, stored)
        narrower = DTYPES[stored].exponent_bits < DTYPES[wide].exponent_bits
        if self.dtype == "accumulator" or (self.dtype == "partial" and narrower):
            return wide
        return {"stored": stored, "partial": stored, "value": value, "position": "int64"}[self.dtype]

    @property
    def unrounded(self) -> bool:
        """Whether values enter a fold as wide as the accumulator: only what one part hands to another is rounded."""
        return self.dtype in ("accumulator", "partial")

    def identity_in(self, dtype: str) -> float | int | bool:
        """Its value in the identity, as a number of the dtype."""
        return extreme(dtype, self.identity)


@dataclass(frozen=True)
class Monoid:
    """An associative fold with an identity.

    result   the dtype of a fold unless it is declared. ``value``: that of what is folded; ``counted``: int32 for bool
             and integers below 32 bits; ``truth``: bool, of bool only; ``float``: at least a float; ``position``: int64
    finish   None: the record itself is the result, component after component along the last axis of the output
             (`packed`); where each component is one element, a fold has several results (`several`)
    laws     what holds besides associativity: any order (commutative), any repetition (idempotent)
    exact    the kinds of components' dtypes for which every grouping gives the same bits
    derivative   of the result along a folded value; None where it has none
    stretch  the monoids whose results over a stretch of points, taken as values again, stand for the whole stretch,
             so that a scan may be cut along its own dimension; none where results do not say enough
    adjoint  what computes the derivative of its scans, "module:function", where ``derivative`` does not
    slopes   of several results the derivative of each; theirs may read all of them, ``r.NAME``
    rows     NumPy's fold of the records of single points along the first axis of every component, "module:function"
    """

    name: str
    components: tuple[Component, ...]
    finish: Expr | None
    laws: frozenset[Law] = frozenset({"associative", "commutative"})
    exact: frozenset[str] = frozenset()
    result: Result = "value"
    doc: str = field(default="", compare=False)
    derivative: d.FoldDerivative | None = None
    stretch: tuple[str, ...] = ()
    adjoint: str | None = None
    slopes: tuple[d.FoldDerivative, ...] = ()
    rows: str | None = None

    @cached_property
    def pairs(self) -> bool:
        """Whether each point gives it two values."""
        return any(SECOND in walk(component.lift) for component in self.components)

    @property
    def ordered(self) -> bool:
        """Whether it goes by the order of the points, so that shares of them may not be folded apart."""
        return "commutative" not in self.laws

    @property
    def idempotent(self) -> bool:
        """Whether folding the same value twice changes nothing, so that parts may overlap."""
        return "idempotent" in self.laws

    @property
    def packed(self) -> bool:
        """Whether the record lies along the last axis of the output, which may then not be cut."""
        return self.finish is None

    @cached_property
    def several(self) -> bool:
        """Whether its components are results of their own, one element each."""
        return self.packed and not any(component.vector for component in self.components)

    @property
    def fold_rows(self) -> Callable[..., Any] | None:
        """The NumPy body of `rows`, imported when it is first asked for."""
        if self.rows is None:
            return None
        module, _, name = self.rows.partition(":")
        found: Callable[..., Any] = getattr(import_module(module), name)
        return found

    @cached_property
    def function(self) -> str | None:
        """The scalar function that folds the values themselves, where the record is just such a value."""
        only = self.components[0]
        plain = len(self.components) == 1 and self.finish == Read(f"r.{only.name}", ())
        if plain and isinstance(only.combine, Call) and only.combine.args == (_a(only.name), _b(only.name)):
            return only.combine.function
        return None

    @cached_property
    def matrix(self) -> bool:
        """Whether it adds up the values themselves, so that a fold of products is what matrix units compute."""
        return (
            self.function is not None and FUNCTIONS[self.function].matrix == "sum" and self.components[0].lift == VALUE
        )

    @cached_property
    def flops(self) -> int:
        """Operations charged for one more value in a fold: the functions that combine its record, each once."""
        steps = [component.step or component.combine for component in self.components]
        calls = {node for step in steps for node in walk(step) if isinstance(node, Call)}
        return sum(FUNCTIONS[node.function].flops for node in calls)

    def dtypes_for(self, value: str, stored: str) -> tuple[str, ...]:
        """The dtypes of the components in a fold of values of one dtype whose result is stored in another."""
        return tuple(component.dtype_for(value, stored) for component in self.components)


def accumulator_dtype(value: str, stored: str) -> str:
    """The type in which a fold adds up: f64 where a 64-bit float takes part, else f32 for floats.

    Integers add up in the result's own dtype: they wrap to the same bits whatever the width.
    """
    if DTYPES[stored].kind != "float":
        return stored
    return DTYPES[promote(value, stored)].compute


def _a(name: str) -> Read:
    return Read(f"a.{name}", ())


def _b(name: str) -> Read:
    return Read(f"b.{name}", ())


def _r(name: str) -> Read:
    return Read(f"r.{name}", ())


class Table(dict[str, Monoid]):
    """Monoids by name. Those of a family, a name and a number, are made when they are first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.families: dict[str, Callable[[int], Monoid | None]] = {}
        self._made: dict[str, Monoid | None] = {}

    def __missing__(self, name: str) -> Monoid:
        found = self.named(name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.named(name) is not None

    def named(self, name: str) -> Monoid | None:
        """The monoid of a name; None where there is none."""
        if super().__contains__(name):
            return super().__getitem__(name)
        family = name.rstrip("0123456789")
        number = name[len(family) :]
        if family not in self.families or not number or number.startswith("0"):
            return None
        if name not in self._made:
            self._made[name] = self.families[family](int(number))
        return self._made[name]


MONOIDS = Table()


def add_monoid(monoid: Monoid) -> Monoid:
    """Add an entry to the table. ValueError for a name that is taken."""
    if monoid.name in MONOIDS:
        raise ValueError(f"the monoid {monoid.name} is there already")
    MONOIDS[monoid.name] = monoid
    return monoid


ROWS = "tapestry.expr.numpy_folds"
INFINITY = float("inf")
LAST = 2**63 - 1
ALL_LAWS: frozenset[Law] = frozenset({"associative", "commutative", "idempotent"})
TWO_LAWS: frozenset[Law] = frozenset({"associative", "commutative"})
WHOLE = frozenset({"bool", "int"})
EVERY = frozenset({"bool", "int", "float"})
ZERO, ONE = Const(0), Const(1)


def _plain(
    name: str,
    function: str,
    dtype: Rule,
    identity: float | int,
    result: Result,
    *,
    lift: Expr = VALUE,
    laws: frozenset[Law] = ALL_LAWS,
    exact: frozenset[str] = EVERY,
    derivative: d.FoldDerivative | None = None,
) -> Monoid:
    """A monoid whose record is one value, combined by one scalar function."""
    combine = call(function, _a("value"), _b("value"))
    component = Component("value", dtype, identity, combine, lift)
    return Monoid(name, (component,), _r("value"), laws, exact, result, derivative=derivative, stretch=(name,))


def _first(better: str) -> Expr:
    """Whether record a wins: the better value, the earlier position among equals, NaN before all numbers."""
    a, b = _a("value"), _b("value")
    earlier = call("less_equal", _a("index"), _b("index"))
    tie = call("logical_and", call("equal", a, b), earlier)
    missing = call("logical_and", call("not_equal", a, a), call("logical_or", call("equal", b, b), earlier))
    return call("logical_or", call(better, a, b), call("logical_or", tie, missing))


def _position(name: str, better: str, identity: float, doc: str) -> Monoid:
    """A pair of a value and where it is: the position of the best value, the first of equal ones."""
    wins = _first(better)

    def chosen(component: str) -> Expr:
        return call("where", wins, _a(component), _b(component))

    components = (
        Component("value", "value", identity, chosen("value")),
        Component("index", "position", LAST, chosen("index"), POSITION),
    )
    rows = f"{ROWS}:{name}"
    return Monoid(name, components, _r("index"), ALL_LAWS, EVERY, "position", doc, rows=rows)


def _scaled(side: Callable[[str], Read], name: str) -> Expr:
    """A sum of exponentials relative to the largest of one record, relative to the larger of both."""
    return call("multiply", side(name), call("exp", call("subtract", side("m"), _finite(_larger()))))


def _larger() -> Expr:
    return call("maximum", _a("m"), _b("m"))


def _finite(m: Expr) -> Expr:
    """m, or 0 where it is infinite: a difference of infinities is no number."""
    return call("where", call("less", call("abs", m), Const(INFINITY)), m, Const(0.0))


def _added(name: str) -> Expr:
    return call("add", _scaled(_a, name), _scaled(_b, name))


def _logsumexp() -> Monoid:
    """log of the sum of exp(x) = m + log s, m the largest x and s the sum of exp(x - m)."""
    seen = call("where", call("equal", VALUE, Const(-INFINITY)), Const(0.0), Const(1.0))
    m, s = _r("m"), _r("s")
    total = call("add", _finite(m), call("log", s))
    finish = call("where", call("equal", m, Const(-INFINITY)), m, total)
    components = (
        Component("m", "accumulator", -INFINITY, _larger()),
        Component("s", "accumulator", 0, _added("s"), seen),
    )
    doc = "log of the sum of exp(x)."
    return Monoid(
        "logsumexp", components, finish, TWO_LAWS,
        result="float", doc=doc, derivative=d.LOGSUMEXP, stretch=("logsumexp",),
    )  # fmt: skip


def _recurrence() -> Monoid:
    """h after h <- x h + y, one point after another, from h = 0: Blelloch 1990, section 1.4.1."""
    components = (
        Component("decay", "accumulator", 1, call("multiply", _a("decay"), _b("decay"))),
        Component("h", "accumulator", 0, call("add", call("multiply", _a("h"), _b("decay")), _b("h")), SECOND),
    )
    return Monoid(
        "recurrence", components, _r("h"), frozenset({"associative"}), WHOLE,
        doc="h after h <- a h + b at every point (a, b).",
        stretch=("prod", "recurrence"), adjoint="tapestry.autodiff.recurrence:adjoint",
    )  # fmt: skip


def _welford(name: str, finish: Expr | None, doc: str, *derivatives: d.FoldDerivative) -> Monoid:
    """Count n, mean and the sum m2 of squared deviations: Welford 1962; combined as in Chan, Golub and LeVeque 1979."""
    n = call("add", _a("n"), _b("n"))
    delta = call("subtract", _b("mean"), _a("mean"))
    share = call("divide", _b("n"), call("maximum", n, ONE))
    between = call("multiply", call("multiply", delta, delta), call("multiply", _a("n"), share))
    components = (
        Component("n", "accumulator", 0, n, Const(1.0)),
        Component("mean", "accumulator", 0, call("add", _a("mean"), call("multiply", delta, share))),
        Component("m2", "accumulator", 0, call("add", call("add", _a("m2"), _b("m2")), between), Const(0.0)),
    )
    whole, each = (None, derivatives) if finish is None else (derivatives[0], ())
    return Monoid(
        name, components, finish, TWO_LAWS,
        result="float", doc=doc, derivative=whole, slopes=each, rows=f"{ROWS}:moments",
    )  # fmt: skip


def _online_softmax() -> Monoid:
    """(o, l, m): m = max x, l = sum exp(x - m), o = sum exp(x - m) v: Milakov and Gimelshein, arXiv:1805.02867."""
    components = (
        Component("o", "stored", 0, _added("o"), vector=True),
        Component("l", "stored", 0, _added("l")),
        Component("m", "stored", -INFINITY, _larger()),
    )
    return Monoid("online_softmax", components, None, TWO_LAWS, result="float", doc="The statistics of attention.")


for _monoid in (
    _plain("sum", "add", "partial", 0, "counted", laws=TWO_LAWS, exact=WHOLE, derivative=d.SUMMED),
    _plain("prod", "multiply", "partial", 1, "counted", laws=TWO_LAWS, exact=WHOLE, derivative=d.PRODUCT),
    _plain("max", "maximum", "stored", -INFINITY, "value", derivative=d.EXTREME),
    _plain("min", "minimum", "stored", INFINITY, "value", derivative=d.EXTREME),
    _plain("any", "logical_or", "stored", 0, "truth", lift=call("not_equal", VALUE, ZERO)),
    _plain("all", "logical_and", "stored", 1, "truth", lift=call("not_equal", VALUE, ZERO)),
    _position("argmax", "greater", -INFINITY, "The position of the largest value, the first of equal ones."),
    _position("argmin", "less", INFINITY, "The position of the smallest value, the first of equal ones."),
    _logsumexp(),
    _welford("average", _r("mean"), "The mean, in one pass.", d.AVERAGED),
    _welford(
        "variance", call("divide", _r("m2"), call("maximum", _r("n"), ONE)), "The mean squared deviation.", d.VARIANCE
    ),
    _welford("moments", None, "How many, their mean, and the sum of squared deviations from it.", *d.MOMENTS),
    _recurrence(),
    _online_softmax(),
):
    add_monoid(_monoid)
