"""Matrix products by cuBLAS, on arrays as they lie."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...kernels.errors import LaunchError, MissingCuPy
from ..device import Runner
from .arrays import DeviceArray, Memory
from .machine import Matrices, Product
from .products import dtype_of

# cudaDataType_t and cublasComputeType_t, as the CUDA headers number them.
TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}
COMPUTE = {"f32": 68, "f64": 70, "f16": 68, "bf16": 68}
DEFAULT_ALGORITHM = -1
# What NVIDIA recommends for Hopper (cuBLAS documentation, "cublasSetWorkspace", 2025): 32 MiB a stream.
WORKSPACE = 32 << 20


@dataclass(frozen=True)
class Side:
    """An operand as cuBLAS sees it, columns one after another: transposed or not, and how far columns are apart."""

    x: Matrices
    transposed: bool
    lead: int


@dataclass(frozen=True)
class Gemm:
    """out = a b, all by columns, out never transposed."""

    a: Side
    b: Side
    out: Side
    rows: int
    columns: int
    folded: int
    batches: int


def gemm_of(product: Product) -> Gemm:
    """A product as cuBLAS takes it: of an out that lies by rows, the transposed product."""
    m, n, k = product.rows, product.columns, product.folded
    out = product.out
    if (m == 1 or out.row == 1) and (n == 1 or out.column >= m):
        a, b = _side(product.left, m, k), _side(product.right, k, n)
        return Gemm(a, b, Side(out, False, max(m, out.column)), m, n, k, product.batches)
    a, b = _side(_turned(product.right), n, k), _side(_turned(product.left), k, m)
    return Gemm(a, b, Side(_turned(out), False, max(n, out.row)), n, m, k, product.batches)


def _turned(x: Matrices) -> Matrices:
    return Matrices(x.array, x.offset, x.batch, x.column, x.row)


def _side(x: Matrices, rows: int, columns: int) -> Side:
    """A matrix [rows, columns] as it is, where its columns lie one after another, or as the transposed one."""
    if (rows == 1 or x.row == 1) and (columns == 1 or x.column >= rows):
        return Side(x, False, max(rows, x.column if columns > 1 else rows))
    return Side(x, True, max(columns, x.row if rows > 1 else columns))


class Cublas:
    """The library itself, not by way of CuPy's functions: those go to CuPy's own stream, and refuse to be captured.

    Every stream has a handle and a workspace of its own, so that nothing is allocated while it runs.
    """

    def __init__(self, allocate: Callable[[int], Memory]) -> None:
        self.allocate = allocate
        self.library = _library()
        self.handles: dict[int, tuple[ctypes.c_void_p, Memory]] = {}

    def _handle(self, stream: int) -> ctypes.c_void_p:
        if stream not in self.handles:
            handle, workspace = ctypes.c_void_p(), self.allocate(WORKSPACE)
            self._demand(self.library.cublasCreate_v2(ctypes.byref(handle)), "cublasCreate")
            self._demand(self.library.cublasSetStream_v2(handle, ctypes.c_void_p(stream)), "cublasSetStream")
            given = ctypes.c_void_p(workspace.pointer), ctypes.c_size_t(WORKSPACE)
            self._demand(self.library.cublasSetWorkspace_v2(handle, *given), "cublasSetWorkspace")
            self.handles[stream] = handle, workspace
        return self.handles[stream][0]

    def prepared(self, product: Product, stream: Callable[[], int]) -> Runner:
        """Ask for a product, on the stream that is current then."""
        gemm = gemm_of(product)
        scalars = np.array([1, 0], np.float64 if dtype_of(product.left) == "f64" else np.float32)
        one = scalars.ctypes.data
        a, b, out = gemm.a, gemm.b, gemm.out
        arguments = (
            *map(ctypes.c_int, (a.transposed, b.transposed, gemm.rows, gemm.columns, gemm.folded)),
            ctypes.c_void_p(one), *_operand(a), *_operand(b), ctypes.c_void_p(one + scalars.itemsize), *_operand(out),
            *map(ctypes.c_int, (gemm.batches, COMPUTE[dtype_of(a.x)], DEFAULT_ALGORITHM)),
        )  # fmt: skip
        call = self.library.cublasGemmStridedBatchedEx
        held = (scalars, a.x.array, b.x.array, out.x.array)
        return partial(self._run, call, arguments, stream, held)

    def _run(self, call: Any, arguments: tuple[Any, ...], stream: Callable[[], int], held: tuple[object, ...]) -> None:
        """``held`` is what the arguments point to, kept alive."""
        assert held
        self._demand(call(self._handle(stream()), *arguments), "cublasGemmStridedBatchedEx")

    def _demand(self, status: int, function: str) -> None:
        if status:
            raise LaunchError(f"cuBLAS refused: status {status}", where=function)

    def close(self) -> None:
        """Give the handles back."""
        for handle, _ in self.handles.values():
            self.library.cublasDestroy_v2(handle)
        self.handles.clear()


def _operand(side: Side) -> tuple[Any, ...]:
    x = side.x
    return (
        ctypes.c_void_p(_address(x.array, x.offset)), ctypes.c_int(TYPES[dtype_of(x)]), ctypes.c_int(side.lead),
        ctypes.c_longlong(x.batch),
    )  # fmt: skip


def _address(array: DeviceArray, offset: int) -> int:
    return array.pointer + offset * array.dtype.itemsize


def _library() -> ctypes.CDLL:
    """cuBLAS as CuPy finds it, which has it loaded."""
    try:
        _ = importlib.import_module("cupy_backends.cuda.libs").cublas
    except ImportError as error:
        raise MissingCuPy("cuBLAS cannot be loaded", came=str(error), hint='pip install "cupy-cuda13x[ctk]"') from error
    for name in ("libcublas.so.13", "libcublas.so.12"):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    raise MissingCuPy("cuBLAS cannot be loaded", expected="libcublas.so.13 or libcublas.so.12")
