"""What makes a program valid. Run at every pass boundary; raises ProgramError with the place, both sides and a witness.

- Names are names, and unique; every dtype, monoid, function and role is known; extents are 0 to 2**63 - 2.
- Each value has exactly one producer and nothing else has one; operations stand in an order in which they can run.
- Every element of a value is written exactly once; a reduction whose condition leaves an element no points writes its
identity. - Every read stays inside its tensor or is guarded.
- Values fit the dtypes they are written to; monoids stand exactly where dimensions are folded.
- States are replaced by values of the same shape and dtype; pins match something that has what they name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import get_args

from .blocks import check_block
from .bounds import escape, out_of_bounds
from .dtypes import DTYPES
from .errors import ProgramError, TapestryError, UsageError, close_match
from .expr import FUNCTIONS, MONOIDS, Affine, Bound, Call, Cast, Expr, IndexValue, Inside, Read, walk
from .expr.functions import PAIR
from .extents import WANTED, is_extent
from .literals import check_literals, held
from .names import is_name
from .program import Block, Operation, Pin, PinKind, Program, Role, Tensor
from .result_type import Typing, may_store, reduced_dtype, result_dtype
from .space import Access, IndexSet
from .space.polyhedral import within_limit
from .space.proofs import LeavesDomain, NotCovered, Overlap, PartitionError

# A pinned tensor that only coordinate 0 of a mesh axis has.
ON_ONE_RANK = "@0"
_VERIFIED = "verified"  # beside what else a program remembers of itself


def verify(program: Program) -> None:
    """Raise ProgramError unless the program is valid. UsageError for names of things that do not exist.

    Programs never change, so each is looked at once.
    """
    known = vars(program)
    if _VERIFIED not in known:
        _verify(program)
        known[_VERIFIED] = True


def _verify(program: Program) -> None:
    _unique("tensor", [tensor.name for tensor in program.tensors])
    _unique("operation", [op.name for op in program.operations])
    for tensor in program.tensors:
        _tensor(tensor)
    for op in program.operations:
        _form(op, program)
    _producers(program)
    _order(program)
    for op in program.operations:
        with within_limit(f"whether {place(op)} stays inside its tensors and writes each element once", len(op.dims)):
            _meaning(op, program)
    _ends(program)
    for pin in program.pins:
        _pin(pin, program)


def place(op: Operation) -> str:
    """How errors name an operation: "conv2d (net.py:14)"."""
    return f"{op.name} ({op.source})" if op.source else op.name


def _unique(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not is_name(name):
            raise ProgramError(
                f"{name!r} cannot name a {what}", hint="letters, digits and underscores, parts joined by dots"
            )
        if name in seen:
            raise ProgramError(f"two {what}s are called {name}")
        seen.add(name)


def _tensor(tensor: Tensor) -> None:
    where = f"tensor {tensor.name}"
    if tensor.dtype not in DTYPES:
        raise ProgramError(f"unknown dtype {tensor.dtype!r}", where=where, hint=close_match(tensor.dtype, list(DTYPES)))
    if tensor.role not in get_args(Role):
        raise ProgramError(f"unknown role {tensor.role!r}", where=where, hint=f"known: {', '.join(get_args(Role))}")
    wrong = [extent for extent in tensor.shape if not is_extent(extent)]
    if wrong:
        raise ProgramError(f"the extent {wrong[0]!r} is not {WANTED}", where=where)
    if len(tensor.axes) != len(tensor.shape) or len(set(tensor.axes)) != len(tensor.axes):
        sides = {"axes": list(tensor.axes), "shape": list(tensor.shape)}
        raise ProgramError("each axis needs a name of its own", where=where, sides=sides)
    if (tensor.data is not None) != (tensor.role == "const") or (
        tensor.data is not None and len(tensor.data) != tensor.size
    ):
        sides = {"values": "none" if tensor.data is None else len(tensor.data), "elements": tensor.size}
        raise ProgramError("constants, and only they, hold a value for each element", where=where, sides=sides)
    for value in tensor.data or ():
        if not held(value, tensor.dtype):
            raise ProgramError(f"the value {value!r} is not one of {tensor.dtype}", where=where)


def _form(op: Operation, program: Program) -> None:
    """Names of dimensions, tensors, functions and monoids; numbers of indices."""
    names = [dim.name for dim in op.dims]
    if len(set(names)) != len(names) or not all(name.isidentifier() for name in names):
        raise ProgramError(f"its dimensions {names} are not distinct identifiers", where=place(op))
    for dim in op.dims:
        if not is_extent(dim.extent):
            raise ProgramError(f"the extent {dim.extent!r} of {dim.name} is not {WANTED}", where=place(op))
    _known_dims(op, "folds", op.reduce_dims, names)
    if any(op.extents[name] == 0 for name in op.reduce_dims):
        hint = "its value is the monoid's identity: write it as a constant body"
        raise ProgramError("folds over nothing", where=place(op), sides={"folds": " ".join(op.reduce_dims)}, hint=hint)
    whole = isinstance(op.body, Block) and op.monoid is None  # a block kernel may take folded dimensions whole
    known = op.monoid is None or op.monoid in MONOIDS  # a table that makes some when they are asked for
    if not known or not (whole or bool(op.reduce_dims) == (op.monoid is not None)):
        sides = {"folds": " ".join(op.reduce_dims) or "nothing", "monoid": op.monoid}
        raise ProgramError("a fold needs a known monoid, and a monoid a fold", where=place(op), sides=sides)
    _known_dims(op, "writes", [n for i in op.write for n in i.dims], op.parallel_dims)
    _known_dims(op, "is restricted by", [n for b in op.where for n in b.expr.dims], names)
    for read in op.reads:
        _read_form(op, read, program)
    if not isinstance(op.body, Block):
        for node in walk(op.body):
            _node_form(op, node, names)
        _pairs(op, op.body)
    if op.monoid is not None and MONOIDS[op.monoid].ordered and any(op.dim(name).cut for name in op.reduce_dims):
        hint = "mark the dimension as not to be cut"
        raise ProgramError(f"shares of {op.monoid} folded apart lose their order", where=place(op), hint=hint)


def _pairs(op: Operation, body: Expr) -> None:
    """A pair is what a monoid of pairs folds, and nothing else is."""
    wanted = op.monoid is not None and MONOIDS[op.monoid].pairs
    found = [node for node in walk(body) if isinstance(node, Call) and node.function == PAIR]
    if len(found) != wanted or (wanted and found[0] is not body):
        sides = {"pairs": len(found), "monoid": op.monoid}
        hint = "pair(x, y) stands where a monoid of pairs folds it, outermost"
        raise ProgramError(
            "a monoid of pairs needs a pair, and a pair such a monoid", where=place(op), sides=sides, hint=hint
        )


def _known_dims(op: Operation, verb: str, used: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in used:
        if name not in known:
            raise ProgramError(
                f"{verb} {name!r}, which is not one of its dimensions there",
                where=place(op),
                sides={"has": " ".join(known)},
            )


def _read_form(op: Operation, read: Read, program: Program) -> None:
    if read.tensor not in program.by_name:
        hint = close_match(read.tensor, [tensor.name for tensor in program.tensors][:50])
        raise ProgramError(f"reads {read.tensor!r}, which does not exist", where=place(op), hint=hint)
    rank = len(program.tensor(read.tensor).shape)
    if len(read.index) != rank:
        raise ProgramError(f"reads {read}", where=place(op), sides={"indices": len(read.index), "axes": rank})
    used = {name for expr in (*read.index, *(bound.expr for bound in read.guard)) for name in expr.dims}
    if not used <= op.extents.keys():
        _known_dims(op, f"reads {read} with", sorted(used), op.extents)


def _node_form(op: Operation, node: Expr, names: list[str]) -> None:
    if isinstance(node, IndexValue):
        _known_dims(op, "uses", node.index.dims, names)
    elif isinstance(node, Inside):
        _known_dims(op, "uses", [n for b in node.bounds for n in b.expr.dims], names)
    elif isinstance(node, Call):
        function = FUNCTIONS.get(node.function)
        if function is None or function.arity != len(node.args):
            raise ProgramError(
                f"calls {node.function} with {len(node.args)} arguments",
                where=place(op),
                hint="see tapestry.expr.FUNCTIONS",
            )
    elif isinstance(node, Cast) and node.dtype not in DTYPES:
        raise ProgramError(f"casts to the unknown dtype {node.dtype!r}", where=place(op))


def _producers(program: Program) -> None:
    produced: dict[str, Operation] = {}
    for op in program.operations:
        if op.output not in program.by_name:
            raise ProgramError(f"writes {op.output!r}, which does not exist", where=place(op))
        role = program.tensor(op.output).role
        if role != "value":
            raise ProgramError(f"writes the {role} {op.output}", where=place(op), hint="only values are computed")
        if op.output in produced:
            sides = {"first": place(produced[op.output]), "second": place(op)}
            raise ProgramError(f"{op.output} is written by two operations", sides=sides)
        produced[op.output] = op
    for tensor in program.of_role("value"):
        if tensor.name not in produced:
            raise ProgramError(f"no operation writes the value {tensor.name}")


def _order(program: Program) -> None:
    ready = {tensor.name for tensor in program.tensors if tensor.role != "value"}
    for op in program.operations:
        late = [name for name in op.operands if name not in ready]
        if late:
            cycle = program.graph.cycle(op.name)
            if cycle:
                raise ProgramError("operations depend on one another in a circle", sides={"cycle": " -> ".join(cycle)})
            producer = program.producer[late[0]]
            raise ProgramError(
                f"reads {late[0]} before {place(producer)} writes it",
                where=place(op),
                hint="put operations in an order that can run",
            )
        ready.add(op.output)


def _meaning(op: Operation, program: Program) -> None:
    """Coverage, bounds and dtypes of an operation whose form is right."""
    output = program.tensor(op.output)
    if len(op.write) != len(output.shape):
        sides = {"indices": len(op.write), "axes": len(output.shape)}
        raise ProgramError(f"writes {op.output} with another number of indices", where=place(op), sides=sides)
    _coverage(op, output)
    ranges = {dim.name: (0, dim.extent) for dim in op.dims}
    for read in op.reads:
        tensor = program.tensor(read.tensor)
        found = escape(read.index, tensor.shape, ranges, (*op.where, *read.guard))
        if found:
            raise out_of_bounds(place(op), tensor.name, tensor.axes, tensor.shape, read.index, found, ranges)
    _dtype(op, output, program)


def _coverage(op: Operation, output: Tensor) -> None:
    """Each element of the output is written by exactly one point of the parallel dimensions."""
    loose = [] if op.monoid else list(op.where)  # a fold over nothing writes its identity
    single = [i.terms[0][0] for i in op.write if len(i.terms) == 1 and i.terms[0][1] == 1 and not i.const]
    plain = len(single) == len(op.write) == len(set(single)) and all(isinstance(name, str) for name in single)
    spare = [name for name in op.parallel_dims if name not in single and op.extents[name] > 1]
    shapes = [op.extents[name] for name in single if isinstance(name, str)]
    if plain and not loose and not spare and tuple(shapes) == output.shape:
        return
    _coverage_by_sets(op, output, loose)


def _coverage_by_sets(op: Operation, output: Tensor, loose: list[Bound]) -> None:
    parallel = {dim.name: dim.extent for dim in op.dims if dim.name in op.parallel_dims}
    write = Access(tuple(parallel), op.write)
    elements = IndexSet.where({f"e{axis}": extent for axis, extent in enumerate(output.shape)})
    try:
        write.prove_onto(IndexSet.where(parallel, loose), elements)
    except PartitionError as error:
        witness = " ".join(f"{axis}={at}" for axis, at in zip(output.axes, error.point, strict=True)) or "()"
        raise ProgramError(_COVERAGE[type(error)].format(op.output), where=place(op), witness=witness) from None


_COVERAGE: dict[type[PartitionError], str] = {
    LeavesDomain: "writes {} outside its shape",
    NotCovered: "leaves elements of {} unwritten",
    Overlap: "writes elements of {} more than once",
}


class _DTypesOf(Mapping[str, str]):
    """Dtypes of a program's tensors by name."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def __getitem__(self, name: str) -> str:
        return self.program.by_name[name].dtype

    def __iter__(self) -> Iterator[str]:
        return iter(self.program.by_name)

    def __len__(self) -> int:
        return len(self.program.tensors)


