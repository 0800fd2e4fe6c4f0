"""Two products of the same rows and a map of both, by one kernel on Hopper's tensor cores: neither product is written.

out[m, n] = f(sum[k] x[m, k] gate[k, n], sum[k] x[m, k] up[k, n])
"""

from __future__ import annotations

import hashlib
from typing import Any

from ...dtypes import name_of
from ...expr import Read
from ...kernels.elementwise.emit import Emitter
from ...kernels.elementwise.source import indented
from ...kernels.runtime.tensor_map import TensorMap
from ...program import Block
from ..device import Evaluation
from .machine import Matrices, Paired, Product, Unit

CAPABILITY = (9, 0)
# Rows and columns of the two blocks of a cluster, what they fold at a time, and how they are launched.
ROWS, COLUMNS, FOLDED, LINE = 256, 128, 64, 64
THREADS, CLUSTER = 384, 2
STAGES = 4
SHARED = STAGES * (ROWS // CLUSTER + 2 * COLUMNS) * FOLDED * 2 + ROWS // CLUSTER * COLUMNS * 2 + 16 * STAGES + 1024
# Multiplications from which on there are waves enough; bytes that the copy engine's addresses are multiples of.
WORTH, ALIGNED = 1 << 35, 16
DTYPE, BYTES = "bf16", 2


def paired_of(first: Product, second: Product, out: Matrices, last: Evaluation) -> Paired | None:
    """Two products whose results a map reads, as one; None where the kernel does not take them as they lie."""
    work = first.rows * first.columns * first.folded
    right = first.right
    by_columns = right.column == 1 and second.right.column == 1
    by_rows = right.row == 1 and second.right.row == 1
    if first.batches != 1 or first.added or second.added or work < WORTH or not (by_columns or by_rows):
        return None
    if first.left.column != 1 or out.column != 1 or not all(map(_taken, (first.left, right, second.right, out))):
        return None
    return Paired(
        first.left, right, second.right, out, first.rows, first.columns, first.folded, _function(last, first, second)
    )  # fmt: skip


def _taken(x: Matrices) -> bool:
    """Whether the copy engine takes a matrix: bf16, lines and the first element at multiples of 16 bytes."""
    lines = max(x.row, x.column) * BYTES
    start = x.array.pointer + x.offset * BYTES
    return name_of(x.array.dtype) == DTYPE and not lines % ALIGNED and not start % ALIGNED


def _function(last: Evaluation, first: Product, second: Product) -> tuple[str, ...]:
    """The statements of the map, of the sums a and b."""
    op = last.op
    assert not isinstance(op.body, Block)
    names = {
        tensor: "a" if last.reads[tensor].array == first.out.array else "b" for tensor in op.operands
    }  # fmt: skip
    assert {last.reads[t].array for t in op.operands} == {first.out.array, second.out.array}

    def read(node: Read) -> tuple[str, bool]:
        return names[node.tensor], False

    def nothing(_: object) -> tuple[str, bool]:
        raise AssertionError("the map has no index")

    emitter = Emitter(read, nothing, nothing, dict.fromkeys(op.operands, DTYPE), quick=True)
    value = emitter.value(op.body)
    return (*emitter.outer, *emitter.inner, f"return {emitter.as_type(value, 'float')};")


def unit_of(x: Paired, multiprocessors: int) -> Unit:
    """The kernel, of as many blocks as there are multiprocessors, or as the work is for."""
    across = "true" if x.first.column == 1 else "false"
    clusters = min(multiprocessors // CLUSTER, -(-x.rows // ROWS) * -(-x.columns // COLUMNS))
    maps = ", ".join(f"const __grid_constant__ TensorMap {name}" for name in ("x", "first", "second", "out"))
    source = (
        "#include <tapestry/functions.cuh>\n#include <tapestry/paired.cuh>\n\nnamespace tapestry {\n"
        f"struct Pair {{\n    static TAPESTRY_FN float of(float a, float b) {{\n{indented(x.function, 2)}    }}\n}};\n"
        f'extern "C" __global__ void __launch_bounds__({THREADS}, 1) __cluster_dims__({CLUSTER}, 1, 1)\n'
        f"NAME({maps}, const int tall, const int wide, const int folded) {{\n"
        f"    paired::multiply<{across}, Pair>(x, first, second, out, tall, wide, folded);\n}}\n\n"
        "}  // namespace tapestry\n"
    )
    entry = f"paired_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    blocks = CLUSTER * clusters
    text = source.replace("NAME(", f"{entry}(", 1)
    return Unit(text, entry, blocks, THREADS, exact=False, shared=SHARED, cluster=CLUSTER, own=True)


def arguments(x: Paired) -> list[Any]:
    """Tensor maps of the operands and the result, and how many tiles there are."""
    turned = x.first.column != 1
    extents, box = ((x.folded, x.columns), (LINE, COLUMNS)) if turned else ((x.columns, x.folded), (LINE, FOLDED))
    maps = [_map(x.left, (x.folded, x.rows), (LINE, ROWS // CLUSTER))]
    maps += [_map(weights, extents, box) for weights in (x.first, x.second)]
    maps.append(_map(x.out, (x.columns, x.rows), (LINE, 64)))
    return [*maps, -(-x.rows // ROWS), -(-x.columns // COLUMNS), x.folded]


def _map(x: Matrices, extents: tuple[int, int], box: tuple[int, int]) -> Any:
    line = max(x.row, x.column) * BYTES
    return TensorMap.tiled(x.array.pointer + x.offset * BYTES, DTYPE, extents, (line,), box)
