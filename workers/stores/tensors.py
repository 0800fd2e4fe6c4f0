"""Arrays by name in safetensors files, bf16 included; read through a memory map, nothing trusted, nothing unpickled."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...dtypes import name_of, numpy_dtype
from ...errors import UsageError
from .arrays import Array

_CODES = {
    "bool": "BOOL",
    "int8": "I8",
    "int32": "I32",
    "int64": "I64",
    "bf16": "BF16",
    "f16": "F16",
    "f32": "F32",
    "f64": "F64",
}
_NAMES = {code: name for name, code in _CODES.items()}


def write_tensors(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write the arrays; the file appears whole or not at all."""
    header: dict[str, Any] = {}
    offset = 0
    for name, array in arrays.items():
        span = [offset, offset + array.nbytes]
        header[name] = {"dtype": _CODES[name_of(array.dtype)], "shape": list(array.shape), "data_offsets": span}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with scratch.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for array in arrays.values():
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def read_tensors(path: Path) -> dict[str, Array]:
    """Read-only arrays by name. UsageError with the place for a file that is truncated or contradicts itself."""
    try:
        size = path.stat().st_size
        data = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from error
    header, body = _header(path, data)
    found, covered = {}, 0
    for name, entry in header.items():
        if name != "__metadata__":
            found[name] = _array(path, name, entry, body)
            covered += found[name].nbytes
    if covered != body.size:
        raise UsageError(
            "the tensors do not fill the file", where=str(path), sides={"tensors": covered, "file": body.size}
        )
    return found


def _header(path: Path, data: Array) -> tuple[dict[str, Any], Array]:
    length = int.from_bytes(data[:8].tobytes(), "little") if data.size >= 8 else -1
    if not 0 <= length <= data.size - 8:
        sides = {"header": f"{length} bytes" if length >= 0 else "missing", "file": f"{data.size} bytes"}
        raise UsageError("the file ends inside its header", where=str(path), sides=sides)
    try:
        header = json.loads(data[8 : 8 + length].tobytes())
    except ValueError as error:
        raise UsageError(f"the header is not JSON: {error}", where=str(path)) from None
    if not isinstance(header, dict):
        raise UsageError("the header is not an object", where=str(path))
    return header, data[8 + length :]


def _array(path: Path, name: str, entry: Any, body: Array) -> Array:
    place = f"{path}, tensor {name}"
    try:
        dtype, shape, (start, stop) = numpy_dtype(_NAMES[entry["dtype"]]), tuple(entry["shape"]), entry["data_offsets"]
        honest = all(type(n) is int and n >= 0 for n in (*shape, start, stop))
    except (KeyError, TypeError, ValueError):
        raise UsageError("its entry is malformed, or of a dtype that is not known", where=place) from None
    nbytes = prod(shape) * dtype.itemsize if honest else -1
    if not honest or stop - start != nbytes or stop > body.size:
        sides = {
            "shape and dtype": f"{nbytes} bytes",
            "offsets": f"{start}:{stop}",
            "file": f"{body.size} bytes of data",
        }
        raise UsageError("its sizes contradict one another", where=place, sides=sides)
    array: Array = np.frombuffer(body[start:stop].tobytes() if start % dtype.itemsize else body[start:stop], dtype)
    return array.reshape(shape)