def _dtype(op: Operation, output: Tensor, program: Program) -> None:
    if isinstance(op.body, Block):
        check_block(op, op.body, output, place(op))
        return
    if op.monoid is not None and MONOIDS[op.monoid].packed and not MONOIDS[op.monoid].several:
        hint = "a record that is its own result belongs to a block operation"
        raise ProgramError(f"folds numbers with {op.monoid}", where=place(op), hint=hint)
    try:
        typing = Typing(_DTypesOf(program))
        value = typing.of(op.body)[0]
        check_literals(op.body, value if op.monoid else output.dtype, typing)
        value = reduced_dtype(op.monoid, value) if op.monoid else value
    except TapestryError as error:
        raise ProgramError(error.what, where=place(op), sides=error.sides, hint=error.hint) from None
    if not may_store(value, output.dtype):
        sides = {"value": value, op.output: output.dtype}
        raise ProgramError("the value does not fit its tensor", where=place(op), sides=sides, hint="cast it")
    if op.monoid is not None and MONOIDS[op.monoid].several:
        _several(op, output, result_dtype(op.body, _DTypesOf(program)))


def _several(op: Operation, output: Tensor, value: str) -> None:
    """The results of a fold lie along a last dimension of their number, on which nothing else depends."""
    monoid, along = MONOIDS[op.monoid or ""], op.record_dim
    count = len(monoid.components)
    if along is None or op.extents[along] != count or op.dim(along).cut:
        sides = {"writes": ", ".join(map(str, op.write)), "results": count}
        hint = f"let the last index be a dimension of extent {count} that may not be cut: tp.components writes it"
        raise ProgramError(f"{op.monoid} has several results", where=place(op), sides=sides, hint=hint)
    used = [*op.write[:-1], *(bound.expr for bound in op.where), *_indices(op)]
    if any(along in expr.dims for expr in used):
        raise ProgramError(f"what is folded depends on {along}, along which the results lie", where=place(op))
    kept = monoid.dtypes_for(value, output.dtype)
    if set(kept) != {output.dtype}:
        sides = {output.name: output.dtype, "record": ", ".join(kept)}
        hint = f"declare the result as {max(kept, key=lambda one: DTYPES[one].rank)}"
        raise ProgramError("the record has components of another dtype", where=place(op), sides=sides, hint=hint)


