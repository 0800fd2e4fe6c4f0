"""Programs as text: what ``print(program)`` shows."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from math import copysign, inf

from .notation import format_operation
from .program import Operation, Pin, Program, Tensor
from .rolling import rolled

LONGEST = 9  # values of a constant that are written out; longer ones are named by a hash
_BARE = re.compile(r"[A-Za-z_]\w*(\.\w+)*|\d+", re.ASCII)


def format_program(program: Program) -> str:
    """The whole program: bindings, declared tensors, each operation with its index space and algebra, outputs, states,
    pins. Layers and steps that are repeated stand once, with k for the copy. `tapestry.reading` reads it back."""
    bindings = ", ".join(f"{name}={value!r}" for name, value in program.bindings)
    source = program.meta.get("source", "")
    lines = [f"program {bare(program.name)}({bindings})" + (f"   # {source}" if source else "")]
    lines += [f"  # {line}".rstrip() for line in program.meta.get("doc", "").splitlines()]
    lines += _declarations(program)
    lines += rolled([format_op(op, program.tensor(op.output)) for op in program.operations])
    lines += [f"  output {name}: {format_type(program.tensor(name))}" for name in program.outputs]
    lines += [f"  update {old} = {new}" for old, new in program.states]
    lines += [f"  {_pin(pin)}" for pin in program.pins]
    return "\n".join(lines)


def _pin(pin: Pin) -> str:
    cuts = ", ".join(f"{mesh}={axis if axis is not None else 'replicated'}" for mesh, axis in pin.cuts)
    return f"{'forbid' if pin.forbid else 'pin'} {pin.target} {pin.pattern}: {cuts}" + (
        "" if pin.kind == "block" else f" ({pin.kind})"
    )


def _declarations(program: Program) -> list[str]:
    found = []
    for tensor in program.of_role("input", "param", "state", "const"):
        values = f" = {_values(tensor)}" if tensor.data is not None else ""
        found.append(f"  {tensor.role} {tensor.name}: {format_type(tensor)}{values}")
    return rolled([(line,) for line in found])


def _values(tensor: Tensor) -> str:
    data = tensor.data or ()
    if len(data) <= LONGEST:
        return "[" + ", ".join(map(repr, data)) + "]"
    return "[" + ", ".join(map(repr, data[: LONGEST - 1])) + f", ... {len(data)} values, sha256 {digest(data)}]"


def digest(data: Sequence[float | int | bool]) -> str:
    """16 hexadecimal digits of the SHA-256 of a constant's values, which are those of one dtype.

    >>> digest([1.0, 2.0]) == digest([1, 2]), digest([1.0, 2.0]) == digest([2.0, 1.0])
    (True, False)
    """
    written = ",".join(str(v) if v != v or v in (inf, -inf) or v != int(v) else _whole(v) for v in data)
    return hashlib.sha256(written.encode()).hexdigest()[:16]


def _whole(value: float | int | bool) -> str:
    """A whole number, the same for 1, 1.0 and True; the zeros of floats have a sign."""
    return "-0" if value == 0 and copysign(1, value) < 0 else str(int(value))


def bare(text: str) -> str:
    """A name as it stands, or in quotes where a reader of names would not take it for one."""
    return text if _BARE.fullmatch(text) else repr(text)


def format_type(tensor: Tensor) -> str:
    """``f32[n=8, k=64]``."""
    axes = ", ".join(f"{bare(axis)}={extent}" for axis, extent in zip(tensor.axes, tensor.shape, strict=True))
    return f"{tensor.dtype}[{axes}]"


def format_op(op: Operation, output: Tensor) -> list[str]:
    """Two lines: name, index space (folded dimensions behind a bar), type of what it writes and source; then the
    algebra. The type is the dtype alone where the axes are the dimensions that index what is written."""
    written = written_axes(op)
    axes = tuple((axis, extent) for axis, extent in zip(output.axes, output.shape, strict=True))
    kind = output.dtype if axes == written else format_type(output)
    origin = ", ".join([*([op.source] if op.source else []), *([f"in {op.group}"] if op.group else [])])
    comment = f"   # {origin}" if origin else ""
    return [f"  {op.name} ({_space(op)}) -> {kind}{comment}", f"    {format_operation(op)}"]


def _space(op: Operation) -> str:
    """The dimensions in order; where folded ones do not all come last, each of them has a bar of its own."""
    texts = [f"{dim.name}={dim.extent}{'' if dim.cut else '!'}" for dim in op.dims]
    folded = [dim.name in op.reduce_dims for dim in op.dims]
    if folded != sorted(folded):
        return " ".join(f"|{text}" if fold else text for text, fold in zip(texts, folded, strict=True))
    split = folded.count(False)
    return " ".join([*texts[:split], *(["|"] if any(folded) else []), *texts[split:]])


def written_axes(op: Operation) -> tuple[tuple[str, int], ...] | None:
    """Name and extent of each dimension that is itself an index of the element written; None where one is not."""
    names = [str(index) for index in op.write]
    return tuple((name, op.extents[name]) for name in names) if all(name in op.extents for name in names) else None
