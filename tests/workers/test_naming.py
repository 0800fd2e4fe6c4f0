"""Every operation of the examples has a kernel on a device that is not here."""

from __future__ import annotations

import pytest

from tapestry.planner import plan
from tapestry.workers.naming import kernels_of_plan

from ..files import example

SMALL = {"d": 128, "heads": 2, "kv_heads": 1, "ffn": 256, "layers": 1}


@pytest.mark.parametrize(
    ("name", "entry", "sizes"),
    [
        ("llama", "forward", {**SMALL, "tokens": 256}),
        ("llama", "decode_step", {**SMALL, "context": 64, "vocabulary": 96}),
        ("moe", "layer", {"t": 64}),
        ("corners", "corners", {"y": 64, "x": 64}),
    ],
)
def test_operations_have_kernels(name: str, entry: str, sizes: dict[str, int]) -> None:
    program = getattr(example(name), entry).bind(**sizes)
    made = plan(program, "h200x8", mesh=(1,), time_limit=5)
    found = kernels_of_plan(made.resolved, "cupy")
    assert set(found) == {op.name for op in program.operations}
    assert all(found.values())


def test_attention_is_the_librarys_and_is_read_by_a_product() -> None:
    program = example("llama").forward.bind(**SMALL, tokens=256)
    found = kernels_of_plan(plan(program, "h200x8", mesh=(1,), time_limit=5).resolved, "cupy")
    assert found["layers.0.attention.state"] == ("within layers.0.add",)
    assert found["layers.0.add"] == ("cuDNN attention", "cublasLtMatmul")
    assert found["layers.0.down"] == ("within layers.0.add_1",)
    assert found["layers.0.add_1"] == ("cublasLtMatmul, added to what lies there",)
