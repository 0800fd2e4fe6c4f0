"""Elementwise, broadcast and normalisation kernels against torch, each operand larger than the L2 or rotated past it.

Used by `benchmarks/kernels.py`; `python benchmarks/row_contenders.py` prints its own table.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from math import prod
from typing import Any

import torch
import torch.nn.functional as nn
from gpu_timing import Pool, copy_bytes_per_s, median_us

import tapestry as tp
from tapestry.dsl.declare import input as declare
from tapestry.dsl.define import axes_of, define
from tapestry.dsl.program import program
from tapestry.kernels.elementwise.kernel import compile_map
from tapestry.kernels.elementwise.types import Layout
from tapestry.kernels.normalization.kernel import compile_rows
from tapestry.program import Program

TORCH = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
ROUNDOFF = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-24}
SHAPES = (
    (1048576, 64), (524288, 256), (131072, 1024), (32768, 4096), (49152, 2560), (16384, 8192), (8192, 16384),
    (4096, 32768),
)  # fmt: skip
LONG_KIB = (256, 512, 1024, 4096)  # of a row
LONG_ROWS = (8, 128, 4096)
MOST_LONG_BYTES = 1 << 30  # of an operand: fewer rows of the longest
Specification = Mapping[str, tuple[str, tuple[int, ...]]]
Result = dict[str, float]


def program_over(function: Callable[..., Any], inputs: Specification) -> Program:
    """The program that applies a function of the language to inputs (dtype, shape) by name."""

    def applied() -> Any:
        return function(*(declare(name, dtype, shape) for name, (dtype, shape) in inputs.items()))

    return program(applied).bind()


def kernel_of(built: Program) -> Any:
    """One kernel for the whole program: a map, or a row program."""
    layouts = {tensor.name: Layout.contiguous(tensor.dtype, tensor.shape) for tensor in built.tensors}
    if len(built.operations) == 1:
        return compile_map(built.operations[0], layouts)
    return compile_rows(built.operations, layouts, outputs=built.outputs)


def fused(body: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    """The operation out[i] = body(element of each operand); operands of lower rank repeat, as in NumPy."""

    def applied(x: Any, *others: Any) -> Any:
        every = axes_of(x)
        parts = [y[every[len(every) - y.ndim :]] for y in others]
        return define("fused", every, body(x[every], *parts), dtype=dtype)

    return applied


def _transposed(x: Any) -> Any:
    i, j = axes_of(x)
    return define("copy", (j, i), x[i, j])


def _maps(dtype: str) -> Iterator[tuple[str, Callable[..., Any], Specification, Callable[..., torch.Tensor]]]:
    """Name, function, operands, and what torch does (its own kernels, compiled nothing)."""
    n, d = (16384, 8192) if dtype != "f32" else (16384, 4096)
    whole, row = (dtype, (n, d)), (dtype, (d,))
    yield "silu_mul", fused(lambda a, b: tp.silu(a) * b, dtype), {"a": whole, "b": whole}, lambda a, b: nn.silu(a) * b
    yield "add", fused(lambda a, b: a + b, dtype), {"a": whole, "b": whole}, torch.add
    yield "gelu", fused(tp.gelu, dtype), {"a": whole}, nn.gelu
    yield "bias", fused(lambda a, b: a + b, dtype), {"a": whole, "b": row}, torch.add
    odd = ((dtype, (n, d - 95)), (dtype, (d - 95,)))
    yield "bias_odd", fused(lambda a, b: a + b, dtype), {"a": odd[0], "b": odd[1]}, torch.add
    residual = fused(lambda a, r, s: a * s + r, dtype)
    yield "scale_residual", residual, {"a": whole, "r": whole, "s": row}, lambda a, r, s: torch.addcmul(r, a, s)
    yield "copy", fused(lambda a: a * 1.0, dtype), {"a": whole}, torch.clone
    yield "transpose", _transposed, {"a": (dtype, (n, d))}, lambda a: a.t().contiguous()
    other = "f16" if dtype == "f32" else "f32"
    yield f"cast_{other}", lambda a: tp.cast(a, other), {"a": whole}, lambda a: a.to(TORCH[other])


def _rows(dtype: str) -> Iterator[tuple[str, Callable[..., Any], Specification, Callable[..., torch.Tensor]]]:
    size = TORCH[dtype].itemsize
    long = {(min(rows, MOST_LONG_BYTES // (kib << 10)), (kib << 10) // size) for kib in LONG_KIB for rows in LONG_ROWS}
    for rows, width in (*SHAPES, *sorted(long)):
        x, w = (dtype, (rows, width)), (dtype, (width,))
        name = f".{rows}x{width}"
        yield f"softmax{name}", tp.softmax, {"x": x}, lambda x: torch.softmax(x, -1)
        yield (
            f"layer_norm{name}", tp.layer_norm, {"x": x, "w": w, "b": w},
            lambda x, w, b: nn.layer_norm(x, w.shape, w, b, 1e-5),
        )  # fmt: skip
        yield f"rms_norm{name}", tp.rms_norm, {"x": x, "w": w}, lambda x, w: nn.rms_norm(x, w.shape, w, 1e-6)

    def added(x: Any, r: Any, w: Any) -> Any:
        h = x + r
        return {"h": h, "y": tp.rms_norm(h, w)}

    whole = (dtype, (32768, 4096))
    yield (
        "residual_rms_norm.32768x4096", added, {"x": whole, "r": whole, "w": (dtype, (4096,))},
        lambda x, r, w: nn.rms_norm(x + r, w.shape, w, 1e-6),
    )  # fmt: skip


def cases() -> Iterator[tuple[str, Callable[[], Result]]]:
    """Every case by name, and a function that runs it: bytes, worst error over the allowed, microseconds."""
    for dtype in TORCH:
        for name, function, inputs, reference in (*_maps(dtype), *_rows(dtype)):
            yield f"rows.{name}.{dtype}", _case(function, inputs, reference)


def _case(
    function: Callable[..., Any], inputs: Specification, reference: Callable[..., torch.Tensor]
) -> Callable[[], Result]:
    def run() -> Result:
        kernel = kernel_of(program_over(function, inputs))
        return measured(kernel, operands(inputs), reference)

    return run


def operands(inputs: Specification) -> list[list[torch.Tensor]]:
    """Rotations of every operand."""
    found = []
    for k, (dtype, shape) in enumerate(inputs.values()):
        if len(shape) == 1:
            found.append([Pool(TORCH[dtype], shape[0], k).memory])
        else:
            pool = Pool(TORCH[dtype], max(2 * prod(shape) + 1024, int(4e8) // TORCH[dtype].itemsize), k)
            found.append(pool.rotation(shape))
    return found


def measured(kernel: Any, given: list[list[torch.Tensor]], reference: Callable[..., torch.Tensor]) -> Result:
    """Correctness on the first operands (the outputs held NaN before), then both times."""
    first = [rotation[0] for rotation in given]
    many = hasattr(kernel, "program")
    layouts = [output.layout for output in kernel.program.outputs] if many else [kernel.loop.output]
    outputs = [
        tuple(torch.full(layout.shape, float("nan"), dtype=TORCH[layout.dtype], device="cuda") for layout in layouts)
        for _ in range(2)
    ]
    out = [o if len(o) > 1 else o[0] for o in outputs]
    kernel(*first, out=out[0])
    want = reference(*(x.float() for x in first))
    result = outputs[0][-1].float()
    allowed = 8 * ROUNDOFF[layouts[-1].dtype] * want.abs().max().item() + 1e-5
    error = ((result - want).abs().max() / allowed).item()

    def pick(i: int) -> list[torch.Tensor]:
        return [rotation[i % len(rotation)] for rotation in given]

    return {
        "bytes": kernel.bytes_moved,
        "error": error if error == error else float("inf"),
        "ours_us": median_us(lambda i: kernel(*pick(i), out=out[i % 2])),
        "torch_us": median_us(lambda i: reference(*pick(i))),
    }


def main() -> None:
    """Print each case's share of the copy ceiling, ours and torch's; of those alone whose name matches an argument."""
    copy = copy_bytes_per_s()
    print(f"copy {copy / 1e12:.3f} TB/s")
    for name, run in cases():
        if not any(fnmatch(name, pattern) for pattern in sys.argv[1:] or ["*"]):
            continue
        found = run()
        ours, theirs = (found["bytes"] / (found[key] * 1e-6) / copy for key in ("ours_us", "torch_us"))
        text = f"{name:44} {found['ours_us']:8.1f} us  {ours:5.3f}  torch {theirs:5.3f}  error {found['error']:.3f}"
        print(text, flush=True)


if __name__ == "__main__":
    main()
