"""Cases of operations with several results, of order, and of counts."""

from __future__ import annotations

import numpy as np
import torch

import tapestry as tp

from .registry import Cases, floats, whole

CASES = Cases()
ROWS, CUBE, LONG = floats(3, 7), floats(2, 5, 3, seed=1), floats(2, 67, seed=2)
TIED = whole(4, 9, low=0, high=4, dtype="int32", seed=3)

CASES.torch("var_mean", lambda x: tp.var_mean(x, 1), lambda x: torch.var_mean(x, 1, correction=0), ROWS)
CASES.torch(
    "var_mean",
    lambda x: tp.var_mean(x, (0, 2), correction=1, keepdims=True),
    lambda x: torch.var_mean(x, (0, 2), correction=1, keepdim=True),
    CUBE,
)
CASES.torch("std_mean", lambda x: tp.std_mean(x, -1), lambda x: torch.std_mean(x, -1, correction=0), CUBE)
CASES.torch("aminmax", lambda x: tp.aminmax(x, 1), lambda x: torch.aminmax(x, dim=1), ROWS)
CASES.torch("aminmax", lambda x: tp.aminmax(x), lambda x: torch.aminmax(x), TIED)
CASES.torch(
    "components",
    lambda x: tp.components("moments", x, 0),
    lambda x: (torch.full((7,), 3.0, dtype=x.dtype), x.mean(0), ((x - x.mean(0)) ** 2).sum(0)),
    ROWS,
)
CASES.numpy("components", lambda x: tp.components("top3", x), lambda x: tuple(np.sort(x, None)[::-1][:3]), TIED)
CASES.torch("max_with_index", lambda x: tp.max_with_index(x, 1), lambda x: torch.max(x, 1), CUBE)
CASES.torch(
    "min_with_index", lambda x: tp.min_with_index(x, 0, keepdims=True), lambda x: torch.min(x, 0, keepdim=True), ROWS
)
CASES.numpy("max_with_index", lambda x: tp.max_with_index(x, 1), lambda x: (x.max(1), x.argmax(1)), TIED)
CASES.torch("topk", lambda x: tp.topk(x, 3), lambda x: torch.topk(x, 3), ROWS)
CASES.torch("topk", lambda x: tp.topk(x, 2, 1, largest=False), lambda x: torch.topk(x, 2, 1, largest=False), CUBE)
SINGLE = ROWS.astype("float32")
CASES.numpy("topk", lambda x: tp.topk(x, 3), lambda x: torch.topk(torch.from_numpy(x), 3), SINGLE)
CASES.numpy(
    "topk",
    lambda x: tp.topk(x, 5)[1],
    lambda x: np.argsort(-x, axis=1, kind="stable")[:, :5],
    TIED,
)
CASES.torch("sort", lambda x: tp.sort(x, 1), lambda x: torch.sort(x, 1).values, ROWS)
CASES.torch("sort", lambda x: tp.sort(x, descending=True), lambda x: torch.sort(x, descending=True).values, LONG)
CASES.numpy("sort", lambda x: tp.sort(x, 1), lambda x: np.sort(x, 1), LONG.astype("float32"))
CASES.numpy("argsort", lambda x: tp.argsort(x, 1), lambda x: np.argsort(x, 1, kind="stable"), TIED)
CASES.torch("kthvalue", lambda x: tp.kthvalue(x, 2, 1), lambda x: torch.kthvalue(x, 2, 1), CUBE)
CASES.torch("median", lambda x: tp.median(x, 1), lambda x: torch.median(x, 1), ROWS)
CASES.numpy("bincount", lambda x: tp.bincount(x, 5), lambda x: np.bincount(x.ravel(), minlength=5), TIED)
CASES.torch(
    "bincount",
    lambda x, w: tp.bincount(x, 5, weights=w),
    lambda x, w: torch.zeros(5, dtype=w.dtype).index_add(0, x, w),
    whole(9, low=0, high=5, seed=4),
    floats(9, seed=5),
)
CASES.numpy(
    "histogram",
    lambda x: tp.histogram(x, 8, -1.5, 1.75),
    lambda x: np.histogram(x, 8, (-1.5, 1.75))[0],
    CUBE,
)
