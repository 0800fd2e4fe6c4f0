"""Tracing: the program under construction, its names, and the one way in which operations are added."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import count
from types import FrameType
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from ..errors import TapestryError, UsageError
from ..expr import Affine, Bound, Expr, Read, reads, rewrite, walk
from ..expr.simplify import simplify_bounds
from ..literals import check_literals
from ..names import check_name
from ..program import Block, Dim, Operation, Pin, Program, Role
from ..program import Tensor as TensorRecord
from ..result_type import Typing, may_store, reduced_dtype
from .caller import assigned_name, located, place, user_frame
from .nothing import fold_of_nothing
from .tensor import Tensor, base_at, unique_names
from .typed import simplified

P = ParamSpec("P")
R = TypeVar("R")
_CURRENT: ContextVar[Trace | None] = ContextVar("tapestry_trace", default=None)
_NUMBERS = count()
_OWNERS: WeakValueDictionary[str, Trace] = WeakValueDictionary()
"""Every tensor's key is its own in the whole process, so that a handle of another trace is known for one."""


@dataclass
class TensorDraft:
    """A tensor whose final name is given at the end; ``fixed`` names (inputs, outputs by key) are given out first.

    ``number`` counts the tensors of its trace; ``made`` is the line that made it, ``made_by`` the operation.
    """

    record: TensorRecord
    hint: str
    number: int
    made: str
    fixed: bool = False
    named: bool = False
    made_by: OpDraft | None = None


@dataclass
class OpDraft:
    operation: Operation
    hint: str


