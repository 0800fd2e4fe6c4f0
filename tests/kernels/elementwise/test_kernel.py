"""Elementwise kernels: what is chosen, what the compiler reports, what is refused, what they move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry.dsl.define import axes_of, define
from tapestry.expr import FUNCTIONS, Affine, Bound, Call, Cast, Const, Expr, IndexValue, Inside, Read
from tapestry.kernels.elementwise.kernel import ElementwiseKernel, compile_expression, compile_map
from tapestry.kernels.elementwise.launch import checked
from tapestry.kernels.elementwise.types import ELEMENT_TYPES, Layout
from tapestry.kernels.errors import (
    KernelError,
    TooLarge,
    WrongDevice,
    WrongDtype,
    WrongLayout,
    WrongShape,
    WrongType,
    WrongValue,
)
from tapestry.program import Dim, Operation
from tapestry.reference.values import round_to
from tapestry.testing import program_of

from .host import HostTensor, build, needs_compiler, run, unit_of

ROW, COLUMN = Affine.dim("i"), Affine.dim("j")
F16 = Layout.contiguous("f16", (64, 1000))


def kinds(kernel: ElementwiseKernel) -> list[str]:
    assert kernel.plan is not None
    return [load.kind for load in kernel.plan.loads]


def over(body: Expr, output: Layout = F16, **operands: Layout) -> ElementwiseKernel:
    """A kernel over (i, j), the output's axes."""
    return compile_expression(tuple(zip("ij", output.shape, strict=True)), body, output, operands)


def add(x: Expr, y: Expr) -> Expr:
    return Call("add", (x, y))


# -- choices ---------------------------------------------------------------------------------------------------------


def test_contiguous_operands_are_one_dimension_in_full_vectors() -> None:
    kernel = over(add(Read("a", (ROW, COLUMN)), Read("b", (ROW, COLUMN))), a=F16, b=F16)
    assert kernel.plan is not None
    assert (len(kernel.loop.dims), kernel.plan.vector, kernel.plan.store, kinds(kernel)) == (1, 8, 8, ["vector"] * 2)


def test_a_repeated_row_is_a_vector_and_a_repeated_column_one_element() -> None:
    row, column = Layout.contiguous("f16", (1000,)), Layout.contiguous("f16", (64,))
    assert kinds(over(add(Read("a", (ROW, COLUMN)), Read("b", (COLUMN,))), a=F16, b=row)) == ["vector", "vector"]
    assert kinds(over(add(Read("a", (ROW, COLUMN)), Read("b", (ROW,))), a=F16, b=column)) == ["vector", "uniform"]


def test_rows_that_do_not_divide_into_vectors_still_move_in_vectors() -> None:
    odd, row = Layout.contiguous("f16", (64, 1001)), Layout.contiguous("f16", (1001,))
    kernel = over(add(Read("a", (ROW, COLUMN)), Read("b", (COLUMN,))), odd, a=odd, b=row)
    assert kernel.plan is not None
    assert (kernel.plan.vector, kinds(kernel)) == (8, ["vector", "gather"])


def test_a_transposed_operand_is_turned_in_a_tile() -> None:
    turned = Layout.contiguous("f16", (1000, 64))
    assert kinds(over(Read("a", (COLUMN, ROW)), a=turned)) == ["tile"]
    assert kinds(over(add(Read("a", (COLUMN, ROW)), Read("b", (ROW, COLUMN))), a=turned, b=F16)) == ["tile", "vector"]


def test_tiles_find_room_however_many_operands_are_turned() -> None:
    turned = Layout.contiguous("f32", (1000, 640))
    for count in (1, 2, 3, 5, 11):
        operands = {f"a{k}": turned for k in range(count)}
        body: Expr = Const(0.0)
        for name in operands:
            body = add(body, Read(name, (COLUMN, ROW)))
        kernel = over(body, Layout.contiguous("f32", (640, 1000)), **operands)
        assert set(kinds(kernel)) == {"tile" if count < 11 else "gather"}
        assert kernel.compiled().spill_stores == 0
        assert kernel.compiled().shared <= 48 << 10


def test_a_misaligned_operand_takes_narrow_accesses() -> None:
    kernel = over(Read("a", (ROW, COLUMN)), a=Layout("f16", (64, 1000), (1000, 1), alignment=4))
    assert kernel.plan is not None
    assert [(load.kind, load.width) for load in kernel.plan.loads] == [("vector", 2)]


