"""Tensors in files: every dtype round-trips, and a wrong file gets one message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from tapestry.dtypes import DTYPES, numpy_dtype
from tapestry.errors import UsageError
from tapestry.planner.cli.tensor_file import load_tensors
from tapestry.program import Program, Tensor
from tapestry.workers import Unread
from tapestry.workers.stores.tensors import write_tensors

PROGRAM = Program(
    "p",
    (
        Tensor("x", "bf16", (2, 3), "input"),
        Tensor("mask", "bool", (), "param"),
        Tensor("cache", "f32", (0, 3), "state"),
        Tensor("y", "f32", (2,)),
    ),
    (),
    ("y",),
)


def arrays() -> dict[str, Any]:
    x = np.arange(6).reshape(2, 3).astype(numpy_dtype("bf16"))
    return {"x": x, "mask": np.array(True), "cache": np.zeros((0, 3), np.float32)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_tensors(tmp_path / "in.safetensors", arrays())
    return tmp_path / "in.safetensors"


def test_what_is_saved_is_loaded(file: Path) -> None:
    loaded = load_tensors(file, PROGRAM)
    for name, array in arrays().items():
        assert loaded[name].dtype == array.dtype
        assert loaded[name].shape == array.shape
        assert loaded[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@given(shape=st.lists(st.integers(0, 4), max_size=3), seed=st.integers(0, 99))
def test_every_dtype_round_trips(
    tmp_path_factory: pytest.TempPathFactory, dtype: str, shape: list[int], seed: int
) -> None:
    path = tmp_path_factory.mktemp("t") / "t.safetensors"
    array = np.random.default_rng(seed).integers(0, 2, shape).astype(numpy_dtype(dtype))
    write_tensors(path, {"a.b": array})
    program = Program("p", (Tensor("a.b", dtype, tuple(shape), "input"),), (), ())
    assert np.array_equal(load_tensors(path, program)["a.b"], array)


def test_the_library_reads_what_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    write_tensors(path, {"a": np.arange(5.0), "b": np.eye(2, dtype=np.int32)})
    with safe_open(path, framework="np") as stored:
        assert np.array_equal(stored.get_tensor("a"), np.arange(5.0))
        assert np.array_equal(stored.get_tensor("b"), np.eye(2))


def replace(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        assert old in data
        assert len(old) == len(new)
        return data.replace(old, new, 1)

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[:-1], "not a whole safetensors file"),
        (lambda data: data[:20], "not a whole safetensors file"),
        (lambda data: b"", "not a whole safetensors file"),
        (lambda data: data + b"\0", "not a whole safetensors file"),
        (replace(b"[2, 3]", b"[2, 9]"), "not a whole safetensors file"),
        (replace(b"[0, 12]", b"[0, 99]"), "not a whole safetensors file"),
        (lambda data: (1 << 60).to_bytes(8, "little") + data[8:], "not a whole safetensors file"),
        (replace(b"[2, 3]", b"[3, 2]"), r"'x' is of another dtype or shape"),
        (replace(b"BF16", b"F16 "[:4]), "not a whole safetensors file"),
        (replace(b'"BF16"', b' "F16"'), r"'x' is of another dtype or shape"),
        (replace(b'"mask"', b'"task"'), r"holds 'task'"),
        (lambda data: data[:-1] + b"\2", "no booleans"),
    ],
)
def test_files_that_lie(file: Path, change: Callable[[bytes], bytes], said: str) -> None:
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(UsageError, match=said) as failed:
        load_tensors(file, PROGRAM)
    assert str(file) in str(failed.value)


def test_a_file_may_hold_more_than_is_read(tmp_path: Path) -> None:
    write_tensors(tmp_path / "t", arrays() | {f"head.{k}": np.zeros(1, np.float32) for k in range(6)})
    with pytest.warns(Unread, match=r"t holds what p does not read: head\.0, head\.1, head\.2, head\.3 and 2 more"):
        assert set(load_tensors(tmp_path / "t", PROGRAM)) == {"x", "mask", "cache"}


def test_a_tensor_is_missing(tmp_path: Path) -> None:
    write_tensors(tmp_path / "t", {"x": arrays()["x"]})
    with pytest.raises(UsageError, match="'mask' is missing"):
        load_tensors(tmp_path / "t", PROGRAM)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.safetensors: cannot be read: No such file"):
        load_tensors(tmp_path / "none.safetensors", PROGRAM)
