"""Products of a few rows by kernels of their own, which run on the host."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, bf16
from tapestry.dtypes import numpy_dtype
from tapestry.inputs import random_inputs
from tapestry.planner import plan
from tapestry.reference import evaluate
from tapestry.testing import assert_close
from tapestry.workers.cupy.arrays import DeviceArray
from tapestry.workers.cupy.machine import Matrices, Product
from tapestry.workers.cupy.thin import thin_product

from ...kernels.elementwise.host import needs_compiler
from .host_arrays import host_bytes
from .host_machine import HostMachine

# batches, rows, columns, folded; whether left and right are turned; the types of operands and result; something added
CASES = {
    "a token": (1, 1, 200, 96, False, False, "bf16", "bf16", False),
    "a token of a large model": (1, 1, 520, 1030, False, False, "bf16", "bf16", False),
    "a token, to what is there": (1, 1, 64, 130, False, False, "bf16", "bf16", True),
    "wide lines": (1, 3, 1032, 40, False, False, "f16", "f32", False),
    "few columns": (1, 90, 8, 64, False, True, "f32", "f32", False),
    "scores of heads": (3, 4, 70, 128, False, True, "bf16", "bf16", False),
    "values of heads": (3, 4, 32, 300, False, False, "bf16", "f32", False),
    "columns that lie together on the left": (2, 40, 5, 24, True, False, "f32", "f32", True),
    "many lines": (1, 2050, 5, 264, False, False, "f32", "f32", False),
    "many lines of columns": (1, 8, 2080, 1032, False, True, "f32", "bf16", True),
    "short lines": (2, 2, 50, 8, False, True, "bf16", "bf16", False),
}  # fmt: skip


def array(machine: HostMachine, values: np.ndarray, dtype: str) -> DeviceArray:
    kind = numpy_dtype(dtype)
    found = DeviceArray(machine.memory("", values.size * kind.itemsize), 0, values.shape, kind)
    host_bytes(found)[...] = values.astype(kind).reshape(-1).view(np.uint8)
    return found


def laid(machine: HostMachine, values: np.ndarray, dtype: str, *, turned: bool) -> tuple[Matrices, np.ndarray]:
    """Matrices [batch, rows, columns] as rows or as columns, and their values as they are stored."""
    _, rows, columns = values.shape
    stored = values.swapaxes(1, 2) if turned else values
    held = array(machine, np.ascontiguousarray(stored), dtype)
    steps = (1, rows) if turned else (columns, 1)
    return Matrices(held, 0, rows * columns, *steps), values.astype(numpy_dtype(dtype)).astype(np.float64)


@needs_compiler
@pytest.mark.filterwarnings("ignore")
def test_thin_products_are_numpys() -> None:
    machine, rng = HostMachine(), np.random.default_rng(0)
    runs, wanted, outs = [], [], []
    for name, (b, m, n, k, turned_left, turned_right, dtype, stored, adds) in CASES.items():
        left, x = laid(machine, rng.normal(size=(b, m, k)), dtype, turned=turned_left)
        right, w = laid(machine, rng.normal(size=(b, k, n)), dtype, turned=turned_right)
        out, before = laid(machine, rng.normal(size=(b, m, n)), stored, turned=False)
        made = thin_product(Product(left, right, out, b, m, n, k, out if adds else None), machine, steady(right, k))
        assert made is not None, name
        runs.append(machine.launch(made.unit, made.arrays))
        wanted.append(x @ w + (before if adds else 0))
        outs.append(out.array)
    for name, run, expected, out in zip(CASES, runs, wanted, outs, strict=True):
        run()
        found = host_bytes(out).view(out.dtype).reshape(out.shape).astype(np.float64)
        away = np.abs(found - expected).max() / np.abs(expected).max()
        assert away < (1e-5 if out.dtype == np.float32 else 8e-3), (name, away)


def steady(right: Matrices, folded: int) -> list[DeviceArray]:
    """Every other wide matrix is one that nothing changes."""
    return [right.array] if folded % 4 == 0 else []


def of_shapes(rows: int, columns: int, folded: int, dtype: str = "bf16", *, right: bool = False) -> Product:
    machine = HostMachine()
    left, _ = laid(machine, np.zeros((1, rows, folded)), dtype, turned=False)
    other, _ = laid(machine, np.zeros((1, folded, columns)), dtype, turned=right)
    out, _ = laid(machine, np.zeros((1, rows, columns)), dtype, turned=False)
    return Product(left, other, out, 1, rows, columns, folded)


def test_what_libraries_do_as_well_is_theirs() -> None:
    assert thin_product(of_shapes(16, 64, 64), HostMachine()) is None, "many rows"
    assert thin_product(of_shapes(1, 60, 64), HostMachine()) is None, "lines that are not of 16 bytes"
    assert thin_product(of_shapes(1, 64, 64, "f64"), HostMachine()) is None, "a type that is not added up in f32"
    assert thin_product(of_shapes(1, 64, 2048, right=True), HostMachine()) is None, "long lines, each a column"
    assert thin_product(of_shapes(1, 64, 2048), HostMachine()) is not None


@pytest.mark.parametrize(
    ("rows", "columns", "folded", "dtype", "ours"),
    [
        (2050, 5, 264, "f32", True),
        (2050, 5, 128, "f32", False),  # short lines
        (2050, 16, 264, "f32", False),  # not few columns
        (2050, 5, 1032, "f32", False),  # few lines for their length
        (2050, 4, 264, "bf16", True),
        (2050, 5, 264, "bf16", False),  # tensor cores have them
        (2048, 1, 256, "f16", True),
        (2048, 1, 512, "f16", False),  # few lines for their length, and nothing else to compute
    ],
)  # fmt: skip
def test_many_lines_are_ours_where_a_library_is_slower(
    rows: int, columns: int, folded: int, dtype: str, *, ours: bool
) -> None:
    assert (thin_product(of_shapes(rows, columns, folded, dtype), HostMachine()) is not None) == ours


@tp.op
def grouped_scores(q: bf16[Tensor, "h e"], k: bf16[Tensor, "s g e"]) -> bf16[Tensor, "h s"]:
    h, s, e = tp.indices("h s e")
    return tp.sum[e](q[h, e] * k[s, h // 4, e])


@tp.op
def grouped_values(p: bf16[Tensor, "h s"], v: bf16[Tensor, "s g e"]) -> bf16[Tensor, "h e"]:
    h, s, e = tp.indices("h s e")
    return tp.sum[s](p[h, s] * v[s, h // 4, e])


@tp.program
def cached(q: bf16[Tensor, "h=8 e=64"], k: bf16[Tensor, "s=40 g=2 e=64"], v: bf16[Tensor, "s g e"]) -> Tensor:
    return grouped_values(grouped_scores(q, k), v)


@needs_compiler
def test_heads_that_share_keys_are_products_of_their_groups(on_host: str) -> None:
    """Each key and value is read once, for all heads of its group."""
    program = cached.bind()
    made, inputs = plan(program, "cpu-4", mesh=(1,)), random_inputs(program, 3)
    [step] = made.run(inputs, device=on_host, poison=True).steps
    assert [event.kernel.split("_")[0] for event in step.events] == ["thin", "thin"]
    assert_close(program, inputs, made.run(inputs, device=on_host).outputs, evaluate(program, inputs))
