"""Filters, scans and products of the kind one writes first, each beside plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32, num

from .beside_numpy import Cases, ints

case = Cases()


# --- filters --------------------------------------------------------------------------------------------------------

x16, w3 = ints(16), ints(3, seed=1)


@case(lambda x, w: np.correlate(x, w, "valid"), x=x16, w=w3)
@tp.op
def correlate(x: num[Tensor, "n"], w: num[Tensor, "k"]) -> num[Tensor, "p"]:
    p, k = tp.indices("p k")
    return tp.sum[k](x[p + k] * w[k])


@case(lambda x, w: np.convolve(x, w, "valid"), x=x16, w=w3)
@tp.op
def convolve_valid(x: num[Tensor, "n"], w: num[Tensor, "k"]) -> num[Tensor, "p"]:
    p, k = tp.indices("p k")
    return tp.sum[k](x[p + w.shape[0] - 1 - k] * w[k])


@case(np.convolve, x=x16, w=w3)
@tp.op
def convolve_full(x: num[Tensor, "n"], w: num[Tensor, "k"]) -> num[Tensor, "p=n+k-1"]:
    p, k = tp.indices("p k")
    return tp.sum[k](x.get[p - k] * w[k])


@case(np.convolve, x=x16, w=w3)
@tp.op
def convolve_full_by_a_condition(x: num[Tensor, "n"], w: num[Tensor, "k"]) -> num[Tensor, "p=n+k-1"]:
    p, k = tp.indices("p k")
    return tp.sum[k](x[p - k] * w[k], where=(k <= p) & (p - k < x.shape[0]))


@case(lambda x, w: np.convolve(x, w)[: len(x)], x=x16, w=w3)
@tp.op
def fir(x: num[Tensor, "n"], w: num[Tensor, "k"]) -> num[Tensor, "t"]:
    t, s = tp.indices("t s")
    return tp.sum[s](x[t - s] * w[s], where=s <= t)


@case(lambda x, w: np.convolve(x, w)[: len(x) : 2], x=x16, w=w3)
@tp.op
def decimated_fir(x: num[Tensor, "n"], w: num[Tensor, "k"]) -> num[Tensor, "t"]:
    t, s = tp.indices("t s")
    return tp.sum[s](x[2 * t - s] * w[s], where=s <= 2 * t)


@case(
    lambda x, w: np.convolve(np.stack([x, 0 * x, 0 * x], 1).ravel(), w)[: 3 * len(x)],
    x=x16,
    w=ints(9, seed=2),
)
@tp.op
def polyphase(x: num[Tensor, "n"], w: num[Tensor, "m"]) -> num[Tensor, "p=3*n"]:
    p, r = tp.indices("p", r=3)
    return tp.sum[r](x.get[p // 3 - r] * w[p % 3 + 3 * r])


@case(lambda x, w: [sum(x[p + 4 * k] * w[k] for k in range(3)) for p in range(8)], x=x16, w=w3)
@tp.op
def dilated(x: num[Tensor, "n"], w: num[Tensor, "k"]) -> num[Tensor, "p"]:
    p, k = tp.indices("p k")
    return tp.sum[k](x[p + 4 * k] * w[k])


def transposed_by_scatter(x: np.ndarray, w: np.ndarray, stride: int = 2) -> np.ndarray:
    out = np.zeros(stride * (len(x) - 1) + len(w), np.int32)
    for i, value in enumerate(x):
        out[stride * i : stride * i + len(w)] += value * w
    return out


@case(transposed_by_scatter, x=x16, w=w3)
@tp.op
def transposed(x: num[Tensor, "n"], w: num[Tensor, "k"]) -> num[Tensor, "p=2*n+k-2"]:
    p, k = tp.indices("p k")
    reads = tp.where((p - k) % 2 == 0, x.get[(p - k) // 2], 0)
    return tp.sum[k](reads * w[k])


@case(transposed_by_scatter, x=x16, w=w3)
@tp.op
def transposed_as_a_scatter(x: num[Tensor, "n"], w: num[Tensor, "k"]) -> num[Tensor, "p=2*n+k-2"]:
    p, n, k = tp.indices("p n k")
    return tp.sum[n, k](x[n] * w[k], where=2 * n + k == p)


@case(lambda x: np.lib.stride_tricks.sliding_window_view(x, 4).max(1), x=x16)
@tp.op
def sliding_max(x: num[Tensor, "n"]) -> num[Tensor, "p"]:
    p, r = tp.indices("p", r=4)
    return tp.max[r](x[p + r])


@case(lambda x: [x[max(0, t - 3) : t + 1].sum() for t in range(len(x))], x=x16)
@tp.op
def trailing_sum(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n, s = tp.indices("n s")
    return tp.sum[s](x[s], where=(s <= n) & (s > n - 4))


@case(lambda x: x[np.arange(-1, 17).clip(0, 15)], x=x16)
@tp.op
def replicated_edges(x: num[Tensor, "n"]) -> num[Tensor, "p=n+2"]:
    p, s = tp.indices("p s")
    hit = tp.where(
        p == 0, tp.where(s == 0, 1, 0), tp.where(p >= 17, tp.where(s == 15, 1, 0), tp.where(s == p - 1, 1, 0))
    )
    return tp.sum[s](x[s] * hit)


# --- scans and triangles --------------------------------------------------------------------------------------------


@case(np.cumsum, x=x16)
@tp.op
def prefix_sums(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n, s = tp.indices("n s")
    return tp.sum[s](x[s], where=s <= n)


@case(lambda x: np.concatenate([[0], np.cumsum(x)[:-1]]), x=x16)
@tp.op
def exclusive_prefix_sums(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n, s = tp.indices("n s")
    return tp.sum[s](x[s], where=s < n)


@case(lambda x: np.cumsum(x[::-1])[::-1], x=x16)
@tp.op
def suffix_sums(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n, s = tp.indices("n s")
    return tp.sum[s](x[s], where=s >= n)


@case(lambda x: np.maximum.accumulate(x), x=x16)
@tp.op
def running_max(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n, s = tp.indices("n s")
    return tp.max[s](x[s], where=s <= n)


@case(lambda x: np.cumsum(np.cumsum(x, 0), 1), x=ints(5, 6))
@tp.op
def integral_image(x: num[Tensor, "y x"]) -> num[Tensor, "y x"]:
    y, z, s, t = tp.indices("y x s t")
    return tp.sum[s, t](x[s, t], where=(s <= y) & (t <= z))


@case(lambda a, b: np.tril(a) @ b, a=ints(6, 6), b=ints(6, 4))
@tp.op
def lower_triangular_product(a: num[Tensor, "n n"], b: num[Tensor, "n m"]) -> num[Tensor, "n m"]:
    n, k, m = tp.indices("n k m")
    return tp.sum[k](a[n, k] * b[k, m], where=k <= n)


@case(lambda a, b: np.tril(a) @ np.tril(b), a=ints(6, 6), b=ints(6, 6, seed=3))
@tp.op
def triangles(a: num[Tensor, "n n"], b: num[Tensor, "n n"]) -> num[Tensor, "n m=n"]:
    n, k, m = tp.indices("n k m")
    return tp.sum[k](a[n, k] * b[k, m], where=(k <= n) & (m <= k))


def banded_dense(bands: np.ndarray, x: np.ndarray) -> np.ndarray:
    half, n = bands.shape[1] // 2, len(bands)
    return np.array(
        [sum(bands[i, d] * x[i + d - half] for d in range(2 * half + 1) if 0 <= i + d - half < n) for i in range(n)]
    )


@case(banded_dense, a=ints(9, 5), x=ints(9))
@tp.op
def banded_product(a: num[Tensor, "n d"], x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n, d = tp.indices("n d")
    return tp.sum[d](a[n, d] * x.get[n + d - a.shape[1] // 2])


@case(banded_dense, a=ints(9, 5), x=ints(9))
@tp.op
def banded_product_over_columns(a: num[Tensor, "n d"], x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n, k = tp.indices("n k")
    return tp.sum[k](a[n, k - n + 2] * x[k], where=(k - n <= 2) & (k - n >= -2))


@case(lambda x: np.diff(x, prepend=0), x=x16)
@tp.op
def differences(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n = tp.indices("n")
    return x[n] - tp.where(n >= 1, x[n - 1], 0)


@case(lambda x: np.concatenate([[x[1] - x[0]], x[2:] - x[:-2], [x[-1] - x[-2]]]), x=x16)
@tp.op
def central_differences(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n = tp.indices("n")
    after = tp.where(n < x.shape[0] - 1, x[n + 1], x[n])
    return after - tp.where(n < 1, x[n], x[n - 1])


@case(lambda x: [x[n - 1] if n and x[n] > 0 else 0 for n in range(16)], x=x16)
@tp.op
def predecessors_of_positives(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n = tp.indices("n")
    return tp.where((n >= 1) & (x[n] > 0), x[n - 1], 0)


@case(lambda x: [0 if n < 3 or x[n] > 0 else x[n - 3] for n in range(16)], x=x16)
@tp.op
def what_neither_condition_excludes(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n = tp.indices("n")
    return tp.where((n < 3) | (x[n] > 0), 0, x[n - 3]) + tp.where(~(n < 3), 0 * x[n - 3], 0)


@case(lambda x, w: np.convolve(x, w)[: len(x)], x=x16, w=w3)
@tp.op
def fir_by_a_choice(x: num[Tensor, "n"], w: num[Tensor, "k"]) -> num[Tensor, "t=n"]:
    t, s = tp.indices("t s")
    return tp.sum[s](tp.where(s <= t, x[t - s], 0) * w[s])


@case(lambda x: sum(x[i].max() * (i + 1) for i in range(4)), x=ints(4, 5))
@tp.op
def a_fold_needed_at_some_points(x: num[Tensor, "n m"]) -> num[Tensor, ""]:
    i, j = tp.indices("j", i=5)[::-1]
    return tp.sum[i](tp.max[j](x[i - 1, j]) * i, where=i >= 1)


@case(lambda x: [[x[i : j + 1].sum() for j in range(6)] for i in range(6)], x=ints(6))
@tp.op
def interval_sums(x: num[Tensor, "n"]) -> num[Tensor, "i=n j=n"]:
    i, j, s = tp.indices("i j s")
    return tp.sum[s](x[s], where=(i <= s) & (s <= j))


# --- products -------------------------------------------------------------------------------------------------------


@case(lambda a, b: a @ b, a=ints(3, 4), b=ints(4, 5))
@tp.op
def product(a: num[Tensor, "i k"], b: num[Tensor, "k j"]) -> num[Tensor, "i j"]:
    i, j, k = tp.indices("i j k")
    return tp.sum[k](a[i, k] * b[k, j])


@case(lambda a, b: a @ b.T, a=ints(3, 4), b=ints(5, 4))
@tp.op
def product_with_inferred_everything(a: num[Tensor, "a0 a1"], b: num[Tensor, "b0 b1"]) -> num[Tensor, "i j"]:
    i, j, k = tp.indices("i j k")
    return tp.sum[k](a[i, k] * b[j, k])


@case(np.outer, a=ints(3), b=ints(4))
@tp.op
def outer(a: num[Tensor, "n"], b: num[Tensor, "m"]) -> num[Tensor, "n m"]:
    n, m = tp.indices("n m")
    return a[n] * b[m]


@case(np.kron, a=ints(2, 3), b=ints(3, 2))
@tp.op
def kronecker(a: num[Tensor, "i j"], b: num[Tensor, "k l"]) -> num[Tensor, "p=i*k q=j*l"]:
    p, q = tp.indices("p q")
    return a[p // b.shape[0], q // b.shape[1]] * b[p % b.shape[0], q % b.shape[1]]


@case(np.trace, a=ints(5, 5))
@tp.op
def trace(a: num[Tensor, "n n"]) -> num[Tensor, ""]:
    i = tp.indices("i")
    return tp.sum[i](a[i, i])


@case(np.diag, a=ints(5, 5))
@tp.op
def diagonal(a: num[Tensor, "n n"]) -> num[Tensor, "p"]:
    p = tp.indices("p")
    return a[p, p]


@case(lambda a: np.diagonal(a, 2), a=ints(4, 7))
@tp.op
def upper_diagonal(a: num[Tensor, "n m"]) -> num[Tensor, "p"]:
    p = tp.indices("p")
    return a[p, p + 2]


@case(np.diag, x=ints(4))
@tp.op
def diagonal_matrix(x: num[Tensor, "n"]) -> num[Tensor, "n m=n"]:
    n, m = tp.indices("n m")
    return tp.where(n == m, x[n], 0)


@case(lambda a: np.diagonal(a[:, ::-1]).sum(), a=ints(5, 5))
@tp.op
def antitrace(a: num[Tensor, "n n"]) -> num[Tensor, ""]:
    n = tp.indices("n")
    return tp.sum[n](a[n, a.shape[1] - 1 - n])


@case(lambda a, x: np.einsum("ni,ij,nj->n", x, a, x), a=ints(4, 4), x=ints(3, 4))
@tp.op
def quadratic_form(a: num[Tensor, "i i"], x: num[Tensor, "n i"]) -> num[Tensor, "n"]:
    n, i, j = tp.indices("n i j")
    return tp.sum[i, j](x[n, i] * a[i, j] * x[n, j])


@case(lambda a, b, c: (a @ b) @ c, a=ints(2, 3), b=ints(3, 4), c=ints(4, 2))
@tp.op
def chain(a: num[Tensor, "i j"], b: num[Tensor, "j k"], c: num[Tensor, "k l"]) -> num[Tensor, "i l"]:
    i, j, k, l = tp.indices("i j k l")  # noqa: E741
    return tp.sum[k](tp.sum[j](a[i, j] * b[j, k]) * c[k, l])


@case(lambda x: ((x[:, None] - x[None]) ** 2).sum(-1), x=ints(5, 3))
@tp.op
def squared_distances(x: num[Tensor, "n d"]) -> num[Tensor, "n m=n"]:
    n, m, d = tp.indices("n m d")
    return tp.sum[d]((x[n, d] - x[m, d]) * (x[n, d] - x[m, d]))


@case(lambda a, b: (a[:, :, None] + b[None]).min(1), a=ints(4, 5), b=ints(5, 3))
@tp.op
def shortest_paths(a: num[Tensor, "i k"], b: num[Tensor, "k j"]) -> num[Tensor, "i j"]:
    i, j, k = tp.indices("i j k")
    return tp.min[k](a[i, k] + b[k, j])


@case(lambda x: x - x.sum(1, keepdims=True) + x.max(0), x=ints(4, 5))
@tp.op
def two_folds_of_one_letter(x: num[Tensor, "n m"]) -> num[Tensor, "n m"]:
    n, m, i = tp.indices("n m i")
    return x[n, m] - tp.sum[i](x[n, i]) + tp.max[i](x[i, m])


@case(lambda x: x.sum(1) * x.max(1) + x.sum(1), x=ints(4, 5))
@tp.op
def a_fold_used_twice(x: num[Tensor, "n m"]) -> num[Tensor, "n"]:
    n, m = tp.indices("n m")
    total = tp.sum[m](x[n, m])
    return total * tp.max[m](x[n, m]) + total


@case(lambda x: (x / x.sum(1, keepdims=True)).max(1), x=ints(4, 5, low=1).astype(np.float32))
@tp.op
def largest_share(x: f32[Tensor, "n m"]) -> f32[Tensor, "n"]:
    n, m = tp.indices("n m")
    return tp.max[m](x[n, m] / tp.sum[m](x[n, m]))


@case(lambda x: np.array([(x * (x <= v)).sum() for v in x]), x=ints(7))
@tp.op
def sums_below(x: num[Tensor, "n"]) -> num[Tensor, "n"]:
    n, m = tp.indices("n m")
    return tp.sum[m](tp.where(x[m] <= x[n], x[m], 0))


@pytest.mark.parametrize("name", case)
def test_it_is_what_numpy_computes(name: str) -> None:
    case[name].assert_numpy_agrees()


@pytest.mark.parametrize("name", case)
def test_three_devices_compute_it_too(name: str) -> None:
    case[name].assert_three_devices_agree()
