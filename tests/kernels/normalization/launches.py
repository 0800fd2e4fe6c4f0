"""Launches of kernels of norms on the emulated machine, and how near their values are to the definition's."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tapestry.kernels.normalization.stretches import Launch

from ..convolution import emulated

Array = NDArray[Any]
DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32}
UNITS = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-18}


def run(library: ctypes.CDLL, launch: Launch, seed: int) -> None:
    """A launch of a kernel of a library (`host_compiler.emulated`)."""
    held = [np.float32(v).tobytes() if isinstance(v, float) else v for v in launch.arguments]
    emulated.start(getattr(library, f"run_{launch.kernel}"), launch.grid, (launch.block,), held, seed)


def close(found: Array, expected: Array, unit: float) -> None:
    """To a unit of each value, or of the largest."""
    scale = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=unit, atol=unit * scale)
