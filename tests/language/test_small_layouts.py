"""Programs that move or count elements, of the kind one writes first, each beside plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, int32, num

from .beside_numpy import Cases, ints

case = Cases()
x16, w3 = ints(16), ints(3, seed=1)


# --- layouts --------------------------------------------------------------------------------------------------------


@case(lambda x: np.roll(x, -5), x=x16)
@tp.op
def circular_shift(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n = tp.indices("n")
    return x[(n + 5) % x.shape[0]]


@case(lambda x: np.roll(x, 5), x=x16)
@tp.op
def circular_shift_back(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n = tp.indices("n")
    return x[(n - 5) % x.shape[0]]


@case(lambda x, w: [sum(x[(t - k) % 16] * w[k] for k in range(3)) for t in range(16)], x=x16, w=w3)
@tp.op
def circular_convolution(x: num[Tensor, "n"], w: num[Tensor, "k"]) -> num[Tensor, "n"]:
    n, k = tp.indices("n k")
    return tp.sum[k](x[(n - k) % x.shape[0]] * w[k])


@case(lambda x: [[x[(j - i) % 6] for j in range(6)] for i in range(6)], x=ints(6))
@tp.op
def circulant(x: num[Tensor, "n"]) -> num[Tensor, "n m=n"]:
    n, m = tp.indices("n m")
    return x[(m - n) % x.shape[0]]


@case(lambda x: [[x[5 + i - j] for j in range(6)] for i in range(4)], x=ints(9))
@tp.op
def toeplitz(x: num[Tensor, "n"], *, m: int = 6) -> num[Tensor, "p m"]:
    p, j = tp.indices("p m")
    return x[m - 1 + p - j]


@case(lambda x: x.reshape(2, 3, 2, 4, 2).transpose(0, 2, 4, 1, 3).reshape(2, 4, 3, 4), x=ints(2, 6, 8))
@tp.op
def space_to_depth(x: num[Tensor, "n y x"]) -> num[Tensor, "n 4 p q"]:
    n, c, p, q = tp.indices("n d1 p q")
    return x[n, 2 * p + c // 2, 2 * q + c % 2]


@case(lambda x: x.reshape(2, 2, 2, 3, 4).transpose(0, 3, 1, 4, 2).reshape(2, 6, 8), x=ints(2, 4, 3, 4))
@tp.op
def depth_to_space(x: num[Tensor, "n 4 y x"]) -> num[Tensor, "n p=2*y q=2*x"]:
    n, p, q = tp.indices("n p q")
    return x[n, p % 2 * 2 + q % 2, p // 2, q // 2]


@case(lambda x: x.repeat(3), x=ints(5))
@tp.op
def upsampled(x: num[Tensor, "n"]) -> num[Tensor, "p"]:
    p = tp.indices("p")
    return x[p // 3]


@case(lambda x: np.tile(x, 3), x=ints(5))
@tp.op
def tiled(x: num[Tensor, "n"]) -> num[Tensor, "p=3*n"]:
    p = tp.indices("p")
    return x[p % x.shape[0]]


@case(lambda x: x[::-1], x=ints(5))
@tp.op
def reversed_(x: num[Tensor, "n"]) -> num[Tensor, "p"]:
    p = tp.indices("p")
    return x[x.shape[0] - 1 - p]


@case(lambda x: x[1::3], x=x16)
@tp.op
def strided(x: num[Tensor, "n"]) -> num[Tensor, "p"]:
    p = tp.indices("p")
    return x[3 * p + 1]


@case(lambda a, b: np.stack([a, b], 1).ravel(), a=ints(5), b=ints(5, seed=2))
@tp.op
def interleaved(a: num[Tensor, "n"], b: num[Tensor, "n"]) -> num[Tensor, "p=2*n"]:
    p = tp.indices("p")
    return tp.where(p % 2 == 0, a[p // 2], b[p // 2])


@case(lambda x: x.reshape(3, 4).T.ravel(), x=ints(12))
@tp.op
def shuffled_channels(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n = tp.indices("n")
    return x[n % 3 * 4 + n // 3]


@case(lambda x: x.reshape(4, 4).sum(1), x=x16)
@tp.op
def block_sums(x: num[Tensor, "n"]) -> num[Tensor, "p"]:
    p, r = tp.indices("p", r=4)
    return tp.sum[r](x[4 * p + r])


@case(lambda x: np.bincount(np.arange(16) % 5, x, 5).astype(int), x=x16)
@tp.op
def folded_modulo(x: num[Tensor, "n"]) -> num[Tensor, "5"]:
    n, c = tp.indices("n d0")
    return tp.sum[n](x[n], where=n % 5 == c)


# --- counting -------------------------------------------------------------------------------------------------------

labels = ints(20, low=0, high=6)


@case(lambda x: np.bincount(x, minlength=8), x=labels)
@tp.op
def histogram(x: int32[Tensor, "n"], *, bins: int = 8) -> int32[Tensor, "bins"]:
    n, b = tp.indices("n bins")
    return tp.sum[n](tp.where(x[n] == b, 1, 0))


@case(lambda x: np.eye(8)[x], x=labels)
@tp.op
def one_hot(x: int32[Tensor, "n"], *, k: int = 8) -> f32[Tensor, "n k"]:
    n, k_ = tp.indices("n k")
    return tp.where(x[n] == k_, 1.0, 0.0)


@case(lambda x: np.eye(20, 30), x=labels)
@tp.op
def eye(x: int32[Tensor, "n"], *, m: int = 30) -> f32[Tensor, "n m"]:
    n, m_ = tp.indices("n m")
    return tp.where(n == m_, 1.0, 0.0)


@case(lambda x: np.argsort(np.argsort(x, kind="stable"), kind="stable"), x=labels)
@tp.op
def ranks(x: int32[Tensor, "n"]) -> int32[Tensor, "n"]:
    n, m = tp.indices("n m")
    before = (x[m] < x[n]) | ((x[m] == x[n]) & (m < n))
    return tp.sum[m](tp.where(before, 1, 0))


@case(lambda x: [np.min(np.where(x == v)[0], initial=20) for v in range(8)], x=labels)
@tp.op
def first_occurrence(x: int32[Tensor, "n"], *, k: int = 8) -> num[Tensor, "k"]:
    n, k_ = tp.indices("n k")
    return tp.min[n](tp.where(x[n] == k_, n, x.shape[0]))


@case(lambda x: np.arange(20) * 3 + 1 - x, x=labels)
@tp.op
def index_values(x: int32[Tensor, "n"]) -> num[Tensor, "n"]:
    n = tp.indices("n")
    return (3 * n + 1) - x[n]


@case(lambda x: (np.arange(20) // 3 % 4).astype(np.float32) * 0.5 + x, x=labels.astype(np.float32))
@tp.op
def scaled_positions(x: f32[Tensor, "n"]) -> f32[Tensor, "n"]:
    n = tp.indices("n")
    return n // 3 % 4 * 0.5 + x[n]


@case(lambda x: x.sum() * np.ones(20, int), x=labels)
@tp.op
def total_everywhere(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    m = tp.indices("m")
    return tp.sum[m](x[m])


@case(lambda x: sum(x[i] * x[j] for i in range(7) for j in range(i)), x=ints(7))
@tp.op
def pair_products(x: num[Tensor, "n"]) -> num[Tensor, ""]:
    i, j = tp.indices("i j")
    return tp.sum[i, j](x[i] * x[j], where=j < i)


@case(lambda x: sum(x[i] * x[:i].max(initial=-(2**31)) for i in range(1, 7)), x=ints(7))
@tp.op
def fold_in_a_fold_with_conditions(x: num[Tensor, "n"]) -> num[Tensor, ""]:
    i, j = tp.indices("i j")
    return tp.sum[i](x[i] * tp.max[j](x[j], where=j < i), where=i >= 1)


@pytest.mark.parametrize("name", case)
def test_it_is_what_numpy_computes(name: str) -> None:
    case[name].assert_numpy_agrees()


@pytest.mark.parametrize("name", case)
def test_three_devices_compute_it_too(name: str) -> None:
    case[name].assert_three_devices_agree()
