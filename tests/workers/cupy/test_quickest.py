"""Large products of f32 are by the algorithm that is measured to be the quickest."""

from __future__ import annotations

import pytest

from tapestry.dtypes import numpy_dtype
from tapestry.workers.cupy.arrays import DeviceArray, Memory
from tapestry.workers.cupy.gemm import call_of, gemm_of
from tapestry.workers.cupy.lt import Call
from tapestry.workers.cupy.machine import Matrices, Product
from tapestry.workers.cupy.quickest import least, shape_of, worth_measuring


def call(rows: int, columns: int, folded: int, dtype: str = "f32", at: int = 1 << 20, *, added: bool = False) -> Call:
    kind = numpy_dtype(dtype)

    def lying(address: int, m: int, n: int) -> Matrices:
        return Matrices(DeviceArray(Memory(address, m * n * kind.itemsize, None), 0, (m, n), kind), 0, 0, n, 1)

    left, right, out = lying(at, rows, folded), lying(at << 8, folded, columns), lying(at << 9, rows, columns)
    product = Product(left, right, out, 1, rows, columns, folded, out if added else None)
    return call_of(gemm_of(product))


def test_only_large_ones_of_f32_are_measured() -> None:
    assert worth_measuring(call(4096, 1024, 512))
    assert worth_measuring(call(512, 4096, 1024))
    assert not worth_measuring(call(4096, 1024, 128)), "small"
    assert not worth_measuring(call(4096, 1024, 4096, "bf16")), "of tensor cores"


def test_one_answer_is_for_all_of_a_shape_wherever_they_are() -> None:
    assert shape_of(call(64, 32, 16)) == shape_of(call(64, 32, 16, at=1 << 22))
    others = (call(64, 32, 17), call(64, 33, 16), call(64, 32, 16, at=(1 << 20) + 4), call(64, 32, 16, added=True))
    assert len({shape_of(one) for one in (call(64, 32, 16), *others)}) == 5


@pytest.mark.parametrize(
    ("times", "chosen"),
    [([3.0], 0), ([3.0, 2.0, 1.0, 1.5], 2), ([3.0, 2.99], 0), ([float("inf"), 5.0], 1), ([3.0, float("inf")], 0)],
)
def test_the_quickest_is_taken_where_it_is_more_than_chance(times: list[float], chosen: int) -> None:
    assert least(times) == chosen
