"""``tp.repeat(n, body, x)``: equal layers or time steps, whose body is traced once and written down n times.

The body runs on stand-ins of the tensors that it is carried along. What it adds to the trace is a template: it is taken
out, and put in again for each step with the tensors of the step before in the place of the stand-ins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, overload

from ..errors import UsageError
from ..expr import Affine, Expr, Read, rewrite
from ..names import check_name
from ..program import Block, Operation, Pin
from .caller import located, place, user_frame
from .door import spoken
from .tensor import Tensor, base_at
from .trace import OpDraft, TensorDraft, Trace, current

_TOKENS = count()


@overload
def repeat(
    n: int, body: Callable[..., Any], x: Tensor, /, *, stacked: Sequence[Tensor] = (), name: str = ""
) -> Tensor: ...
@overload
def repeat(
    n: int,
    body: Callable[..., Any],
    x: Tensor,
    y: Tensor,
    /,
    *rest: Tensor,
    stacked: Sequence[Tensor] = (),
    name: str = "",
) -> tuple[Tensor, ...]: ...
@overload
def repeat(x: Tensor, pattern: str, **extents: int) -> Tensor: ...
def repeat(*args: Any, **options: Any) -> Any:
    """n times a body, or a tensor repeated along new axes in einops' notation: ``tp.repeat(x, "n c -> n (c r)", r=3)``.

    ``tp.repeat(n, body, x, ...)`` is x after ``x = body(x)`` n times; of several tensors, which the body takes and
    returns in this order, all. Each goes out as it came in, in shape and dtype: that is checked once. The body is
    traced once. Params that it declares are others in each step ("body.0.w", "body.1.w"), tensors from outside are the
    same in all, and of each of ``stacked`` step k takes the slice k, behind what is carried. ``name`` takes the place
    of the body's. Raises UsageError for a count, a body or results that do not fit.
    """
    if len(args) > 1 and callable(args[1]):
        return _repeated(*args, **options)
    from ..ops.einops import repeat as along_axes

    return along_axes(*args, **options)


def _repeated(
    n: int, body: Callable[..., Any], *carried: Tensor, stacked: Sequence[Tensor] = (), name: str = ""
) -> Any:
    where = located("tp.repeat", place(user_frame()))
    trace = current("tp.repeat")
    if type(n) is not int or n < 0:
        raise UsageError(f"{spoken(n)} is no number of steps", where=where, hint="an integer from 0 on")
    if not carried or not all(isinstance(x, Tensor) for x in (*carried, *stacked)):
        raise UsageError("the body is given no tensor to go on from", where=where, hint="tp.repeat(n, body, x)")
    called = getattr(body, "__name__", "<>")
    label = check_name(name, "a name") if name else "step" if "<" in called else called
    first = [trace.materialise(x) for x in carried]
    slices = [trace.materialise(x) for x in stacked]
    for x in slices:
        if not x.ndim or x.shape[0] != n:
            raise UsageError(f"{n} steps take slices of {x!r}", where=where, hint=f"a first axis of {n}")
    if not n:
        return first[0] if len(first) == 1 else tuple(first)
    template = _traced(trace, body, label, first, slices, where)
    keys = [x.key for x in first]
    for step in range(n):
        keys = template.written(step, keys)
    found = tuple(_handle(trace, key) for key in keys)
    return found[0] if len(found) == 1 else found


def _handle(trace: Trace, key: str) -> Tensor:
    record = trace.tensors[key].record
    return Tensor(trace, record.shape, record.dtype, record.axes, base_at(key), key)


def _traced(
    trace: Trace, body: Callable[..., Any], label: str, first: Sequence[Tensor], slices: Sequence[Tensor], where: str
) -> _Template:
    """What one step adds to the trace, taken out of it."""
    token = f"%{next(_TOKENS)}%"
    before = len(trace.ops), len(trace.tensors), len(trace.states), len(trace.pins)
    held = set(trace.held)
    carried = [trace.add_tensor("carried", x.dtype, x.shape, x.axes) for x in first]
    parts = [trace.add_tensor("slice", x.dtype, x.shape[1:], x.axes[1:]) for x in slices]
    trace.scopes += [label, token]
    try:
        result = body(*carried, *parts)
        found = list(result) if isinstance(result, tuple | list) else [result]
        _demand_alike(found, first, where)
        results = [trace.materialise(x).key for x in found]
    finally:
        del trace.scopes[-2:]
    ops, tensors, states, pins = before
    added = list(trace.tensors.items())[tensors:]
    template = _Template(
        trace, token, [x.key for x in carried], {p.key: x.key for p, x in zip(parts, slices, strict=True)}, results,
        trace.ops[ops:], dict(added), trace.states[states:], trace.pins[pins:], trace.held - held,
    )  # fmt: skip
    del trace.ops[ops:], trace.states[states:], trace.pins[pins:]
    trace.held = held
    for key, _ in added:
        trace.forget(key)
    outside = [old for old, _ in template.states if old not in template.tensors]
    if outside:
        what = f"every step updates the state {trace.tensors[outside[0]].hint}, which is replaced once in a run"
        raise UsageError(what, where=where, hint="carry its value along, and update it after the last step")
    return template


def _demand_alike(found: Sequence[Any], first: Sequence[Tensor], where: str) -> None:
    """UsageError unless a step hands on what it was given, in shape and dtype."""
    if len(found) != len(first) or not all(isinstance(x, Tensor) for x in found):
        sides = {"takes": f"{len(first)} carried", "returns": ", ".join(map(spoken, found))}
        raise UsageError("the body does not return what it carries along", where=where, sides=sides)
    for old, new in zip(first, found, strict=True):
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            sides = {"takes": repr(old), "returns": repr(new)}
            hint = "what goes into the next step has the shape and the dtype of what went into this one"
            raise UsageError("a step hands on something else than it takes", where=where, sides=sides, hint=hint)


@dataclass
class _Template:
    """One step: ``carried`` and the keys of ``sliced`` stand in for tensors that each step has of its own."""

    trace: Trace
    token: str
    carried: list[str]
    sliced: dict[str, str]
    results: list[str]
    ops: list[OpDraft]
    tensors: dict[str, TensorDraft]
    states: list[tuple[str, str]]
    pins: list[tuple[str, Pin]]
    held: set[str]
    _constants: dict[str, str] = field(default_factory=dict)

    def written(self, step: int, given: Sequence[str]) -> list[str]:
        """Add one step to the trace that goes on from these tensors; those that it hands on."""
        keys = dict(zip(self.carried, given, strict=True))
        for old, draft in self.tensors.items():
            if old not in keys and old not in self.sliced:
                keys[old] = self._tensor(old, draft, step)
        for op in self.ops:
            made = OpDraft(self._operation(op.operation, keys, step), self._called(op.hint, step))
            self.trace.ops.append(made)
            self.trace.tensors[made.operation.output].made_by = made
        self.trace.states += [(keys[old], keys.get(new, new)) for old, new in self.states]
        self.trace.pins += [(keys.get(key, key), pin) for key, pin in self.pins]
        self.trace.held |= {keys.get(key, key) for key in self.held}
        return [keys.get(key, key) for key in self.results]

    def _called(self, name: str, step: int) -> str:
        return name.replace(self.token, str(step))

    def _tensor(self, old: str, draft: TensorDraft, step: int) -> str:
        """A tensor of this step; numbers that are written down are the same in all."""
        if old in self._constants:
            return self._constants[old]
        record = draft.record
        made = self.trace.add_tensor(
            self._called(draft.hint, step),
            record.dtype,
            record.shape,
            record.axes,
            record.role,
            record.data,
            draft.made,
        )
        self.trace.tensors[made.key].named = draft.named
        if record.role == "const":
            self._constants[old] = made.key
        return made.key

    def _operation(self, op: Operation, keys: Mapping[str, str], step: int) -> Operation:
        def read(node: Read) -> Read:
            if node.tensor in self.sliced:
                return Read(self.sliced[node.tensor], (Affine.of(step), *node.index), node.guard, node.fill)
            return replace(node, tensor=keys.get(node.tensor, node.tensor))

        def leaf(node: Expr) -> Expr:
            return read(node) if isinstance(node, Read) else node

        if isinstance(op.body, Block):
            body: Expr | Block = replace(op.body, reads=tuple(map(read, op.body.reads)))
        else:
            body = rewrite(op.body, leaf)
        return replace(op, output=keys[op.output], body=body, group=self._called(op.group, step))
