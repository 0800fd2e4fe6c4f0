"""``@tp.op``: a primitive operation declared once, in index notation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec

from ..errors import UsageError
from ..extents import WANTED, is_extent
from .annotations import Spec, read_annotations
from .caller import here, located
from .define import Definition
from .door import spoken
from .element import Element, element
from .index import Index, as_integer, told
from .operands import bind_operands, check_extents
from .reducer import Folding
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
        self.__name__ = function.__name__.lstrip("_")
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
        call = located(self.__name__, here())
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise UsageError(str(error), where=call, hint=f"{self.__name__}{self.signature}") from None
        bound.apply_defaults()
        explicit = explicit or str(bound.arguments.get("name") or "")
        operands = {name: spec for name, spec in self.specs.items() if name != "return"}
        extents = bind_operands(operands, bound.arguments, call)
        self._add_settings(bound.arguments, extents, call)
        check_extents(operands, bound.arguments, extents, call)
        with told() as given:
            result = self.function(*bound.args, **bound.kwargs)
        body = self._element(result, call)
        unused = {name: min(sizes) for name, sizes in given.items() if len(sizes) == 1 and name not in body.free}
        body = Element(body.expr, body.accesses, body.reductions, {**unused, **body.given})
        return self._finish(trace, body, extents, call, explicit)

    def _element(self, result: object, call: str) -> Element:
        """What the body returned, as one element of the output."""
        if isinstance(result, Index | int | float) or (isinstance(result, Tensor) and not result.shape):
            return element(result)
        hint = "return an expression of indexed tensors, such as tp.sum[k](x[n, k])"
        if isinstance(result, Tensor):
            hint = f"give it indices: {result.trace.describe(result)}[{', '.join(result.axes)}]"
        if isinstance(result, Folding):
            hint = f"give the fold an expression: {result}(...)"
        shown = str(result) if isinstance(result, Folding) else spoken(result)
        what = f"the operation returns {shown}, not an element of its output"
        raise UsageError(what, where=call, hint=hint)

    def _finish(self, trace: Trace, body: Element, extents: Mapping[str, int], call: str, explicit: str) -> Tensor:
        spec = self.specs["return"]
        out = [axis.name or f"d{k}" for k, axis in enumerate(spec.axes)]
        twice = next((name for k, name in enumerate(out) if name in out[:k]), None)
        if twice:
            hint = f'give the second a name: -> f32[Tensor, "{twice} m={twice}"]'
            raise UsageError(f"the output names the axis {twice} twice", where=call, hint=hint)
        given = dict(extents)
        for axis, name in zip(spec.axes, out, strict=True):
            extent = axis.extent(extents)
            if axis.expr and extent is None:
                missing = " ".join(part for part in axis.names if part not in extents)
                what = f"the output axis {axis} speaks of {missing}, which no operand or setting has"
                raise UsageError(what, where=call, sides={"declared": spec})
            if extent is not None and not is_extent(extent):
                known = ", ".join(f"{part}={extents[part]}" for part in axis.names)
                what = f"the output axis {axis} has the extent {extent}, not {WANTED}"
                raise UsageError(what, where=call, sides={"with": known})
            if extent is not None:
                given[name] = extent
        dtype = spec.dtype if len(spec.dtypes) == 1 else None
        result = Definition(trace, self.__name__, here(), explicit).build(body, out, given, dtype)
        if result.dtype not in spec.dtypes:
            sides = {"declared": spec, "computed": result.dtype}
            raise UsageError("the result has another dtype", where=call, sides=sides)
        return result

    def _add_settings(self, arguments: Mapping[str, Any], extents: dict[str, int], call: str) -> None:
        """Integer settings are extents of the names they have."""
        named = {name for spec in self.specs.values() for axis in spec.axes for name in (axis.name, *axis.names)}
        for name, value in arguments.items():
            extent = None if name in self.specs else as_integer(value)
            if extent is None:
                continue
            if name in named and extent < 0:
                raise UsageError(f"the setting {name}={extent} is the extent of an axis, but negative", where=call)
            if extents.setdefault(name, extent) != extent:
                sides = {"setting": f"{name}={extent}", "operands": f"{name}={extents[name]}"}
                what = f"the setting {name}={extent} contradicts the axis {name}"
                raise UsageError(what, where=call, sides=sides, hint="give the setting another name, or leave it out")

    def __repr__(self) -> str:
        return f"<op {self.__name__}{self.signature}>"


def op(function: Callable[P, Tensor]) -> Op[P]:
    """Declare a primitive operation by its index expression.

    Tensor parameters and the result are annotated (``f32[Tensor, "n c y x"]``); the names after ``->`` are the indices
    of the output. The other parameters are settings; an integer is also the extent of the axis or index of its name
    (``*, k: int`` for ``-> f32[Tensor, "t k"]``). The body returns an expression of index notation, usually a
    reduction. Raises UsageError and ReadOutOfBounds when called on tensors that do not fit.
    """
    if not inspect.isfunction(function):
        raise UsageError(f"tp.op decorates functions, not {spoken(function)}", where=here() or None)
    return Op(function)