@dataclass
class Trace:
    """A program under construction. Tensors are known by keys ("%3") until `finish` names them.

    ``place`` is how errors name the program: "net (file.py:12)".
    """

    name: str
    place: str = ""
    tensors: dict[str, TensorDraft] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    ops: list[OpDraft] = field(default_factory=list)
    states: list[tuple[str, str]] = field(default_factory=list)
    pins: list[tuple[str, Pin]] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    groups: list[tuple[str, FrameType | None]] = field(default_factory=list)
    calls: list[tuple[object, ...]] = field(default_factory=list)
    held: set[str] = field(default_factory=set)  # keys that count as constants when the program is differentiated
    group_counts: dict[str, int] = field(default_factory=dict)
    done_at: str = ""  # set when the function has returned: what is added afterwards has no line of its own

    def scoped(self, name: str) -> str:
        return ".".join([*self.scopes, name])

    def add_tensor(
        self,
        hint: str,
        dtype: str,
        shape: Sequence[int],
        axes: Sequence[str],
        role: Role = "value",
        data: Any = None,
        made: str = "",
    ) -> Tensor:
        """Declare a tensor; anything but a value keeps exactly the name given. ``made`` is the line, if known."""
        shape, axes = tuple(shape), unique_names(tuple(axes))
        key = f"%{next(_NUMBERS)}"
        record = TensorRecord(key, Tensor.check_dtype(dtype), shape, role, axes, data)
        made = made or place(user_frame()) or self.place
        self.tensors[key] = TensorDraft(record, hint, len(self.tensors), made, role != "value")
        self.dtypes[key] = dtype
        _OWNERS[key] = self
        return Tensor(self, shape, dtype, axes, base_at(key), key)

    def forget(self, key: str) -> None:
        """Take a tensor out again that nothing reads."""
        del self.tensors[key], self.dtypes[key], _OWNERS[key]

    def demand_own(self, keys: Iterable[str], where: str = "") -> None:
        """UsageError, with both places, where a key is that of a tensor of another trace."""
        for key in keys:
            if key not in self.tensors:
                raise self._foreign(key, where or place(user_frame()) or self.place)

    def _demand_own_reads(self, body: Expr | Block, where: str) -> None:
        nodes = body.reads if isinstance(body, Block) else walk(body)
        self.demand_own((node.tensor for node in nodes if isinstance(node, Read)), where)

    def _foreign(self, key: str, where: str) -> UsageError:
        hint = "handles live while their program is traced: pass the tensor as an argument, or make it in the program"
        hint += " that uses it (a global, a default or a cache has kept this one)"
        owner = _OWNERS.get(key)
        if owner is None:
            return UsageError("a tensor of another program is used", where=where, hint=hint)
        draft = owner.tensors[key]
        what = f"the {draft.record.role} {draft.hint} belongs to another program"
        if owner.place == self.place:
            what = f"the {draft.record.role} {draft.hint} belongs to another binding of the program"
        sides = {"made": f"at {draft.made} in {owner.place}", "used": f"at {where} in {self.place}"}
        return UsageError(what, where=where, sides=sides, hint=hint)

    def demand(self, tensor: Tensor) -> None:
        """UsageError where the handle is that of another trace."""
        if tensor.trace is not self:
            bases = [tensor.key] if tensor.key else [read.tensor for read in _base_reads(tensor)]
            self.demand_own(bases)

    def describe(self, tensor: Tensor) -> str:
        """How errors speak of a tensor."""
        if tensor.key:
            return self.tensors[tensor.key].hint
        bases = dict.fromkeys(self.tensors[read.tensor].hint for read in _base_reads(tensor))
        return f"view of {' and '.join(bases)}" if bases else "view"

    def with_hints(self, node: Expr) -> Expr:
        """A leaf of an expression, with the names that its tensors have so far."""
        if isinstance(node, Read) and node.tensor in self.tensors:
            return replace(node, tensor=self.tensors[node.tensor].hint)
        return node

    def rename(self, tensor: Tensor, name: str) -> Tensor:
        """Give a tensor, and the operation that computes it, another name; a view is copied first."""
        _good_name(name)
        base = self.materialise(tensor)
        draft = self.tensors[base.key]
        if draft.record.role != "value":
            raise UsageError(f"the {draft.record.role} {draft.hint} keeps its name", sides={"asked": name})
        draft.hint, draft.named = self.scoped(_good_name(name)), True
        if draft.made_by is not None:
            draft.made_by.hint = draft.hint
        return base

    def materialise(self, tensor: Tensor, name: str = "copy") -> Tensor:
        """The tensor itself, or a copy of the view."""
        if not tensor.is_view:
            self.demand_own([tensor.key])
            return tensor
        dims = tuple(Dim(axis, extent) for axis, extent in zip(tensor.axes, tensor.shape, strict=True))
        body = tensor.at(tuple(Affine.dim(dim.name) for dim in dims))
        return self.compute(name, dims, body, dtype=tensor.dtype)

    def compute(
        self,
        name: str,
        dims: Sequence[Dim],
        body: Expr | Block,
        *,
        reduce_dims: Sequence[str] = (),
        monoid: str | None = None,
        where: Sequence[Bound] = (),
        dtype: str | None = None,
        explicit: str = "",
        anonymous: bool = False,
    ) -> Tensor:
        """Add the operation ``out[parallel dims] = monoid over reduce_dims of body`` and hand back its result.

        ``name`` is the function's; ``explicit`` overrides it; ``anonymous`` results are not called after variables.
        ``dtype`` None follows the rules of `tapestry.result_type`.
        """
        frame = None if self.done_at else user_frame()
        ranges = {dim.name: (0, dim.extent) for dim in dims}
        parallel = tuple(dim for dim in dims if dim.name not in reduce_dims)
        source = place(frame) or self.done_at
        bounds = simplify_bounds(tuple(where), ranges)
        bounds = tuple(where) if bounds is None else bounds  # it never holds: the fold is the identity
        if dtype is not None:
            Tensor.check_dtype(dtype)
        self._demand_own_reads(body, located(name, source))
        typing = Typing(self.dtypes)
        value, dtype = self._dtype(located(name, source), body, monoid, dtype, typing)
        if monoid and any(dim.extent == 0 for dim in dims if dim.name in reduce_dims):
            body, monoid = fold_of_nothing(monoid, value, dtype, parallel), None
            dims, reduce_dims, bounds = parallel, (), ()
        body = body if isinstance(body, Block) else simplified(body, ranges, typing)
        local, group = self._local_name(name, explicit)
        hint = self._result_name(None if anonymous else frame, explicit) or local
        axes = [dim.name for dim in parallel]
        out = self.add_tensor(hint, dtype, [dim.extent for dim in parallel], axes, made=source)
        write = tuple(Affine.dim(dim.name) for dim in parallel)
        self.tensors[out.key].named = hint != local or bool(explicit)
        operation = Operation("", tuple(dims), out.key, write, body, tuple(reduce_dims), monoid, bounds, group, source)
        self.ops.append(OpDraft(operation, local))
        self.tensors[out.key].made_by = self.ops[-1]
        return out

    def _dtype(
        self, where: str, body: Expr | Block, monoid: str | None, declared: str | None, typing: Typing
    ) -> tuple[str, str]:
        """The dtypes of the body's value and of the result."""
        if isinstance(body, Block):
            if declared is None:
                raise ValueError("a block operation declares its dtype")
            return declared, declared
        try:
            value = typing.of(body)[0]
            yielded = reduced_dtype(monoid, value) if monoid else value
            result = declared or yielded
            check_literals(body, value if monoid else result, typing)
        except TapestryError as error:
            raise type(error)(error.what, where=where, sides=error.sides, hint=error.hint) from None
        if not may_store(yielded, result):
            sides = {"value": yielded, "declared": result}
            what = "the value does not fit the declared dtype"
            raise UsageError(what, where=where, sides=sides, hint="cast: astype")
        return value, result

    def _local_name(self, name: str, explicit: str) -> tuple[str, str]:
        """The operation's name within scopes and group, and the group."""
        local = _good_name(explicit) if explicit else name
        if not self.groups:
            return self.scoped(local), ""
        return f"{self.groups[-1][0]}.{local}", self.groups[0][0]

    def _result_name(self, frame: FrameType | None, explicit: str) -> str:
        """The variable's name, unless the frame is the one that called the composite now running."""
        if explicit or (self.groups and self.groups[-1][1] is frame):
            return ""
        variable = assigned_name(frame)
        if variable and self.groups:
            return f"{self.groups[-1][0]}.{variable}"
        return self.scoped(variable) if variable else ""

    @contextmanager
    def group(self, name: str, explicit: str, frame: FrameType | None) -> Iterator[None]:
        """Operations added meanwhile belong to the composite of that name."""
        base = f"{self.groups[-1][0]}.{name}" if self.groups else self.scoped(explicit or name)
        count = self.group_counts.get(base, 0)
        self.group_counts[base] = count + 1
        self.groups.append((f"{base}_{count}" if count else base, frame))
        try:
            yield
        finally:
            self.groups.pop()

    @contextmanager
    def calling(self, state: tuple[object, ...], call: str) -> Iterator[None]:
        """A program is called meanwhile. UsageError where it is called from itself with nothing changed."""
        if state in self.calls:
            hint = "change a setting or a shape from call to call, and stop at one"
            raise UsageError("the program calls itself with the same shapes and settings", where=call, hint=hint)
        self.calls.append(state)
        try:
            yield
        finally:
            self.calls.pop()

    def name_result(self, result: object, variable: str, before: int) -> None:
        """Name a composite's result after the variable it is assigned to."""
        draft = self.tensors.get(result.key) if isinstance(result, Tensor) else None
        if draft and draft.number >= before:
            draft.hint, draft.named = f"{self.groups[-1][0]}.{variable}" if self.groups else self.scoped(variable), True

    def finish(self, outputs: Mapping[str, Tensor], bindings: Mapping[str, Any], meta: Mapping[str, str]) -> Program:
        """Name everything and freeze. ``outputs`` maps names to tensors; "", " 0", " 1" let a variable's name win."""
        self.done_at = meta.get("source", "")
        keys: list[str] = []
        for label, tensor in outputs.items():
            keys.append(self.output_key(label, tensor, keys))
        names = self._tensor_names()
        tensors = tuple(replace(d.record, name=names[key]) for key, d in self.tensors.items())
        taken: dict[str, int] = {}
        ops = tuple(named(d.operation, fresh(d.hint, taken), names) for d in self.ops)
        states = tuple((names[a], names[b]) for a, b in self.states)
        pins = tuple(replace(pin, pattern=names[key]) for key, pin in self.pins)
        bound = tuple(bindings.items())
        return Program(self.name, tensors, ops, tuple(names[key] for key in keys), states, pins, bound, dict(meta))

    def output_key(self, name: str, tensor: Tensor, taken: Sequence[str]) -> str:
        """The key of a tensor returned under a name: called so if the name is the user's."""
        draft = self.tensors[key := self.value_key(tensor, taken)]
        if name.strip() and not name.startswith(" "):
            draft.hint, draft.fixed = _good_name(name), True
        elif not draft.named:
            draft.hint = f"out{name.strip()}"
        return key

    def value_key(self, tensor: Tensor, taken: Sequence[str] = ()) -> str:
        """The key of a computed tensor: inputs, views, and what is taken already are copied."""
        base = self.materialise(tensor)
        if self.tensors[base.key].record.role != "value" or base.key in taken:
            dims = tuple(Dim(axis, extent) for axis, extent in zip(base.axes, base.shape, strict=True))
            base = self.compute("copy", dims, base.at(tuple(Affine.dim(dim.name) for dim in dims)))
        return base.key

    def _tensor_names(self) -> dict[str, str]:
        """Final names: fixed ones first, then in order of creation, numbered where they repeat."""
        taken: dict[str, int] = {}
        names: dict[str, str] = {}
        for key, draft in self.tensors.items():
            if draft.fixed:
                if draft.hint in taken:
                    raise UsageError(
                        f"two tensors are called {draft.hint!r}",
                        where=self.name,
                        hint="names of inputs and outputs differ",
                    )
                names[key] = fresh(draft.hint, taken)
        for key, draft in self.tensors.items():
            if not draft.fixed:
                names[key] = fresh(draft.hint, taken)
        return names


