"""Matrix products by cuBLASLt, on arrays as they lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .arrays import DeviceArray
from .lt import COMPUTE, Call, CublasLt, Described, Matrix
from .machine import Machine, Matrices, Product
from .products import dtype_of
from .quickest import Quickest

# What NVIDIA recommends for Hopper (cuBLAS documentation, "cublasSetWorkspace", 2025): 32 MiB for a stream.
WORKSPACE = 32 << 20
# Addresses of its left operand for which a product keeps its arguments.
ADDRESSES = 16


@dataclass(frozen=True)
class Side:
    """An operand as cuBLAS sees it, columns one after another: transposed or not, and how far columns are apart."""

    x: Matrices
    transposed: bool
    lead: int


@dataclass(frozen=True)
class Gemm:
    """out = a b, all by columns, out never transposed; plus what is added, which lies as out does.

    ``positive``: what is less than 0 is 0.
    """

    a: Side
    b: Side
    out: Side
    rows: int
    columns: int
    folded: int
    batches: int
    added: Side | None = None
    positive: bool = False


def gemm_of(product: Product) -> Gemm:
    """A product as cuBLAS takes it: of an out that lies by rows, the transposed product."""
    m, n, k = product.rows, product.columns, product.folded
    out, added = product.out, product.added
    if (m == 1 or out.row == 1) and (n == 1 or out.column >= m):
        a, b, lead = _side(product.left, m, k), _side(product.right, k, n), max(m, out.column)
        also = None if added is None else Side(added, False, lead)
        return Gemm(a, b, Side(out, False, lead), m, n, k, product.batches, also, product.positive)
    a, b, lead = _side(_turned(product.right), n, k), _side(_turned(product.left), k, m), max(n, out.row)
    also = None if added is None else Side(_turned(added), False, lead)
    return Gemm(a, b, Side(_turned(out), False, lead), n, m, k, product.batches, also, product.positive)


def _turned(x: Matrices) -> Matrices:
    return Matrices(x.array, x.offset, x.batch, x.column, x.row)


def _side(x: Matrices, rows: int, columns: int) -> Side:
    """A matrix [rows, columns] as it is, where its columns lie one after another, or as the transposed one."""
    if (rows == 1 or x.row == 1) and (columns == 1 or x.column >= rows):
        return Side(x, False, max(rows, x.column if columns > 1 else rows))
    return Side(x, True, max(columns, x.row if rows > 1 else columns))


def call_of(gemm: Gemm) -> Call:
    """What the library is asked for."""
    m, n, k = gemm.rows, gemm.columns, gemm.folded
    dtype = dtype_of(gemm.a.x)
    return Call(
        _matrix(gemm.a, m, k), _matrix(gemm.b, k, n), None if gemm.added is None else _matrix(gemm.added, m, n),
        _matrix(gemm.out, m, n), (gemm.a.transposed, gemm.b.transposed), gemm.batches, dtype, dtype_of(gemm.out.x),
        COMPUTE[dtype], gemm.positive,
    )  # fmt: skip


def _matrix(side: Side, rows: int, columns: int) -> Matrix:
    x = side.x
    extents = (columns, rows) if side.transposed else (rows, columns)
    first = x.array.pointer + x.offset * x.array.dtype.itemsize
    return Matrix(x.array.pointer, first, *extents, side.lead, x.batch)


class Cublas:
    """The library itself, not by way of CuPy's functions: those go to CuPy's own stream, and refuse to be captured."""

    def __init__(self, machine: Machine, stream: Callable[[], int]) -> None:
        self.lt, self.quickest, self.stream = CublasLt(), Quickest(machine, stream), stream

    def prepared(self, product: Product, space: DeviceArray) -> BoundProduct | None:
        """Ask for a product, on the stream that is current then; None where the library has none. It works in the
        bytes of ``space``, so that nothing is allocated while it runs.
        """
        described = Described(self.lt, call_of(gemm_of(product)), space.nbytes)
        described.algorithm = self.quickest.of(described, space.pointer)
        return None if described.algorithm is None else BoundProduct(self, described, self.stream, product, space)

    def close(self) -> None:
        """Give the library's handle back."""
        self.lt.close()


def name_of_call(product: Product) -> str:
    """What is asked for, in words."""
    added = "" if product.added is None else ", added to what lies there"
    return f"cublasLtMatmul{added}{', nothing below 0' if product.positive else ''}"


class BoundProduct:
    """A call with its arguments. It keeps the arrays alive."""

    def __init__(
        self, cublas: Cublas, described: Described, stream: Callable[[], int], product: Product, space: DeviceArray
    ) -> None:
        self.cublas, self.described, self.stream, self.product = cublas, described, stream, product
        self.space = space
        self.arguments: dict[int, tuple[Any, ...]] = {}

    @property
    def kernels(self) -> tuple[str, ...]:
        """What computes it."""
        return (name_of_call(self.product),)

    def __call__(self) -> None:
        self.reading(self.product.left.array.pointer)

    def reading(self, left: int) -> None:
        """With a left operand that lies in the same way from another address on."""
        if left not in self.arguments:
            if len(self.arguments) >= ADDRESSES:
                self.arguments.clear()
            was = self.product.left.array.pointer
            self.arguments[left] = self.described.arguments(self.space.pointer, was, left)
        self.cublas.lt.multiply(self.arguments[left], self.stream())
