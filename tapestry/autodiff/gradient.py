"""``tp.grad`` and ``tp.value_and_grad``: from a program to the program of its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ..dsl.door import door, spoken
from ..dsl.program import ProgramFunction
from ..dsl.tensor import Tensor, base_at
from ..dsl.trace import Trace, current
from ..dtypes import DTYPES
from ..errors import UsageError, close_match
from ..expr import Affine
from ..program import Dim
from .backward import cotangents

VALUE, PREFIX = "value", "grad."
Wanted = str | Sequence[str] | None


class GradientFunction(ProgramFunction):
    """The gradient of a program, a program again: what `grad` and `value_and_grad` give."""

    def __init__(self, base: ProgramFunction, wanted: tuple[str, ...], with_value: bool) -> None:
        super().__init__(base.function)
        self.base, self.wanted, self.with_value = base, wanted, with_value
        self.__name__ = f"{'value_and_' if with_value else ''}grad_{base.__name__}"

    @cached_property
    def hints(self) -> dict[str, Any]:
        """Those of the program, but for what it returns."""
        return {name: hint for name, hint in self.base.hints.items() if name != "return"}

    def _run(self, arguments: Mapping[str, Any]) -> dict[str, Tensor]:
        """The outputs by name: the gradients, called "grad." and the tensor's name, and before them the values."""
        trace = current(self.__name__)
        given = {
            name: trace.materialise(value) if isinstance(value, Tensor) and value.is_tensor else value
            for name, value in arguments.items()
        }
        first_op, first_tensor = len(trace.ops), len(trace.tensors)
        values = _named_values(self.base._run(given), self.place)
        loss = trace.materialise(values[next(iter(values))])
        self._check_loss(loss)
        params = self._candidates(trace, given, first_tensor)
        operations = [draft.operation for draft in trace.ops[first_op:]]
        with trace.group("grad", "", None):
            found = cotangents(trace, operations, loss.key, (params[name] for name in params))
        grads = {PREFIX + name: _handle(trace, found[key]) for name, key in params.items()}
        return (values | {next(iter(values)): loss} if self.with_value else {}) | grads

    def _check_loss(self, loss: Tensor) -> None:
        if loss.shape or DTYPES[loss.dtype].kind != "float":
            sides = {"returns": repr(loss), "wants": "one float: a tensor without axes"}
            hint = "fold it: tp.sum(...) or tp.mean(...); several results: return the loss first"
            raise UsageError("the gradient is that of one number", where=self.place, sides=sides, hint=hint)

    def _candidates(self, trace: Trace, given: Mapping[str, Any], first_tensor: int) -> dict[str, str]:
        """The tensors to differentiate along, by name: those asked for, or every float param."""
        tensors = {name: value for name, value in given.items() if isinstance(value, Tensor) and value.is_tensor}
        roles = {name: spec.role for name, spec in self.specs.items()}
        known = {name: (value.key, roles.get(name, "input")) for name, value in tensors.items()}
        for key, draft in list(trace.tensors.items())[first_tensor:]:
            if draft.record.role in ("param", "state", "input"):
                known[draft.hint] = key, draft.record.role
        floats = {name: key for name, (key, _) in known.items() if DTYPES[trace.dtypes[key]].kind == "float"}
        if not self.wanted:
            found = {name: key for name, key in floats.items() if known[name][1] == "param"}
            if not found:
                hint = f"say which: wrt={next(iter(floats), 'x')!r}"
                raise UsageError("the program has no float param to differentiate along", where=self.place, hint=hint)
            return found
        return {name: key for pattern in self.wanted for name, key in self._matching(pattern, floats, known).items()}

    def _matching(self, pattern: str, floats: Mapping[str, str], known: Mapping[str, Any]) -> dict[str, str]:
        found = {name: key for name, key in floats.items() if fnmatchcase(name, pattern)}
        if not found and pattern in known:
            what = f"{pattern} is of integers or truth values, along which nothing has a derivative"
            raise UsageError(what, where=self.place)
        if not found:
            hint = close_match(pattern, list(known))
            raise UsageError(f"there is no tensor {pattern!r} to differentiate along", where=self.place, hint=hint)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Inside another program: the gradients by name, or that of the one tensor asked for.

        With values: a pair of what the program returns and that.
        """
        found = super().__call__(*args, **kwargs)
        grads = {name.removeprefix(PREFIX): x for name, x in found.items() if name.startswith(PREFIX)}
        alone = len(self.wanted) == 1 and self.wanted[0] in grads
        result = grads[self.wanted[0]] if alone else grads
        if not self.with_value:
            return result
        values = [x for name, x in found.items() if not name.startswith(PREFIX)]
        return (values[0] if len(values) == 1 else tuple(values)), result


def _named_values(result: Any, where: str) -> dict[str, Tensor]:
    """What the program returns, the loss first."""
    if isinstance(result, Tensor):
        return {VALUE: result}
    if isinstance(result, Mapping) and result and all(isinstance(x, Tensor) for x in result.values()):
        return dict(result)
    if isinstance(result, tuple | list) and result and all(isinstance(x, Tensor) for x in result):
        return {VALUE if k == 0 else f"{VALUE}_{k}": x for k, x in enumerate(result)}
    raise UsageError(f"the program returns {spoken(result)}, not a tensor", where=where, hint="return the loss first")


def _handle(trace: Trace, key: str) -> Tensor:
    record = trace.tensors[key].record
    return Tensor(trace, record.shape, record.dtype, record.axes, base_at(key), key)


@door
def grad(program: ProgramFunction, wrt: Wanted = None) -> GradientFunction:
    """The program of the gradient of what ``program`` returns, one float or that and more.

    ``wrt`` names tensors (patterns such as "layers.*" too); None takes every float param. Bound by itself, the result
    has an output ``grad.NAME`` for each; called inside another program it gives a dict of gradients by name, or, where
    ``wrt`` is one name, that gradient. Each has the shape and dtype of its tensor. Raises UsageError when it is bound:
    for results that are not one float, names that are not there, tensors of integers, and for functions, folds and
    block kernels without a derivative.

    >>> import tapestry as tp
    >>> @tp.program
    ... def loss(x: tp.f32[tp.Tensor, "n"], w: tp.param[tp.f32[tp.Tensor, "n"]]) -> tp.Tensor:
    ...     return tp.sum((x * w) ** 2)
    >>> tp.grad(loss).bind(n=3).outputs
    ('grad.w',)
    """
    return GradientFunction(program, _patterns(wrt), with_value=False)


@door
def value_and_grad(program: ProgramFunction, wrt: Wanted = None) -> GradientFunction:
    """`grad`, with what the program returns: outputs ``value`` (and ``value_1``, ...) beside ``grad.NAME``.

    Called inside another program it gives the pair (what the program returns, the gradients).
    """
    return GradientFunction(program, _patterns(wrt), with_value=True)


def _patterns(wrt: Wanted) -> tuple[str, ...]:
    return () if wrt is None else (wrt,) if isinstance(wrt, str) else tuple(wrt)


@door
def stop_gradient(x: Tensor) -> Tensor:
    """x, which counts as a constant when the program is differentiated."""
    trace = current("tp.stop_gradient")
    dims = [Dim(axis, extent) for axis, extent in zip(x.axes, x.shape, strict=True)]
    held = trace.compute("stop_gradient", dims, x.at(tuple(Affine.dim(dim.name) for dim in dims)), dtype=x.dtype)
    trace.held.add(held.key)
    return held
