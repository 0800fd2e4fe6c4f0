"""Tensors against annotations: what a call gives, and what a function hands back."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, get_args, get_origin

from ..errors import UsageError
from .annotations import Spec
from .axes import unify
from .door import spoken
from .tensor import Tensor


def bind_operands(specs: Mapping[str, Spec], arguments: Mapping[str, Any], call: str) -> dict[str, int]:
    """Extents of the names in the annotations. UsageError where a tensor's dtype, axes or extents contradict them.

    An optional operand that is None says nothing. ``call`` is "name (file:line)".
    """
    extents: dict[str, int] = {}
    for name, spec in specs.items():
        if not (spec.optional and arguments[name] is None):
            _check(spec, name, arguments[name], extents, call)
    check_extents(specs, arguments, extents, call)
    return extents


def check_extents(
    specs: Mapping[str, Spec], arguments: Mapping[str, Any], extents: MutableMapping[str, int], call: str
) -> None:
    """UsageError where a shape contradicts extents that were not known yet when it was bound."""
    for name, spec in specs.items():
        if arguments[name] is not None:
            _unify(spec, name, arguments[name], extents, call)


def _check(spec: Spec, name: str, value: Any, extents: MutableMapping[str, int], call: str) -> None:
    if not isinstance(value, Tensor) or not value.is_tensor:
        raise UsageError(f"{name} is {spoken(value)}, not a tensor", where=call, hint=f"declared {name}: {spec}")
    if value.dtype not in spec.dtypes:
        sides = {"declared": spec, "given": repr(value)}
        hint = f'cast it: astype("{spec.dtypes[-1]}")'
        raise UsageError(f"{name} has another dtype", where=call, sides=sides, hint=hint)
    _unify(spec, name, value, extents, call)


def _unify(spec: Spec, name: str, value: Tensor, extents: MutableMapping[str, int], call: str) -> None:
    try:
        unify(spec.axes, value.shape, extents, name)
    except UsageError as error:
        raise UsageError(error.what, where=call, sides=error.sides, hint=error.hint) from None


def demand_states(specs: Mapping[str, Spec], arguments: Mapping[str, Any], call: str) -> None:
    """UsageError where a parameter that is updated (``state[...]``) gets a tensor that is no state."""
    for name, spec in specs.items():
        value = arguments[name]
        if spec.role != "state" or value is None:
            continue
        if not value.key or value.trace.tensors[value.key].record.role != "state":
            hint = "hand over a state: one of the program's own state[...] parameters, or tp.state(...)"
            raise UsageError(f"{name} is {value!r}, not a state", where=call, sides={"declared": spec}, hint=hint)


def check_results(hint: Any, result: Any, extents: Mapping[str, int], where: str, name: str = "the result") -> None:
    """UsageError where a program hands back other tensors than it declares; annotations of no tensor say nothing."""
    args = get_args(hint)
    if isinstance(hint, Spec):
        _check(hint, name, result, dict(extents), where)
    elif get_origin(hint) is dict and isinstance(result, Mapping):
        for key, value in result.items():
            check_results(args[1], value, extents, where, f"the output {key}")
    elif get_origin(hint) in (tuple, list) and any(isinstance(arg, Spec) for arg in args):
        if not isinstance(result, tuple | list):
            raise UsageError(f"the result is {spoken(result)}, not {len(args)} tensors", where=where)
        same = args[-1] is Ellipsis or get_origin(hint) is list
        wanted = [args[0]] * len(result) if same else list(args)
        if len(wanted) != len(result):
            sides = {"declared": len(wanted), "returned": len(result)}
            raise UsageError("the program returns another number of tensors", where=where, sides=sides)
        for k, (arg, value) in enumerate(zip(wanted, result, strict=True)):
            check_results(arg, value, extents, where, f"output {k}")
