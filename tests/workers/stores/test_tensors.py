"""Safetensors files: what comes back, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from tapestry.errors import UsageError
from tapestry.workers.stores.tensors import read_tensors, write_tensors

ARRAYS = {
    "x": np.arange(6, dtype=np.float32).reshape(2, 3),
    "half": np.arange(3).astype(ml_dtypes.bfloat16),
    "scalar": np.array(7, np.int64),
    "none": np.zeros((0, 4), np.int8),
    "yes": np.array([True, False, True]),
}


def test_round_trip(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a", ARRAYS)
    found = read_tensors(tmp_path / "a")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_the_library_reads_what_is_written_and_the_other_way_round(tmp_path: Path) -> None:
    plain = {name: array for name, array in ARRAYS.items() if name not in ("half",)}
    write_tensors(tmp_path / "ours", plain)
    theirs = safetensors.numpy.load_file(tmp_path / "ours")
    safetensors.numpy.save_file(plain, tmp_path / "theirs", metadata={"made": "elsewhere"})
    ours = read_tensors(tmp_path / "theirs")
    for name, array in plain.items():
        np.testing.assert_array_equal(theirs[name], array)
        np.testing.assert_array_equal(ours[name], array)


def with_header(header: Any, data: bytes = bytes(24)) -> bytes:
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype: str = "F32", shape: Any = (2, 3), offsets: Any = (0, 24)) -> dict[str, Any]:
    return {"x": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "ends inside its header"),
        (b"\x10\0\0", "ends inside its header"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "ends inside its header"),
        (with_header(b"{,"), "not JSON"),
        (with_header(b"\xff\xfe"), "not JSON"),
        (with_header([1]), "not an object"),
        (with_header({"x": 3}), "malformed"),
        (with_header(entry("F31")), "malformed, or of a dtype"),
        (with_header(entry(shape=(2, 4))), "contradict"),
        (with_header(entry(shape=(-2, -3))), "contradict"),
        (with_header(entry(offsets=(0, 25))), "contradict"),
        (with_header(entry(offsets=(8, 32))), "contradict"),
        (with_header(entry(offsets=(-24, 0))), "contradict"),
        (with_header(entry(), bytes(20)), "contradict"),
        (with_header(entry(), bytes(30)), "do not fill the file"),
        (with_header(entry() | {"y": entry()["x"]}), "overlap or leave gaps"),
        (with_header(entry(offsets=(8, 32)), bytes(32)), "overlap or leave gaps"),
        (with_header(b'{"x": {}, "x": {}}'), "a name occurs twice"),
        (with_header(entry("BOOL", (2,), (0, 2)), bytes([1, 2])), "no booleans"),
    ],
)
def test_refused_files(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(content)
    with pytest.raises(UsageError, match=message) as caught:
        read_tensors(tmp_path / "bad")
    assert str(tmp_path / "bad") in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_tensors(tmp_path / "absent")
