"""Arrays by name in safetensors files, bf16 included; read through a memory map, nothing trusted, nothing unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ...dtypes import DTYPES, name_of, numpy_dtype
from ...errors import UsageError
from ...planner.format.atomic import write_atomically
from .arrays import Array

_NAMES = {dtype.stored: name for name, dtype in DTYPES.items()}


def write_tensors(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write the arrays; the file appears whole or not at all. UsageError where the folder may not be written.

    The layout is written out here (8 bytes of header length, the header as JSON, the data) because the library's own
    writer takes no bfloat16 from NumPy.
    """
    header: dict[str, Any] = {}
    offset = 0
    for name, array in arrays.items():
        span = [offset, offset + array.nbytes]
        header[name] = {"dtype": DTYPES[name_of(array.dtype)].stored, "shape": list(array.shape), "data_offsets": span}
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # so that the data is aligned
    data = (np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays.values())
    write_atomically(path, len(text).to_bytes(8, "little") + text, *data)


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
