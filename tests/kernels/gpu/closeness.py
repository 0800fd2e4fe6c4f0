"""How near norms on a GPU are to the definition in f64."""

from __future__ import annotations

import torch
from torch import Tensor

UNITS = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float32: 2.0**-18}


def close(found: Tensor, expected: Tensor, unit: float) -> None:
    scale = max(1.0, float(expected.detach().abs().max()))
    torch.testing.assert_close(found.double(), expected, rtol=unit, atol=unit * scale)
