"""What is made of a library's attention: states or finished results, of one range of keys or of several."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tapestry.dtypes import numpy_dtype
from tapestry.workers.cupy.arrays import DeviceArray, Memory
from tapestry.workers.cupy.flash import storing_unit
from tapestry.workers.cupy.machine import Attention, Heads, Keys

from ...kernels.elementwise.host import Unit, build, needs_compiler

B, T, H, E = 2, 7, 3, 64
BF16 = numpy_dtype("bf16")


def attention(parts: int, *, finished: bool, head: int) -> Attention:
    """Of heads that stand so far apart in the result, behind some other elements."""
    nowhere = DeviceArray(Memory(0, 0, None), 0, (0,), BF16)
    q = Heads(nowhere, 0, 0, 0, 0)
    state = Heads(nowhere, 16, T * H * head, H * head, head)
    return Attention(q, q, q, state, B, T, H, H, E, 0.125, (Keys(0, 1, False),) * parts, finished)


def pointer(array: np.ndarray[Any, Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@needs_compiler
@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_parts_are_folded_by_their_sums_of_weights(parts: int, finished: bool) -> None:
    rng = np.random.default_rng(0)
    results = [rng.standard_normal((B, T, H, E), np.float32).astype(BF16) for _ in range(parts)]
    logs = [rng.standard_normal((B, H, T), np.float32) for _ in range(parts)]
    head = E if finished else E + 2
    made = attention(parts, finished=finished, head=head)
    steps = [((T * H * E, E, H * E, 1), (H * T, T, 1)) for _ in range(parts)]
    unit = storing_unit(made, steps)
    out = np.zeros(16 + B * T * H * head, BF16 if finished else np.float32)
    arguments = [array for pair in zip(results, logs, strict=True) for array in pair] + [out[16:]]
    library = build([Unit(unit.source, unit.entry, unit.blocks, unit.threads, len(arguments))])
    getattr(library, f"host_{unit.entry}")((ctypes.c_void_p * len(arguments))(*map(pointer, arguments)))
    weights = np.exp(np.stack([log.swapaxes(1, 2) for log in logs]))
    wanted = sum(w[..., None] * o.astype(np.float32) for w, o in zip(weights, results, strict=True))
    found = out[16:].reshape(B, T, H, head).astype(np.float32)
    total, largest = weights.sum(axis=0), np.log(weights).max(axis=0)
    if finished:
        np.testing.assert_allclose(found, wanted / total[..., None], rtol=2**-8, atol=2**-8)
        return
    np.testing.assert_allclose(found[..., E] * np.exp(found[..., E + 1]), total, rtol=1e-5)
    np.testing.assert_allclose(found[..., E + 1], largest, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[..., :E] * np.exp(largest)[..., None], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("finished", [False, True])
def test_no_register_is_spilled(finished: bool) -> None:
    from tapestry.kernels.runtime.compiler import compile_source

    unit = storing_unit(attention(2, finished=finished, head=E), [((1, 64, 64, 1), (1, 1, 1))] * 2)
    assert compile_source(unit.source, name=unit.entry, arch="sm_90").spill_stores == 0
