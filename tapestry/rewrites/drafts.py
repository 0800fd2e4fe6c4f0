"""Operations that a rule adds beside those that are there, with names that nothing else has."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace

from ..expr import Affine, Bound, Expr, Read
from ..program import Block, Dim, Operation, Program, Tensor
from .inlining import Exact


def fresh(like: str, taken: Container[str]) -> str:
    """The name, numbered if it is taken."""
    name, k = like, 0
    while name in taken:
        k += 1
        name = f"{like}_{k}"
    return name


def fresh_dims(likes: Iterable[str], taken: Iterable[str]) -> tuple[str, ...]:
    """Names of dimensions that differ from those taken and from one another."""
    known = set(taken)
    found = []
    for like in likes:
        found.append(fresh(like, known))
        known.add(found[-1])
    return tuple(found)


def drafted(
    program: Program,
    near: Operation,
    what: str,
    dims: Sequence[Dim],
    body: Expr,
    dtype: str,
    *,
    reduce_dims: Sequence[str] = (),
    monoid: str | None = None,
    where: tuple[Bound, ...] = (),
) -> tuple[Operation, Tensor]:
    """An operation ``near.what`` and the tensor that it writes, an axis for each dimension that is not folded."""
    name = fresh(f"{near.name}.{what}", program.op_by_name.keys() | program.by_name.keys())
    kept = [dim for dim in dims if dim.name not in reduce_dims]
    tensor = Tensor(name, dtype, tuple(dim.extent for dim in kept), axes=tuple(dim.name for dim in kept))
    write = tuple(Affine.dim(dim.name) for dim in kept)
    op = Operation(
        name, tuple(dims), name, write, body, tuple(reduce_dims), monoid, where, near.group, near.source
    )  # fmt: skip
    return op, tensor


def read_of(tensor: Tensor) -> Read:
    """The read of a drafted tensor at the dimensions that its axes are named after."""
    return Read(tensor.name, tuple(map(Affine.dim, tensor.axes)))


def simple(program: Program, op: Operation, *tensors: Tensor) -> Operation:
    """The operation with simple index expressions; ``tensors``: those that it reads and the program does not have."""
    new = {tensor.name: tensor for tensor in tensors}
    dtypes = {name: (new.get(name) or program.tensor(name)).dtype for name in op.operands}
    exact = Exact({dim.name: (0, dim.extent) for dim in op.dims}, dtypes)
    where = exact.bounds(op.where)
    plain = replace(op, write=tuple(map(exact.index, op.write)), where=op.where if where is None else where)
    return plain if isinstance(op.body, Block) else replace(plain, body=exact.expr(op.body))
