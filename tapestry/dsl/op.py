"""``@tp.op``: a primitive operation declared once, in index notation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec

from ..errors import UsageError
from ..expr import Bound, Expr, Read, rewrite
from ..program import Dim
from .annotations import Spec, read_annotations
from .axes import Axis, unify
from .caller import place, user_frame
from .element import Element, Reduction, element, free_dims
from .ranges import all_accesses, check_accesses, solve
from .tensor import Tensor
from .trace import Trace, current

P = ParamSpec("P")


class Op(Generic[P]):
    """A declared operation; calling it on tensors adds it to the program being traced.

    Calls accept ``name=`` besides the declared parameters.
    """

    __name__: str

    def __init__(self, function: Callable[P, Tensor]) -> None:
        self.function = function
        update_wrapper(self, function)
        self.signature = inspect.signature(function)

    @cached_property
    def specs(self) -> dict[str, Spec]:
        """Tensor parameters, and "return"."""
        found = {name: hint for name, hint in read_annotations(self.function).items() if isinstance(hint, Spec)}
        if "return" not in found:
            hint = 'declare the output axes: -> f32[Tensor, "n k"]'
            raise UsageError(f"the operation {self.__name__} does not declare its output", hint=hint)
        return found

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Tensor:
        trace = current(self.__name__)
        explicit = "" if "name" in self.signature.parameters else str(kwargs.pop("name", "") or "")
        call = f"{self.__name__} ({place(user_frame())})"
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(str(error), where=call, hint=f"{self.__name__}{self.signature}") from None
        bound.apply_defaults()
        explicit = explicit or str(bound.arguments.get("name") or "")
        extents = self._extents(bound.arguments, call)
        result = self.function(*bound.args, **bound.kwargs)
        return _Build(trace, self.__name__, call, explicit).run(element(result), self.specs["return"], extents)

    def _extents(self, arguments: Mapping[str, Any], call: str) -> dict[str, int]:
        """Unify the signature with the shapes given, and check dtypes."""
        extents: dict[str, int] = {}
        for name, spec in self.specs.items():
            if name == "return":
                continue
            tensor = arguments[name]
            if not isinstance(tensor, Tensor) or isinstance(tensor, Element):
                raise UsageError(f"{name} is {tensor!r}, not a tensor", where=call, hint=f"declared {name}: {spec}")
            if tensor.dtype not in spec.dtypes:
                sides = {"declared": spec, "given": repr(tensor)}
                raise UsageError(
                    f"{name} has another dtype", where=call, sides=sides, hint=f'cast it: astype("{spec.dtypes[-1]}")'
                )
            try:
                unify(spec.axes, tensor.shape, extents, name)
            except UsageError as error:
                raise UsageError(error.what, where=call, sides=error.sides, hint=error.hint) from None
        return extents

    def __repr__(self) -> str:
        return f"<op {self.__name__}{self.signature}>"


def op(function: Callable[P, Tensor]) -> Op[P]:
    """Declare a primitive operation by its index expression.

    Tensor parameters and the result are annotated (``f32[Tensor, "n c y x"]``); the names after ``->`` are the indices of the output. The
    body returns an expression of index notation, usually a reduction. Raises UsageError and ReadOutOfBounds when called on tensors
    that do not fit.
    """
    return Op(function)


@dataclass
class _Build:
    """Turns the element that an operation's body returned into operations of the trace."""

    trace: Trace
    name: str
    call: str
    explicit: str

    def run(self, body: Element, spec: Spec, known: Mapping[str, int]) -> Tensor:
        out = [self._axis_name(axis, position) for position, axis in enumerate(spec.axes)]
        given = self._given(spec.axes, out, known)
        needed = list(dict.fromkeys([*out, *_dims(body)]))
        extents = solve(needed, given, [access for access, _ in all_accesses(body)], self.call)
        check_accesses(body, extents, self.call)
        self._check_free(body, out)
        dtype = spec.dtype if len(spec.dtypes) == 1 else None
        result = self._emit(self.name, body, out, extents, dtype, self.explicit)
        if result.dtype not in spec.dtypes:
            sides = {"declared": spec, "computed": result.dtype}
            raise UsageError("the result has another dtype", where=self.call, sides=sides)
        return result

    def _axis_name(self, axis: Axis, position: int) -> str:
        return axis.name or f"d{position}"

    def _given(self, axes: Sequence[Axis], names: Sequence[str], known: Mapping[str, int]) -> dict[str, int]:
        given = dict(known)
        for axis, name in zip(axes, names, strict=True):
            extent = axis.extent(known)
            if axis.expr and extent is None:
                raise UsageError(f"the output axis {axis} speaks of an extent that no operand has", where=self.call)
            if extent is not None:
                given[name] = extent
        return given

    def _check_free(self, body: Element, out: Sequence[str]) -> None:
        loose = [name for name in body.free if name not in out]
        if loose:
            hint = f"fold them (tp.sum[{', '.join(loose)}]) or declare them after ->"
            raise UsageError(
                f"the index {' '.join(loose)} is neither an output axis nor folded", where=self.call, hint=hint
            )

    def _emit(
        self, name: str, body: Element, out: Sequence[str], extents: Mapping[str, int], dtype: str | None, explicit: str
    ) -> Tensor:
        """One operation for the expression; one more for every reduction that is not outermost."""
        outermost = (
            body.reductions[0] if len(body.reductions) == 1 and _is_result(body.expr, body.reductions[0]) else None
        )
        inner = outermost.body if outermost else body
        expr = self._without_reductions(inner, out, extents)
        dims = [Dim(dim, extents[dim]) for dim in (*out, *(outermost.dims if outermost else ()))]
        if outermost is None:
            return self.trace.compute(name, dims, expr, dtype=dtype, explicit=explicit)
        return self._reduction(name, dims, expr, outermost, dtype, explicit)

    def _reduction(
        self, name: str, dims: list[Dim], expr: Expr, fold: Reduction, dtype: str | None, explicit: str
    ) -> Tensor:
        where: tuple[Bound, ...] = fold.where
        return self.trace.compute(
            name, dims, expr, reduce_dims=fold.dims, monoid=fold.monoid, where=where, dtype=dtype, explicit=explicit
        )  # fmt: skip

    def _without_reductions(self, body: Element, out: Sequence[str], extents: Mapping[str, int]) -> Expr:
        """The expression with every reduction computed by an operation of its own."""
        results: dict[str, Tensor] = {}
        for fold in body.reductions:
            free = free_dims(body_read(fold))
            order = [dim for dim in out if dim in free] + [dim for dim in free if dim not in out]
            part = Element(body_read(fold), (), (fold,))
            results[fold.key] = self._emit(f"{self.name}.{fold.monoid}", part, order, extents, None, "")

        def leaf(node: Expr) -> Expr:
            if isinstance(node, Read) and node.tensor in results:
                result = results[node.tensor]
                free = [dim.terms[0][0] for dim in node.index]
                return result.at(tuple(node.index[free.index(axis)] for axis in result.axes))
            return node

        return rewrite(body.expr, leaf) if results else body.expr


def body_read(fold: Reduction) -> Expr:
    """The read that stands for a reduction's result."""
    from ..expr import Affine

    return Read(fold.key, tuple(Affine.dim(dim) for dim in fold.body.free if dim not in fold.dims))


def _is_result(expr: Expr, fold: Reduction) -> bool:
    return isinstance(expr, Read) and expr.tensor == fold.key


def _dims(body: Element) -> list[str]:
    """Every index of an expression and of the reductions in it."""
    found = list(body.free)
    for fold in body.reductions:
        found += [*fold.dims, *_dims(fold.body)]
    return found