def _indices(op: Operation) -> Iterator[Affine]:
    """The index expressions of a body."""
    for node in walk(op.body) if not isinstance(op.body, Block) else ():
        if isinstance(node, IndexValue):
            yield node.index
        elif isinstance(node, Inside):
            yield from (bound.expr for bound in node.bounds)
        elif isinstance(node, Read):
            yield from (*node.index, *(bound.expr for bound in node.guard))


def _ends(program: Program) -> None:
    for name in program.outputs:
        if name not in program.by_name or program.tensor(name).role != "value":
            raise ProgramError(f"the output {name} is not a value of the program")
    _unique("output", program.outputs)
    _unique("updated state", [old for old, _ in program.states])
    for old, new in program.states:
        if old not in program.by_name or program.tensor(old).role != "state":
            raise ProgramError(f"{old} is replaced but is not a state")
        if new not in program.by_name or program.tensor(new).role != "value":
            raise ProgramError(f"the state {old} is replaced by {new}, which is not a value")
        before, after = program.tensor(old), program.tensor(new)
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            sides = {old: f"{before.dtype}{list(before.shape)}", new: f"{after.dtype}{list(after.shape)}"}
            raise ProgramError(f"the state {old} changes its type", sides=sides)


def _pin(pin: Pin, program: Program) -> None:
    where = f"pin of {pin.target} {pin.pattern!r}"
    if pin.target not in ("op", "tensor") or pin.kind not in get_args(PinKind) or not pin.pattern:
        raise UsageError(
            "a pin names ops or tensors, cuts, and a kind of cut",
            where=where,
            sides={"pin": pin, "kinds": ", ".join(get_args(PinKind))},
        )
    if pin.forbid and (not pin.cuts or pin.kind != "block"):
        raise UsageError(
            "what is forbidden is cuts, of any kind", where=where, sides={"cuts": pin.cuts, "kind": pin.kind}
        )
    if len({mesh for mesh, _ in pin.cuts}) != len(pin.cuts):
        raise UsageError("a mesh axis is named twice", where=where, sides={"cuts": pin.cuts})
    items = program.operations if pin.target == "op" else program.tensors
    matched = [item for item in items if fnmatchcase(item.name, pin.pattern)]
    if not matched:
        raise UsageError(
            f"nothing is called {pin.pattern!r}",
            where=where,
            hint=close_match(pin.pattern, [i.name for i in items][:50]),
        )
    missing = [_missing(item, pin) for item in matched]
    if any(missing) and not (pin.forbid and not all(missing)):  # what has no such axis is not cut along it
        item, (mesh, cut) = next((item, found) for item, found in zip(matched, missing, strict=True) if found)
        sides = {"asked": f"{mesh} = {cut!r}", "has": ", ".join(_cuttable(item))}
        what = "dimension" if pin.target == "op" else "axis"
        raise UsageError(f"{item.name} has no {what} {cut!r}", where=where, sides=sides)


def _cuttable(item: Operation | Tensor) -> list[str]:
    """What a pin may name of it."""
    if isinstance(item, Operation):
        return [dim.name for dim in item.dims]
    return [*item.axes, *map(str, range(len(item.axes))), ON_ONE_RANK]


def _missing(item: Operation | Tensor, pin: Pin) -> tuple[str, str] | None:
    """The first cut of a pin that names what is not there."""
    has = _cuttable(item)
    return next(((mesh, cut) for mesh, cut in pin.cuts if cut is not None and cut not in has), None)


__all__ = ["place", "verify"]