def test_offsets_beyond_32_bits_are_seen() -> None:
    near, far = Layout("int8", (2, 8), (2**30, 1)), Layout("int8", (2, 8), (2**31, 1))
    output = Layout.contiguous("int8", (2, 8))
    assert not over(Read("a", (ROW, COLUMN)), output, a=near).loop.wide
    assert over(Read("a", (ROW, COLUMN)), output, a=far).loop.wide


def test_a_map_without_points_needs_no_kernel() -> None:
    empty = Layout.contiguous("f16", (0, 8))
    assert over(Read("a", (ROW, COLUMN)), empty, a=empty).plan is None


# -- machine code ----------------------------------------------------------------------------------------------------


def report(function: Callable[..., Any], **arrays: Any) -> tuple[int, int]:
    program = program_of(function, **arrays)
    layouts = {t.name: Layout.contiguous(t.dtype, t.shape) for t in program.tensors}
    found = [compile_map(op, layouts).compiled() for op in program.operations]
    return sum(c.spill_stores + c.spill_loads for c in found), max(c.registers for c in found)


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64", "int8", "int64"])
def test_no_register_is_spilled(dtype: str) -> None:
    from tapestry.dtypes import numpy_dtype

    x, row = np.zeros((512, 256), numpy_dtype(dtype)), np.zeros(256, numpy_dtype(dtype))

    def several(x: Any, row: Any) -> Any:
        i, j = axes_of(x)
        product = define("product", (i, j), x[i, j] * row[j] + x[i, j], dtype=dtype)
        return product, tp.transpose(x, [1, 0]) + row[:, None], tp.pad(x, d0=(1, 2), d1=(3, 0)), tp.reverse(x, 1)

    spilled, registers = report(several, x=x, row=row)
    assert spilled == 0
    assert registers <= 128


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_100"])
def test_other_architectures_compile(arch: str) -> None:
    turned = Layout.contiguous("f16", (1000, 64))
    body = add(Call("sigmoid", (Read("a", (COLUMN, ROW)),)), Read("b", (ROW, COLUMN)))
    assert over(body, a=turned, b=F16).compiled(arch).spill_stores == 0


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_compiles_in_every_type(name: str) -> None:
    logic, bits = name.startswith("logical"), FUNCTIONS[name].integers
    for dtype in ("bool",) if logic else ("int32", "uint8") if bits else ("f16", "f32", "f64", "int32", "f8e4m3"):
        x = Layout.contiguous(dtype, (8, 256))
        args = (Read("x", (ROW, COLUMN)),) * FUNCTIONS[name].arity
        args = (Cast("bool", args[0]), *args[1:]) if name == "where" else args
        output = Layout.contiguous("bool" if FUNCTIONS[name].result == "bool" else "int64" if bits else "f32", (8, 256))
        assert over(Call(name, args), output, x=x).compiled().spill_stores == 0


# -- conversions -----------------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("target", list(ELEMENT_TYPES))
def test_conversions_round_as_the_reference_does(target: str) -> None:
    random = np.random.default_rng(5)
    bits = random.integers(0, 2**64, 5000, dtype=np.uint64)
    wide = bits.view(np.float64)
    edges = np.array([0.0, np.inf, np.nan, 65504, 65519.999, 65520, 65536, 2.0**-24, 2.0**-25, 2.0**63])
    ties = 1 + np.arange(200) * 2.0**-12 + np.array([0, 2.0**-40] * 100)
    values = np.concatenate([edges, -edges, ties, wide, random.normal(size=3000) * 100, random.normal(size=999) * 1e-6])
    with np.errstate(over="ignore"):
        inputs: dict[str, Any] = {"f64": values, "int64": bits.view(np.int64), "f32": values.astype(np.float32)}
    kernels = {}
    for source, given in inputs.items():
        layout, output = (Layout.contiguous(dtype, given.shape) for dtype in (source, target))
        kernels[source] = compile_expression((("i", given.size),), Read("x", (ROW,)), output, {"x": layout})
    library = build([unit_of(kernel) for kernel in kernels.values()])
    for source, kernel in kernels.items():
        given, found = inputs[source], HostTensor(kernel.loop.output)
        run(library, unit_of(kernel), [HostTensor(kernel.loop.operands[0][1], given), found])
        with np.errstate(all="ignore"):
            want = round_to(given if source == "int64" else given.astype(np.float64), target)
        assert np.array_equal(found.view, want, equal_nan=ELEMENT_TYPES[target].kind == "float"), (source, target)


# -- refusals --------------------------------------------------------------------------------------------------------


