"""Programs as text: what ``print(program)`` shows."""

from __future__ import annotations

from .notation import format_operation
from .program import Operation, Program, Tensor
from .rolling import rolled


def format_program(program: Program) -> str:
    """The whole program: bindings, declared tensors, each operation with its index space and algebra, outputs, states,
    pins. Layers and steps that are repeated stand once, with k for the copy."""
    bindings = ", ".join(f"{name}={value!r}" for name, value in program.bindings)
    lines = [f"program {program.name}({bindings})"]
    lines += [f"  {line}".rstrip() for line in program.meta.get("doc", "").splitlines()]
    lines += _declarations(program)
    lines += rolled([format_op(op, program.tensor(op.output)) for op in program.operations])
    lines += [f"  output {name}: {format_type(program.tensor(name))}" for name in program.outputs]
    lines += [f"  update {old} = {new}" for old, new in program.states]
    for pin in program.pins:
        cuts = ", ".join(f"{mesh}={axis if axis is not None else 'replicated'}" for mesh, axis in pin.cuts)
        lines.append(f"  pin {pin.target} {pin.pattern}: {cuts}" + ("" if pin.kind == "block" else f" ({pin.kind})"))
    return "\n".join(lines)


def _declarations(program: Program) -> list[str]:
    found = []
    for tensor in program.of_role("input", "param", "state", "const"):
        values = f" = {_short(tensor)}" if tensor.data is not None else ""
        found.append(f"  {tensor.role} {tensor.name}: {format_type(tensor)}{values}")
    return rolled([(line,) for line in found])


def _short(tensor: Tensor) -> str:
    values = [repr(v) for v in tensor.data or ()]
    return "[" + ", ".join(values if len(values) <= 9 else [*values[:8], f"... {len(values)} values"]) + "]"


def format_type(tensor: Tensor) -> str:
    """``f32[n=8, k=64]``."""
    axes = ", ".join(f"{axis}={extent}" for axis, extent in zip(tensor.axes, tensor.shape, strict=True))
    return f"{tensor.dtype}[{axes}]"


def format_op(op: Operation, output: Tensor) -> list[str]:
    """Two lines: name, index space (folded dimensions behind a bar), dtype and source; then the algebra."""
    outer = " ".join(f"{d.name}={d.extent}{'' if d.cut else '!'}" for d in op.dims if d.name not in op.reduce_dims)
    inner = " ".join(
        f"{op.dim(name).name}={op.dim(name).extent}{'' if op.dim(name).cut else '!'}" for name in op.reduce_dims
    )
    space = f"{outer} | {inner}" if inner else outer
    source = f"   # {op.source}" if op.source else ""
    return [f"  {op.name} ({space}) -> {output.dtype}{source}", f"    {format_operation(op)}"]
