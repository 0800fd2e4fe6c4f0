"""How a batch norm is cut, and what the compiler makes of its kernels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.kernels.normalization import batch_norm
from tapestry.kernels.normalization.batch_norm import NormKind
from tapestry.kernels.normalization.stretches import RESIDENTS, THREADS, balanced

REGISTERS = 65536  # of a multiprocessor

KINDS = [
    NormKind("bf16", 8, "silu"),
    NormKind("bf16", 8),
    NormKind("f16", 8, "relu", True),
    NormKind("bf16", 8, "gelu", True),
    NormKind("f32", 4, "hardswish", True),
    NormKind("f16", 1, "relu6"),
    NormKind("bf16", 8, "silu", parameters="bf16"),
]


@given(st.integers(2, 2_000_000), st.integers(1, 2048), st.sampled_from([1, 2, 4, 8]), st.integers(1, 700))
def test_every_row_and_channel_has_one_thread(rows: int, vectors: int, vector: int, room: int) -> None:
    cut = balanced(rows, vectors * vector, vector, room)
    assert (cut.blocks - 1) * cut.stretch < rows <= cut.blocks * cut.stretch
    assert (cut.parts - 1) * cut.lanes < vectors <= cut.parts * cut.lanes
    assert cut.slots >= 1
    assert cut.lanes * cut.slots <= THREADS
    assert cut.blocks * cut.parts <= max(room, cut.parts)  # one turn
    assert cut.blocks <= 65535
    assert len(cut.argument) == 32


@given(st.integers(1, 64))
def test_few_threads_have_nothing_to_do(octets: int) -> None:
    """Of channels that are whole vectors."""
    cut = balanced(100_000, 8 * octets, 8, 396)
    assert cut.lanes * cut.slots * octets >= 0.75 * THREADS * cut.parts * cut.lanes


@pytest.mark.parametrize(
    ("channels", "dtype", "vector"), [(24, "bf16", 8), (12, "bf16", 4), (12, "f32", 4), (17, "f16", 1), (18, "f32", 2)]
)
def test_a_vector_divides_the_channels(channels: int, dtype: str, vector: int) -> None:
    assert NormKind.of(channels, dtype).vector == vector


@pytest.mark.parametrize(
    "kind", KINDS, ids=lambda kind: f"{kind.dtype} {kind.vector} {kind.activation} {kind.residual} {kind.parameters}"
)
def test_no_register_is_spilled(kind: NormKind) -> None:
    report = kind.recipe("norm_apply").compile().report
    assert set(report) == set(batch_norm.KERNELS)
    for name, used in report.items():
        assert (used.spill_stores, used.spill_loads, used.stack) == (0, 0, 0), name
        assert used.registers * THREADS * RESIDENTS <= REGISTERS, name