def refused(error: type[KernelError], match: str, call: Callable[[], object]) -> None:
    with pytest.raises(error, match=match):
        call()


def test_bad_maps_are_refused() -> None:
    read = Read("a", (ROW, COLUMN))
    refused(WrongShape, "without a layout", lambda: over(read))
    refused(WrongShape, "wrong rank", lambda: over(Read("a", (ROW,)), a=F16))
    refused(WrongShape, "unknown dimension", lambda: over(Read("a", (ROW, Affine.dim("k"))), a=F16))
    refused(WrongShape, "leaves the tensor", lambda: over(Read("a", (ROW, COLUMN + 1)), a=F16))
    refused(WrongValue, "no such function", lambda: over(Call("gamma", (read,)), a=F16))
    refused(WrongValue, "no such function", lambda: over(Call("add", (read,)), a=F16))
    refused(WrongDtype, "no such element type", lambda: over(Cast("f8", read), a=F16))
    refused(WrongDtype, "no such element type", lambda: Layout.contiguous("u8", (3,)))
    refused(WrongLayout, "one stride for each axis", lambda: Layout("f16", (3, 4), (1,)))
    refused(WrongLayout, "alignment", lambda: Layout("f16", (3,), (1,), alignment=3))
    refused(WrongLayout, "two points write one element", lambda: over(read, Layout("f16", (64, 1000), (0, 1)), a=F16))
    refused(WrongLayout, "two points write one element", lambda: over(read, Layout("f16", (64, 1000), (999, 1)), a=F16))


def test_bad_points_writes_and_sizes_are_refused() -> None:
    dims, operands = (("i", 64), ("j", 1000)), {"a": F16}
    read = Read("a", (ROW, COLUMN))
    op = Operation("copy", (Dim("i", 64), Dim("j", 1000)), "y", (ROW, COLUMN), read)
    both = {"a": F16, "y": F16}
    refused(WrongShape, "points outside", lambda: compile_map(op, both, points={"i": range(70)}))
    refused(WrongShape, "one origin", lambda: compile_map(op, both, origins={"a": (1,)}))
    refused(WrongLayout, "affine", lambda: compile_expression(dims, read, F16, operands, write=(ROW // 2, COLUMN)))
    refused(WrongShape, "the write", lambda: compile_expression(dims, read, F16, operands, write=(ROW + 1, COLUMN)))
    refused(WrongValue, "vector", lambda: compile_expression(dims, read, F16, operands, vector=3))
    huge = Layout.contiguous("int8", (2**24, 2**24))
    refused(TooLarge, "too many points", lambda: over(Const(1), huge))


def test_calls_need_the_right_number_of_arrays_on_a_gpu() -> None:
    kernel = over(add(Read("a", (ROW, COLUMN)), Read("b", (ROW, COLUMN))), a=F16, b=F16)
    host = np.zeros((64, 1000), np.float16)
    refused(WrongType, "wrong number of arrays", lambda: kernel(host, out=host))
    refused(WrongType, "wrong number of arrays", lambda: kernel(host, host, out=(host, host)))
    refused(WrongDevice, "a is in host memory", lambda: kernel(host, host, out=host))
    refused(WrongType, "b is not an array", lambda: checked(3, F16, "b", "add"))


def test_folds_are_no_maps() -> None:
    program = program_of(lambda x: tp.sum(x, axis=0), x=np.zeros((3, 4), np.float32))
    layouts = {t.name: Layout.contiguous(t.dtype, t.shape) for t in program.tensors}
    refused(WrongValue, "a fold is no map", lambda: compile_map(program.operations[0], layouts))


# -- bytes -----------------------------------------------------------------------------------------------------------


def test_each_element_counts_once() -> None:
    row = Layout.contiguous("f16", (1000,))
    kernel = over(add(Read("a", (ROW, COLUMN)), Read("b", (COLUMN,))), a=F16, b=row)
    assert kernel.bytes_moved == 2 * (2 * 64000 + 1000)


def test_constants_are_told_apart_by_their_type() -> None:
    output = Layout.contiguous("f32", (4, 4))
    bodies = [Call("divide", (Const(one), Read("a", (ROW, COLUMN)))) for one in (1, 1.0, True)] + [IndexValue(ROW)]
    entries = {over(body, output, a=Layout.contiguous("int32", (4, 4))).entry for body in bodies}
    assert len(entries) == 4
    inside = over(Inside((Bound(ROW, 1, 3),)), Layout.contiguous("bool", (4, 4)))
    assert inside.plan is not None
