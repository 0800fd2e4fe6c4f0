"""What must move between ranks whatever the plan: a lower bound on its seconds.

A product of two inputs: each element of an input is on one rank at the start, each element of the result is folded on
one. A rank that computes F of the products touches a, b and c elements with a b c >= F^2 (Loomis and Whitney 1949). If
all is done within T seconds no rank computes more than T / s products of s seconds each, so several ranks share the
work, and what they touch together, less one copy of everything, was received (memory-independent bounds: Al Daas et
al., SPAA 2022). The links carry that much in T or they do not; so T has a least value. The same for groups of ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from math import prod, sqrt

from ...expr import Read
from ...program import Operation, Program
from ..machine import Machine
from ..strategy.cost import compute_dtype, flops_per_point, kernel_class

HALVINGS = 60


def forced_seconds(program: Program, machine: Machine, ranks: int) -> float:
    """No plan on so many devices takes less, by what it moves."""
    found = [0.0]
    products = [product for op in program.operations if (product := product_of(op, program)) is not None]
    for product, levels in ((product, levels_of(machine, ranks)) for product in dict.fromkeys(products)):
        found += [shared_seconds(product, each_seconds(product, machine, ranks), *level) for level in levels]
    return max(found)


@dataclass(frozen=True)
class Product:
    """result[m, n] = sum of left[m, k] right[k, n]: the extents of the three, each those of one dimension or more."""

    m: int
    n: int
    k: int
    itemsize: int
    operation: Operation
    dtype: str


def product_of(op: Operation, program: Program) -> Product | None:
    """An operation that is a product of two inputs, read whole; None for all others."""
    factors = op.factors
    if factors is None or op.where or op.monoid != "sum" or len(factors) != 2 or kernel_class(op) != "matmul":
        return None
    reads = [factor for factor in factors if isinstance(factor, Read) and not factor.guard]
    pinned = [pin.pattern for pin in program.pins if pin.target == "tensor"]
    tensors = [program.tensor(read.tensor) for read in reads]
    alone = len({tensor.name for tensor in tensors}) == 2 and all(
        tensor.role == "input" and not any(fnmatchcase(tensor.name, pattern) for pattern in pinned)
        for tensor in tensors
    )
    rows = [read.index for read in reads] + [op.write]
    if not alone or len(rows) != 3 or not all(row.is_affine and not row.const for each in rows for row in each):
        return None
    dims = [[term for row in each for term in row.terms] for each in rows]
    if any(len(row.terms) != 1 for each in rows for row in each) or any(
        factor != 1 for each in dims for _, factor in each
    ):
        return None
    left, right, out = ({str(name) for name, _ in each} for each in dims)
    every = {dim.name for dim in op.dims}
    if any(len(each) != len(dims[k]) for k, each in enumerate((left, right, out))) or left & right & out:
        return None
    if {*(left & out), *(right & out), *(left & right)} != every:
        return None
    m, n, k = (prod(op.extents[name] for name in names) for names in (left & out, right & out, left & right))
    itemsize = min(program.tensor(name).itemsize for name in (*op.operands, op.output))
    return Product(m, n, k, itemsize, op, compute_dtype(op, program)) if min(m, n, k) else None


def each_seconds(product: Product, machine: Machine, ranks: int) -> float:
    """Of one multiplication at the best rate of any device, as the library's class of products: a measurement of the
    operation itself counts instead."""
    op = product.operation
    found = []
    for device in machine.devices:
        own = [curve for pace in device.paces for curve in pace.operations]
        if own:
            return 0.0
        work = device.work(kernel_class(op), product.dtype, ranks)
        found.append(float(flops_per_point(op)) * work.least)
    return min(found)


def levels_of(machine: Machine, ranks: int) -> Iterator[tuple[int, int, float]]:
    """Groups of ranks: how many ranks each has at most, how many ranks there are, and the bytes a second that a rank
    receives from outside of its group at most."""
    sizes = [1, *(size for _, size in machine.reaches)]
    for size, wider in pairwise(sizes):
        scopes = {scope for scope, reach in machine.reaches if reach >= wider}
        rates = [link.gb_per_s * 1e9 for link in machine.links if link.scope in scopes]
        if size < ranks and rates:
            yield size, ranks, max(rates)


def touched(product: Product, groups: float) -> float:
    """Least elements that so many equal groups touch together, each its share of the multiplications."""
    share = product.m * product.n * product.k / groups
    least = sorted((share / product.m, share / product.n, share / product.k), reverse=True)
    even = math.pow(share, 2 / 3)
    if least[0] <= even:
        return groups * 3 * even
    rest = share / sqrt(least[0])
    if least[1] <= rest:
        return groups * (least[0] + 2 * rest)
    return groups * (least[0] + least[1] + share * share / (least[0] * least[1]))


def shared_seconds(product: Product, each: float, size: int, ranks: int, rate: float) -> float:
    """The least time in which groups of ``size`` ranks can both compute a product and receive what they must."""
    alone = product.m * product.n * product.k * each / size  # on one group
    held = product.m * product.n + product.m * product.k + product.k * product.n
    low, high = alone * size / ranks, alone
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        received = (touched(product, alone / middle) - held) * product.itemsize if middle else 0.0
        low, high = (middle, high) if received > ranks * rate * middle else (low, middle)
    return low
