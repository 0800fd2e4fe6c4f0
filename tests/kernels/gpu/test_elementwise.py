"""On a GPU: generated maps and row programs against the reference, outputs holding a sentinel before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tapestry as tp
from tapestry.dsl.define import axes_of, define
from tapestry.dtypes import numpy_dtype
from tapestry.expr import Affine, Call, Const, Read
from tapestry.kernels.elementwise.kernel import compile_expression, compile_map
from tapestry.kernels.elementwise.types import Layout
from tapestry.kernels.errors import KernelError, WrongDtype, WrongLayout, WrongShape, WrongType
from tapestry.kernels.normalization.kernel import compile_rows
from tapestry.kernels.runtime.device import device_count
from tapestry.program import Program
from tapestry.reference.evaluation import evaluate_all
from tapestry.testing import inputs_for, program_of, programs
from tapestry.testing.choices import Choices

from ..elementwise.host import SENTINEL, HostTensor
from ..elementwise.test_generated import assert_same, maps, some_layout
from ..normalization.test_rows import assert_close, layouts_of, long_job, some_job


def gpus() -> int:
    try:
        return device_count()
    except KernelError:
        return 0


pytestmark = pytest.mark.skipif(gpus() == 0, reason="no GPU")
Array = NDArray[Any]
SLOW = settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))


def launch(kernel: Any, tensors: list[HostTensor]) -> None:
    """Run a kernel on copies of the tensors' memory, and bring all of it back."""
    import cupy

    buffers, pointers = [], []
    for tensor in tensors:
        shift = tensor.layout.alignment if tensor.layout.alignment < 16 else 0
        buffer = cupy.zeros(tensor.memory.size + 64, np.uint8)[shift : shift + tensor.memory.size]
        buffer.set(tensor.memory)
        buffers.append(buffer)
        pointers.append(buffer.data.ptr + tensor.pointer - tensor.memory.ctypes.data)
    kernel.on(0).launch(kernel.blocks, kernel.threads, pointers, kernel.shared(0))
    for tensor, buffer in zip(tensors, buffers, strict=True):
        tensor.memory[...] = buffer.get()


@SLOW
@given(st.data())
def test_programs_agree_with_the_reference(data: st.DataObject) -> None:
    program = data.draw(programs(max_ops=10, largest=60))
    operations = maps(program)
    assume(operations)
    values = evaluate_all(program, data.draw(inputs_for(program)))
    ch = Choices(data.draw)
    for op in operations:
        tensors = [program.tensor(name) for name in (*op.operands, op.output)]
        kernel = compile_map(op, {t.name: some_layout(ch, t.dtype, t.shape) for t in tensors})
        output = HostTensor(kernel.loop.output)
        operands = [HostTensor(layout, values[name]) for name, layout in kernel.loop.operands]
        if kernel.plan:
            launch(kernel, [*operands, output])
        inner = [program.tensor(name).dtype for name in op.operands]
        assert_same(str(op.body), kernel.loop.output.dtype, output.view, values[op.output], inner)
        assert (output.untouched() == SENTINEL).all(), f"{op.name} wrote beside its elements"


@SLOW
@given(st.data())
def test_row_programs_agree_with_the_reference(data: st.DataObject) -> None:
    ch = Choices(data.draw)
    assert_on_gpu(*some_job(ch, ch.integer(0, 2**20)))


def fused(body: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    def applied(x: Any, *others: Any) -> Any:
        every = axes_of(x)
        return define("fused", every, body(x[every], *(y[every[len(every) - y.ndim :]] for y in others)), dtype=dtype)

    return applied


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "silu_mul": lambda a, b: tp.silu(a) * b,
    "gelu": lambda a, b: tp.gelu(a) + b,
    "gelu_tanh": lambda a, b: tp.gelu(a, approximate="tanh") - b,
    "tanh": lambda a, b: tp.tanh(a * b),
    "erf": lambda a, b: tp.erf(a) * tp.exp(b),
    "rsqrt": lambda a, b: tp.rsqrt(a * a + 0.5) / (tp.abs(b) + 1.0),
    "waves": lambda a, b: tp.sin(a) * tp.cos(b) + tp.log(a * a + 1.0),
    "power": lambda a, b: (a * a + 1.0) ** b,
    "floor": lambda a, b: tp.floor(a * 8.0) + tp.maximum(a, b) + tp.sqrt(tp.abs(b)),
}


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_over_many_values(name: str, dtype: str) -> None:
    random = np.random.default_rng(3)
    a = random.uniform(-4, 4, (257, 1000)).astype(numpy_dtype(dtype))
    b = random.uniform(-4, 4, 1000).astype(numpy_dtype(dtype))
    program = program_of(fused(FUNCTIONS[name], dtype), a=a, b=b)
    want = evaluate_all(program, {"a": a, "b": b})
    kernel = compile_map(program.operations[0], layouts_of(program))
    output = HostTensor(kernel.loop.output)
    launch(kernel, [HostTensor(layout, {"a": a, "b": b}[n]) for n, layout in kernel.loop.operands] + [output])
    assert_same(name, dtype, output.view, want[program.operations[0].output])


@SLOW
@given(st.data())
def test_rows_of_several_blocks_agree_with_the_reference(data: st.DataObject) -> None:
    ch = Choices(data.draw)
    assert_on_gpu(*long_job(ch, ch.integer(0, 2**20)))


