"""Cases of scans."""

from __future__ import annotations

import torch

import tapestry as tp

from .registry import Cases, floats

CASES = Cases()
ROWS, LONG = floats(3, 7), floats(2, 70, seed=1)
DECAY, NEW = floats(5, 3, low=-0.9, high=0.9), floats(5, 3, seed=2)


def _recurrence(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    h = [b[0]]
    for decay, new in zip(a[1:], b[1:], strict=True):
        h.append(decay * h[-1] + new)
    return torch.stack(h)


CASES.torch("cumsum", lambda x: tp.cumsum(x, 1), lambda x: torch.cumsum(x, 1), ROWS)
CASES.torch("cumsum", lambda x: tp.cumsum(x, 1), lambda x: torch.cumsum(x, 1), LONG)
CASES.torch("cumprod", lambda x: tp.cumprod(x, 1), lambda x: torch.cumprod(x, 1), ROWS)
CASES.torch("cummax", lambda x: tp.cummax(x, 1), lambda x: torch.cummax(x, 1).values, ROWS)
CASES.torch("cummin", lambda x: tp.cummin(x, 0), lambda x: torch.cummin(x, 0).values, ROWS)
CASES.torch("logcumsumexp", lambda x: tp.logcumsumexp(x, 1), lambda x: torch.logcumsumexp(x, 1), ROWS)
CASES.torch("recurrence", tp.recurrence, _recurrence, DECAY, NEW)
CASES.torch(
    "scan",
    lambda x: tp.scan("sum", x, 1, reverse=True, blocks=3),
    lambda x: torch.flip(torch.cumsum(torch.flip(x, [1]), 1), [1]),
    ROWS,
)