def fresh(name: str, taken: dict[str, int]) -> str:
    """The name itself, or numbered: softmax, softmax_1, softmax_2."""
    if name not in taken:
        taken[name] = 0
        return name
    while True:
        taken[name] += 1
        candidate = f"{name}_{taken[name]}"
        if candidate not in taken:
            taken[candidate] = 0
            return candidate


def named(operation: Operation, name: str, names: Mapping[str, str]) -> Operation:
    """The operation under a name, its tensors called otherwise."""

    def renamed(read: Read) -> Read:
        return Read(names[read.tensor], read.index, read.guard, read.fill)

    def leaf(node: Expr) -> Expr:
        return renamed(node) if isinstance(node, Read) else node

    found = replace(operation, name=name, output=names[operation.output])
    if isinstance(operation.body, Block):
        return replace(found, body=replace(operation.body, reads=tuple(map(renamed, operation.body.reads))))
    return replace(found, body=rewrite(operation.body, leaf))


def _base_reads(tensor: Tensor) -> list[Read]:
    return list(reads(tensor.at(tuple(Affine.dim(f"i{k}") for k in range(tensor.ndim)))))


def _good_name(name: str) -> str:
    return check_name(name, "a name")


def current(what: str) -> Trace:
    """The program being traced. UsageError outside of one; ``what`` says who asks."""
    trace = _CURRENT.get()
    if trace is None:
        raise UsageError(
            f"{what} is called outside of a program",
            where=place(user_frame()) or None,
            hint="call it inside a function decorated with @tp.program; the function runs when the program is bound",
        )
    return trace


@contextmanager
def tracing(trace: Trace) -> Iterator[Trace]:
    """Make ``trace`` the current one."""
    token = _CURRENT.set(trace)
    try:
        yield trace
    finally:
        _CURRENT.reset(token)


@contextmanager
def name(scope: str) -> Iterator[None]:
    """Prefix the names of everything declared meanwhile: ``with tp.name("layers.0"): ...``."""
    trace = current("tp.name")
    trace.scopes.append(_good_name(scope))
    try:
        yield
    finally:
        trace.scopes.pop()


def composite(function: Callable[P, R]) -> Callable[P, R]:
    """Group the operations that a function adds under its name, or its ``name=``; drawings show them as one."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        trace = _CURRENT.get()
        if trace is None:
            return function(*args, **kwargs)
        frame = user_frame()
        inner = bool(trace.groups) and trace.groups[-1][1] is frame
        explicit = str(kwargs.get("name") or "")
        before = len(trace.tensors)
        with trace.group(function.__name__, explicit, frame):
            result = function(*args, **kwargs)
        variable = explicit or ("" if inner else assigned_name(frame))
        if variable:
            trace.name_result(result, variable, before)
        return result

    return call
