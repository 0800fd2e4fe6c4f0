"""Every element type through the whole: reference, plans run over ranks, files, and generated kernels on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor
from tapestry.dtypes import DTYPES, numpy_dtype
from tapestry.planner import plan
from tapestry.program import Program
from tapestry.reference import evaluate
from tapestry.reference.values import round_to
from tapestry.serialize import program_from_json, program_to_json
from tapestry.testing import assert_close, program_of
from tapestry.workers.stores.tensors import read_tensors, write_tensors

from ..kernels.elementwise.host import needs_compiler
from ..workers.cupy.conftest import on_host as on_host
from ..workers.unchecked import run_unchecked

NEW = ("uint8", "uint16", "int16", "uint32", "f8e4m3", "f8e5m2")
Array = np.ndarray[Any, Any]


def values_of(dtype: str, *shape: int) -> Array:
    """Numbers over most of the range, so that sums and products leave it."""
    rng = np.random.default_rng(len(dtype))
    if DTYPES[dtype].kind == "float":
        return (rng.normal(size=shape) * 4).astype(np.float32).astype(numpy_dtype(dtype))
    return rng.integers(0, 1 << 40, shape).astype(numpy_dtype(dtype))


def mixed(x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Arithmetic, folds, a window, conversions."""
    found = {
        "sum": x + y * 2,
        "total": tp.sum(x, 0),
        "most": tp.max(x, 0),
        "least": tp.min(x, 1),
        "window": tp.max_pool1d(x[None], 3, padding=1)[0],
        "product": tp.einsum("ik,jk->ij", x, y),
        "wide": x.astype("f32") / 3,
        "back": (x.astype("f32") * 1.0625).astype(x.dtype),
        "less": x < y,
    }
    if DTYPES[x.dtype].kind == "int":
        found |= {"third": x // 3, "rest": x % 7, "bits": x ^ y, "up": x << 3}
    return found


def mixed_program(dtype: str) -> tuple[Program, dict[str, Array]]:
    inputs = {"x": values_of(dtype, 6, 8), "y": values_of(dtype, 6, 8)[::-1].copy()}
    return program_of(mixed, **inputs), inputs


@pytest.mark.parametrize("dtype", NEW)
def test_plans_run_over_ranks(dtype: str, tmp_path: Path) -> None:
    program, inputs = mixed_program(dtype)
    assert program_from_json(program_to_json(program)) == program
    write_tensors(tmp_path / "x.safetensors", inputs)
    inputs = dict(read_tensors(tmp_path / "x.safetensors"))
    made = plan(program, "cpu-4", mesh=(3,), time_limit=5)
    assert made.check().ok
    assert_close(program, inputs, made.run(inputs).outputs, evaluate(program, inputs))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "uint32"])
def test_integers_wrap_as_numpy_s_do(dtype: str) -> None:
    program, inputs = mixed_program(dtype)
    found = evaluate(program, inputs)
    x, y = inputs["x"], inputs["y"]
    wide = "int32" if np.dtype(dtype).itemsize < 4 else dtype
    np.testing.assert_array_equal(found["sum"], x + y * np.array(2, dtype))
    np.testing.assert_array_equal(found["third"], x // np.array(3, dtype))
    np.testing.assert_array_equal(found["bits"], x ^ y)
    np.testing.assert_array_equal(found["up"], x << np.array(3, dtype))
    np.testing.assert_array_equal(found["total"], x.sum(0, dtype=wide))
    np.testing.assert_array_equal(found["most"], x.max(0))
    np.testing.assert_array_equal(found["less"], x < y)


def conversions() -> tuple[Program, dict[str, Array]]:
    """All types in one program: mixed arithmetic, and ties of every float of 8 bits from f64 and back."""
    inputs: dict[str, Array] = {}
    for dtype in NEW:
        inputs |= {f"x_{dtype}": values_of(dtype, 6, 8), f"y_{dtype}": values_of(dtype, 6, 8)[::-1].copy()}
    octet = np.arange(256, dtype=np.uint8)
    for dtype in ("f8e4m3", "f8e5m2"):
        inputs[f"all_{dtype}"] = octet.view(numpy_dtype(dtype))
        values = inputs[f"all_{dtype}"].astype(np.float64)
        values = np.unique(values[np.isfinite(values)])
        ties = (values[1:] + values[:-1]) / 2
        far = np.array([464, 465, 61439, 61440, 1e9, np.inf, -np.inf, np.nan])
        inputs[f"ties_{dtype}"] = np.concatenate([ties, np.nextafter(ties, 9e9), np.nextafter(ties, -9e9), far])

    ties = (2**30 + 2**22) * np.array([1, -1])
    inputs["near_ties"] = np.concatenate([ties, ties + 1, ties - 1])

    def everything(*tensors: Tensor) -> dict[str, Tensor]:
        given = dict(zip(inputs, tensors, strict=True))
        found = {}
        for dtype in NEW:
            made = mixed(given[f"x_{dtype}"], given[f"y_{dtype}"])
            found |= {f"{name}_{dtype}": tensor for name, tensor in made.items()}
        found["short_bf16"] = given["near_ties"].astype("bf16")
        for dtype in ("f8e4m3", "f8e5m2"):
            found |= {f"wide_all_{dtype}": given[f"all_{dtype}"].astype("f64")}
            found |= {f"short_{dtype}": given[f"ties_{dtype}"].astype(dtype)}
        return found

    return program_of(everything, **inputs), inputs


def run_conversions(device: str) -> None:
    program, inputs = conversions()
    document = plan(program, "h200", mesh=(1,), time_limit=5).document
    found = run_unchecked(document, inputs, device=device).outputs
    assert_close(program, inputs, found, evaluate(program, inputs))
    for dtype in ("f8e4m3", "f8e5m2"):
        expected = round_to(inputs[f"ties_{dtype}"], dtype)
        np.testing.assert_array_equal(found[f"short_{dtype}"].astype(float), expected.astype(float))
        np.testing.assert_array_equal(found[f"wide_all_{dtype}"], inputs[f"all_{dtype}"].astype(float))
    nearest = [2**30, -(2**30), 2**30 + 2**23, -(2**30), 2**30, -(2**30) - 2**23]
    assert found["short_bf16"].astype(float).tolist() == nearest


def test_workers_convert_as_the_reference_does() -> None:
    run_conversions("numpy")


@needs_compiler
def test_generated_kernels_convert_as_the_reference_does(on_host: str) -> None:
    run_conversions(on_host)


def test_annotations_name_them() -> None:
    @tp.program
    def net(
        a: tp.uint8[Tensor, "n"], b: tp.uint16[Tensor, "n"], c: tp.int16[Tensor, "n"], d: tp.uint32[Tensor, "n"],
        e: tp.f8e4m3[Tensor, "n"], f: tp.f8e5m2[Tensor, "n"],
    ) -> tuple[Tensor, ...]:  # fmt: skip
        return a + b, b + c, c + d, e + f, a + e

    dtypes = [net.bind(n=3).tensor(name).dtype for name in net.bind(n=3).outputs]
    assert dtypes == ["uint16", "int32", "int64", "bf16", "f8e4m3"]
