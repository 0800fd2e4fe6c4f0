"""Cases of reads and writes at places that the data say."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

import tapestry as tp

from .registry import Cases, floats, whole

CASES = Cases()
TABLE, CUBE = floats(7, 3), floats(4, 5, 3)
IDS = whole(3, 2, low=0, high=7)
PLACES = whole(6, low=0, high=4, seed=1)
AT = np.array(2)

CASES.torch("embedding", tp.embedding, F.embedding, IDS, TABLE)
CASES.numpy("take", lambda x, ids: tp.take(x, ids, 1), lambda x, ids: np.take(x, ids, 1), CUBE, IDS % 5)
CASES.torch("take", lambda x, ids: tp.take(x, ids), lambda x, ids: x[ids], TABLE, IDS)
CASES.torch(
    "take_along_axis",
    lambda x, ids: tp.take_along_axis(x, ids, 1),
    lambda x, ids: torch.gather(x, 1, ids),
    CUBE,
    whole(4, 6, 3, low=0, high=5),
)
CASES.torch(
    "dynamic_slice",
    lambda x, at: tp.dynamic_slice(x, [1, at, 0], [2, 3, 3]),
    lambda x, at: x[1:3, int(at) : int(at) + 3],
    CUBE,
    AT,
)


def with_window(x: torch.Tensor, update: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    found = x.clone()
    found[:, int(at) : int(at) + 2] = update
    return found


CASES.torch(
    "dynamic_update_slice",
    lambda x, update, at: tp.dynamic_update_slice(x, update, [0, at, 0]),
    with_window,
    CUBE,
    floats(4, 2, 3, seed=1),
    AT,
)
CASES.torch("one_hot", lambda ids: tp.one_hot(ids, 7, dtype="int64"), lambda ids: F.one_hot(ids, 7), IDS)
CASES.torch(
    "scatter_add",
    lambda x, ids, updates: tp.scatter_add(x, ids, updates),
    lambda x, ids, updates: x.index_add(0, ids, updates),
    CUBE,
    PLACES,
    floats(6, 5, 3, seed=2),
)
CASES.torch(
    "segment_sum",
    lambda x, ids: tp.segment_sum(x, ids, 5),
    lambda x, ids: torch.zeros(5, 3, dtype=x.dtype).index_add(0, ids, x),
    floats(6, 3, seed=3),
    PLACES,
)
CASES.torch("cross_entropy", tp.cross_entropy, F.cross_entropy, TABLE, whole(7, low=0, high=3))
CASES.torch(
    "cross_entropy",
    lambda x, labels: tp.cross_entropy(x, labels, reduction="none"),
    lambda x, labels: F.cross_entropy(x.transpose(1, 2), labels, reduction="none"),
    CUBE,
    whole(4, 5, low=0, high=3),
)
PICTURES, POINTS = floats(2, 3, 4, 5, seed=6), floats(2, 3, 4, 2, low=-1.3, high=1.3, seed=7)
for setting in (
    {},
    {"align_corners": True},
    {"padding": "border"},
    {"mode": "nearest"},
    {"mode": "nearest", "padding": "border", "align_corners": True},
):
    CASES.torch(
        "grid_sample",
        lambda x, grid, s=setting: tp.grid_sample(x, grid, **s),
        lambda x, grid, s=setting: F.grid_sample(
            x, grid, s.get("mode", "bilinear"), s.get("padding", "zeros"), s.get("align_corners", False)
        ),
        PICTURES,
        POINTS,
        held=(1,) if "mode" in setting else (),
    )
for aligned in (False, True):
    CASES.torch(
        "affine_grid",
        lambda theta, a=aligned: tp.affine_grid(theta, (2, 1, 4, 3), align_corners=a),
        lambda theta, a=aligned: F.affine_grid(theta, (2, 1, 4, 3), align_corners=a),
        floats(2, 2, 3, seed=8),
    )