def assert_on_gpu(kernel: Any, program: Program, inputs: dict[str, Array]) -> None:
    """The outputs of a row program against the reference, nothing written beside them, and again the same bits."""
    want = evaluate_all(program, inputs)
    found = []
    for _ in range(2):
        outputs = [HostTensor(output.layout) for output in kernel.program.outputs]
        launch(kernel, [*(HostTensor(layout, inputs[name]) for name, layout in kernel.program.operands), *outputs])
        for name, tensor in zip(kernel.outputs, outputs, strict=True):
            assert_close(name, tensor, want[name], kernel.program.width)
            assert (tensor.untouched() == SENTINEL).all(), f"{name}: written beside its elements"
        found.append([tensor.view.copy() for tensor in outputs])
    assert all(np.array_equal(first, second) for first, second in zip(*found, strict=True))


LONG_ROWS = (
    ("f16", 3, 131_072, None), ("f16", 2, 131_072, 1), ("bf16", 5, 131_072, 2), ("f32", 2, 100_000, 4),
    ("f16", 300, 131_072, None), ("f16", 2, 200_001, None), ("f32", 3, 262_144, 8), ("bf16", 2, 524_296, None),
    ("f32", 1, 1 << 20, None), ("f16", 2, 3 << 20, None), ("f32", 9, 1 << 20, 16),
)  # fmt: skip


@pytest.mark.parametrize(("dtype", "rows", "width", "cluster"), LONG_ROWS)
def test_long_rows(dtype: str, rows: int, width: int, cluster: int | None) -> None:
    random = np.random.default_rng(0)
    x = random.uniform(-3, 3, (rows, width)).astype(numpy_dtype(dtype))
    w = random.uniform(-1, 1, width).astype(numpy_dtype(dtype))
    functions: tuple[Callable[..., Any], ...] = (lambda x, w: tp.softmax(x), lambda x, w: tp.layer_norm(x, w, w))
    for function in functions:
        program = program_of(function, x=x, w=w)
        kernel = compile_rows(program.operations, layouts_of(program), outputs=program.outputs, cluster=cluster)
        assert_on_gpu(kernel, program, {"x": x, "w": w})


@pytest.mark.parametrize("dtype", ["int8", "f16", "f32", "f64"])
@pytest.mark.parametrize("shape", [(64, 64), (1000, 333), (3, 130, 70), (40, 65, 129)])
def test_transposed_copies(dtype: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(-100, 100, shape).astype(numpy_dtype(dtype))
    axes = list(range(len(shape)))
    for order in (axes[::-1], axes[-1:] + axes[:-1]):
        built = program_of(lambda x, order=order: tp.transpose(x * 1, order), x=x)
        want = evaluate_all(built, {"x": x})
        for op in built.operations:
            kernel = compile_map(op, layouts_of(built))
            output = HostTensor(kernel.loop.output)
            launch(kernel, [*(HostTensor(layout, {"x": x, **want}[n]) for n, layout in kernel.loop.operands), output])
            assert np.array_equal(output.view, want[op.output])


def test_arrays_of_a_library_are_checked_at_the_call() -> None:
    import cupy

    i, j = Affine.dim("i"), Affine.dim("j")
    layout = Layout.contiguous("f32", (8, 16))
    body = Call("multiply", (Read("x", (i, j)), Const(2.0)))
    kernel = compile_expression((("i", 8), ("j", 16)), body, layout, {"x": layout})
    x = cupy.arange(128, dtype=cupy.float32).reshape(8, 16)
    out = cupy.full((8, 16), np.nan, np.float32)
    assert cupy.array_equal(kernel(x, out=out), 2 * x)
    stream = cupy.cuda.Stream(non_blocking=True)
    kernel(x, out=out, stream=stream)
    kernel(x, out=x)  # in place
    with pytest.raises(WrongShape):
        kernel(x[:4], out=out)
    with pytest.raises(WrongDtype):
        kernel(x.astype(cupy.float64), out=out)
    with pytest.raises(WrongLayout):
        kernel(cupy.zeros((16, 8), cupy.float32).T, out=out)
    with pytest.raises(WrongLayout):
        kernel(cupy.zeros(129, cupy.float32)[1:].reshape(8, 16), out=out)
    with pytest.raises(WrongType):
        kernel(x, x, out=out)


def test_more_elements_than_32_bits_count() -> None:
    import cupy

    n = 2**31 + 4096 + 5
    layout = Layout.contiguous("int8", (n,))
    i = Affine.dim("i")
    kernel = compile_expression((("i", n),), Call("add", (Read("x", (i,)), Const(1))), layout, {"x": layout})
    assert kernel.loop.wide
    x = cupy.random.randint(-128, 127, n, dtype=cupy.int8)
    out = cupy.zeros(n, cupy.int8)
    kernel(x, out=out)
    assert bool((out == x + cupy.int8(1)).all())


def test_rows_further_apart_than_32_bits_count() -> None:
    import cupy

    rows, width, pitch = 3, 1000, 2**30
    program = program_of(lambda x: tp.softmax(x), x=np.zeros((rows, width), np.float16))
    dense = layouts_of(program)
    kernel = compile_rows(program.operations, dense | {"x": Layout("f16", (rows, width), (pitch, 1))})
    assert kernel.program.wide
    memory = cupy.zeros(2 * pitch + width, cupy.float16)
    x = cupy.lib.stride_tricks.as_strided(memory, (rows, width), (2 * pitch, 2))
    x[...] = cupy.random.uniform(-3, 3, (rows, width)).astype(cupy.float16)
    out = cupy.full((rows, width), np.nan, np.float16)
    kernel(x, out=out)
    exact = cupy.exp(x.astype(cupy.float64))
    assert float(abs(out - exact / exact.sum(1, keepdims=True)).max()) < 1e-5
