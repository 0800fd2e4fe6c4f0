"""cuBLASLt by its C interface: out = a b + c, by an algorithm of one's choice."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...kernels.errors import LaunchError, MissingCuPy

# As cublasLt.h of CUDA 12 and 13 numbers them: cudaDataType_t, cublasComputeType_t and the attributes that are set.
TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}
COMPUTE = {"f32": 68, "f64": 70, "f16": 68, "bf16": 68}
TRANSPOSED = (3, 4)  # CUBLASLT_MATMUL_DESC_TRANSA, _TRANSB
EPILOGUE, RELU = 7, 2  # CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_RELU
BATCHES, BATCH_STEP = 5, 6  # CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, _STRIDED_BATCH_OFFSET
WORKSPACE_BYTES = 1  # CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
LEAST_ALIGNMENTS = (5, 6, 7, 8)  # CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_{A,B,C,D}_BYTES


class Algorithm(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t: what cublasLtMatmulAlgoGetHeuristic answers, the algorithm itself first."""

    _fields_ = (
        ("words", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("status", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True)
class Matrix:
    """Columns of ``rows`` elements, ``lead`` elements apart; matrices of a batch ``step`` elements apart.

    ``array`` is the address of the array that they are in.
    """

    array: int
    pointer: int
    rows: int
    columns: int
    lead: int
    step: int


@dataclass(frozen=True)
class Call:
    """out = op(a) op(b), and c beside it where there is one; all of one type, added up in ``compute``.

    ``positive``: what is less than 0 is 0.
    """

    a: Matrix
    b: Matrix
    c: Matrix | None
    out: Matrix
    transposed: tuple[bool, bool]
    batches: int
    dtype: str
    stored: str
    compute: int
    positive: bool = False


class CublasLt:
    """A handle of the library."""

    def __init__(self) -> None:
        self.library = library("cublasLt")
        self.handle = ctypes.c_void_p()
        self.demand("Create", ctypes.byref(self.handle))

    def demand(self, function: str, *arguments: Any) -> None:
        """Call it. LaunchError where it refuses."""
        status = getattr(self.library, f"cublasLt{function}")(*arguments)
        if status:
            raise LaunchError(f"cuBLAS refused: status {status}", where=f"cublasLt{function}")

    def multiply(self, arguments: Sequence[Any], stream: int) -> None:
        """Ask for a product on a stream: arguments as `Described.arguments` gives them."""
        status = self.library.cublasLtMatmul(*arguments, ctypes.c_void_p(stream))
        if status:
            raise LaunchError(f"cuBLAS refused: status {status}", where="cublasLtMatmul")

    def close(self) -> None:
        """Give the handle back."""
        self.demand("Destroy", self.handle)


class Described:
    """A call as the library knows it, and what is asked of it."""

    def __init__(self, lt: CublasLt, call: Call, workspace: int) -> None:
        self.lt, self.call, self.workspace = lt, call, workspace
        self.operation = self._made("MatmulDesc", call.compute, TYPES["f64" if call.dtype == "f64" else "f32"])
        for attribute, transposed in zip(TRANSPOSED, call.transposed, strict=True):
            self._set("MatmulDesc", self.operation, attribute, ctypes.c_int32(transposed))
        if call.positive:
            self._set("MatmulDesc", self.operation, EPILOGUE, ctypes.c_int32(RELU))
        dtypes = (call.dtype, call.dtype, call.stored, call.stored)
        self.matrices = (call.a, call.b, call.c or call.out, call.out)
        self.layouts = [self._layout(x, dtype) for x, dtype in zip(self.matrices, dtypes, strict=True)]
        number = ctypes.c_double if call.dtype == "f64" else ctypes.c_float
        self.one, self.beta = number(1.0), number(0.0 if call.c is None else 1.0)
        self.algorithm = next(iter(self.algorithms(1)), None)
        weakref.finalize(self, _destroyed, lt, self.operation, self.layouts)

    def _made(self, kind: str, *arguments: int) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        self.lt.demand(f"{kind}Create", ctypes.byref(found), *map(ctypes.c_int64, arguments))
        return found

    def _set(self, kind: str, of: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self.lt.demand(f"{kind}SetAttribute", of, ctypes.c_int(attribute), ctypes.byref(value), size)

    def _layout(self, x: Matrix, dtype: str) -> ctypes.c_void_p:
        found = self._made("MatrixLayout", TYPES[dtype], x.rows, x.columns, x.lead)
        if self.call.batches > 1:
            self._set("MatrixLayout", found, BATCHES, ctypes.c_int32(self.call.batches))
            self._set("MatrixLayout", found, BATCH_STEP, ctypes.c_int64(x.step))
        return found

    def algorithms(self, most: int) -> list[Algorithm]:
        """Those that the library's heuristic holds to be best, the best one first; none where it has none."""
        preference = self._made("MatmulPreference")
        self._set("MatmulPreference", preference, WORKSPACE_BYTES, ctypes.c_uint64(self.workspace))
        for attribute, x in zip(LEAST_ALIGNMENTS, self.matrices, strict=True):
            self._set("MatmulPreference", preference, attribute, ctypes.c_uint32(min(256, x.pointer & -x.pointer)))
        found, count = (Algorithm * most)(), ctypes.c_int()
        status = self.lt.library.cublasLtMatmulAlgoGetHeuristic(
            self.lt.handle, self.operation, *self.layouts, preference, most, found, ctypes.byref(count)
        )
        self.lt.demand("MatmulPreferenceDestroy", preference)
        return [] if status else [one for one in found[: count.value] if not one.status]

    def arguments(
        self, workspace: int, was: int = 0, now: int = 0, *, by: Algorithm | None = None, into: int | None = None
    ) -> tuple[Any, ...]:
        """The arguments of cublasLtMatmul but the stream, of a call that has an algorithm, or by another one.

        The operand of the array that was at ``was`` is found in one that is at ``now``. ``into``: where the result is
        put instead, and what it is added to.
        """
        algorithm = by or self.algorithm
        assert algorithm is not None
        moved = [now - was if x.array == was and k < 2 else 0 for k, x in enumerate(self.matrices)]
        at = [ctypes.c_void_p(x.pointer + far) for x, far in zip(self.matrices, moved, strict=True)]
        if into is not None:
            at[2:] = [ctypes.c_void_p(into)] * 2
        a, b, c, out = self.layouts
        return (
            self.lt.handle, self.operation, ctypes.byref(self.one), at[0], a, at[1], b,
            ctypes.byref(self.beta), at[2], c, at[3], out,
            ctypes.byref(algorithm), ctypes.c_void_p(workspace), ctypes.c_size_t(self.workspace),
        )  # fmt: skip


def _destroyed(lt: CublasLt, operation: ctypes.c_void_p, layouts: Sequence[ctypes.c_void_p]) -> None:
    """Descriptions are memory of the host."""
    lt.demand("MatmulDescDestroy", operation)
    for layout in layouts:
        lt.demand("MatrixLayoutDestroy", layout)


def library(name: str) -> ctypes.CDLL:
    """A library of CUDA's as CuPy finds it, which has cuBLAS loaded. Raises `MissingCuPy`."""
    try:
        _ = importlib.import_module("cupy_backends.cuda.libs").cublas
    except ImportError as error:
        raise MissingCuPy("cuBLAS cannot be loaded", came=str(error), hint='pip install "cupy-cuda13x[ctk]"') from error
    for version in ("13", "12"):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(f"lib{name}.so.{version}")
    raise MissingCuPy("cuBLAS cannot be loaded", expected=f"lib{name}.so.13 or lib{name}.so.12")
