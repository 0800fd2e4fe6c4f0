"""Block operations as a user declares them, in a file of their own: sorted rows, products with a pairwise sum, means
weighted by the softmax of scores."""

from __future__ import annotations

from typing import Any

import numpy as np

import tapestry as tp
from tapestry import Tensor


def sorted_rows(x: Any, *, descending: bool = False) -> Any:
    """[..., s] -> [..., s], ascending."""
    found = np.sort(x, axis=-1)
    return found[..., ::-1] if descending else found


def sorted_on_gpu(x: Any, *, descending: bool = False) -> Any:
    return x.sort(dim=-1, descending=descending).values


SORTED = tp.block(
    "sorted_rows", sorted_rows, operands="x", fold=1, make=1, torch=sorted_on_gpu,
    work=lambda extents: extents["s"] * max(1, extents["s"].bit_length()),
)  # fmt: skip


def spread(x: Any, w: Any, *, scale: float) -> Any:
    """x [n, s], w [1, s, k] -> [n, k]: scale times the product."""
    return scale * np.einsum("...s,...sk->...k", x, np.broadcast_to(w, (*x.shape[:-1], *w.shape[-2:])))


def spread_back(g: Tensor, x: Tensor, w: Tensor, *, scale: float) -> tuple[Tensor, Tensor]:
    """The cotangents of x [n, s] and w [s, k]."""
    return scale * tp.einsum("nk,sk->ns", g, w), scale * tp.einsum("nk,ns->sk", g, x)


SPREAD = tp.block("spread", spread, operands="x w", fold=1, make=1, derivative=spread_back)


def soft_mean(score: Any, v: Any) -> Any:
    """score [n, s], v [n, s, c] (0 for the last two c) -> records (o_0 ... o_{e-1}, l, m) of the softmax over s."""
    m = score.max(axis=-1, keepdims=True)
    p = np.exp(score - m)
    found = np.einsum("...s,...sc->...c", p, np.broadcast_to(v, (*p.shape, v.shape[-1]))).astype(np.float64)
    found[..., -2], found[..., -1] = p.sum(axis=-1), m[..., 0]
    return found


SOFT_MEAN = tp.block("soft_mean", soft_mean, operands="score v", fold=1, make=1, monoid="online_softmax")
