"""Operations taken apart: a part of a body as an operation of its own, and a result computed again for some readers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import tapestry as tp

from ..dsl.define import define
from ..dsl.index import indices
from ..dtypes import DTYPES
from ..expr import Affine, Call, Expr, Read, depends_on, walk
from ..expr.functions import PAIR
from ..expr.scalar import fold, with_children
from ..program import Block, Dim, Operation, Program, Tensor
from ..result_type import Typing
from .bodies import reading
from .drafts import drafted, fresh, fresh_dims, read_of
from .forms import known_operation
from .inlining import dtypes_of
from .rule import Change, rule


def _fused(*, n: int = 3, m: int = 4, dtype: str = "f32") -> tp.Tensor:
    x, b = tp.input("x", dtype, (n, m), axes=("n", "m")), tp.input("b", dtype, (m,), axes=("m",))
    i, j = indices("n m")
    return define("y", [i, j], tp.abs(x[i, j] * (b[j] + 1))).named("y")


def _shared(*, n: int = 4, dtype: str = "f32") -> dict[str, tp.Tensor]:
    x = tp.input("x", dtype, (n,), axes=("n",))
    total = tp.sum(x, dtype=dtype).named("total")
    return {"y": x + total, "z": x * total}


def _early_and_late(*, n: int = 4, dtype: str = "f32") -> dict[str, tp.Tensor]:
    x = tp.input("x", dtype, (n,), axes=("n",))
    wide = tp.abs(x).named("wide")
    near = (wide + 1).named("near")
    return {"far": (wide * near).named("far"), "end": (wide - near).named("end")}


@rule(example=_fused, once=True)
def unfuse(program: Program, op: Operation) -> Iterator[Change]:
    """Compute a part of a body by itself, over the dimensions that it depends on.

    before:
        y[n, m] = abs(x[n, m] * (b[m] + 1))
    after:
        y.inner[n, m] = x[n, m] * (b[m] + 1)
        y[n, m] = abs(y.inner[n, m])
    legal: it is kept as wide as it was computed
    """
    if isinstance(op.body, Block) or op.where or op.scan is not None or op.selections:
        return
    typing = Typing(dtypes_of(program, op))
    for part in _parts(op):
        dims = [dim for dim in op.dims if dim.name in depends_on(part)]
        dtype = typing.of(part)[0]
        inner, tensor = drafted(program, op, "inner", dims, part, DTYPES[dtype].compute)
        outer = replace(op, body=_instead(op.body, part, read_of(tensor)))
        yield Change((op.name,), (inner, outer), (tensor,))


def _parts(op: Operation) -> Iterator[Expr]:
    """Each part of a body that computes something of what is read; all of it too where it is folded."""
    assert not isinstance(op.body, Block)
    seen: set[Expr] = set()
    for node in walk(op.body):
        whole = node is op.body and op.monoid is None
        if isinstance(node, Call) and node.function != PAIR and not whole and node not in seen:
            seen.add(node)
            if any(isinstance(leaf, Read) for leaf in walk(node)):
                yield node


def _instead(body: Expr, part: Expr, read: Read) -> Expr:
    """The body with a read wherever the part stands."""
    return fold(body, lambda node, args: read if node == part else with_children(node, args))


@rule(example=_shared)
def duplicate(program: Program, op: Operation) -> Iterator[Change]:
    """Compute a result again for one of the operations that read it, which then waits for no other.

    before:
        z[n] = x[n] * total[]
    after:
        total_1[] = sum[n] x[n]
        z[n] = x[n] * total_1[]
    legal: always
    """
    readers = program.consumers[op.output]
    for reader in readers[1:]:
        if known_operation(reader):
            tensor = replace(program.tensor(op.output), name=fresh(op.output, program.by_name))
            again = replace(op, name=fresh(op.name, program.op_by_name), output=tensor.name)
            other = replace(reader, body=reading(reader.body, {op.output: tensor.name}))
            yield Change((reader.name,), (again, other), (tensor,), made_of=(op.name, reader.name))


@rule(example=_early_and_late)
def compute_again(program: Program, op: Operation) -> Iterator[Change]:
    """Compute a result again for all that read it from one operation on, so that it need not be kept until then.

    before:
        far[n] = wide[n] * near[n]
        end[n] = wide[n] - near[n]
    after:
        wide.again[n] = abs(x[n])
        far[n] = wide.again[n] * near[n]
        end[n] = wide.again[n] - near[n]
    legal: always
    """
    readers = program.consumers[op.output]
    for k in range(1, len(readers)):
        if all(map(known_operation, readers[k:])):
            tensor = replace(program.tensor(op.output), name=fresh(f"{op.output}.again", program.by_name))
            again = replace(op, name=fresh(f"{op.name}.again", program.op_by_name), output=tensor.name)
            first, *others = (replace(r, body=reading(r.body, {op.output: tensor.name})) for r in readers[k:])
            yield Change((first.name,), (again, first), (tensor,), made_of=(op.name, first.name), changed=tuple(others))


def _read_twice(*, n: int = 4, dtype: str = "f32") -> dict[str, tp.Tensor]:
    x = tp.input("x", dtype, (n,), axes=("n",))
    w = tp.param("w", dtype, (n,), axes=("n",))
    near = (x + w).named("near")
    return {"far": (w * near).named("far")}


@rule(example=_read_twice)
def copy_again(program: Program, op: Operation) -> Iterator[Change]:
    """Read what is there before the run from a copy, which may be fetched from other devices when it is needed.

    before:
        far[n] = w[n] * near[n]
    after:
        w.again[n] = w[n]
        far[n] = w.again[n] * near[n]
    legal: always
    """
    for name in op.operands:
        readers = [one.name for one in program.consumers[name]]
        late = program.consumers[name][readers.index(op.name) :]
        if op.name == readers[0] or program.tensor(name).role not in ("param", "state"):
            continue
        if all(map(known_operation, late)):
            whole = program.tensor(name)
            dims = [Dim(axis, extent) for axis, extent in zip(_axes(whole), whole.shape, strict=True)]
            at = tuple(Affine.dim(dim.name) for dim in dims)
            again = fresh(f"{name}.again", program.op_by_name.keys() | program.by_name.keys())
            copy = Operation(again, tuple(dims), again, at, Read(name, at), group=op.group, source=op.source)
            tensor = replace(whole, name=again, role="value")
            first, *others = (replace(one, body=reading(one.body, {name: again})) for one in late)
            yield Change((op.name,), (copy, first), (tensor,), made_of=(op.name,), changed=tuple(others))


def _axes(tensor: Tensor) -> tuple[str, ...]:
    """Names of dimensions for the axes of a tensor."""
    return fresh_dims([axis if axis.isidentifier() else f"d{axis}" for axis in tensor.axes], ())
