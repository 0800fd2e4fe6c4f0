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
from ...files import write_file
from .arrays import Array

_NAMES = {dtype.stored: name for name, dtype in DTYPES.items()}


def write_tensors(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write the arrays to a new file, whole or not at all. UsageError where it may not be written (`write_file`)."""
    write_file(path, *stored_tensors(arrays))


def stored_tensors(arrays: Mapping[str, Array]) -> list[bytes | memoryview]:
    """The content of a file of these arrays, in parts.

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
    return [len(text).to_bytes(8, "little") + text, *data]


def read_tensors(path: Path) -> dict[str, Array]:
    """Read-only arrays by name. UsageError with the place for a file that is truncated or contradicts itself."""
    try:
        size = path.stat().st_size
        data = np.memmap(path, np.uint8, "r") if size else np.empty(0, np.uint8)
    except OSError as error:
        raise UsageError(f"cannot be read: {error.strerror}", where=str(path)) from error
    header, body = _header(path, data)
    spans: list[tuple[int, int]] = []
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            found[name] = _array(path, name, entry, body)
            spans.append(tuple(entry["data_offsets"]))
    end = 0
    for start, stop in sorted(spans):
        if start != end:
            raise _refused("its tensors overlap or leave gaps", str(path), **{"byte of the data": min(start, end)})
        end = stop
    if end != body.size:
        raise _refused("the tensors do not fill the file", str(path), tensors=end, file=body.size)
    return found


def _refused(why: str, where: str, **sides: object) -> UsageError:
    return UsageError(f"not a whole safetensors file: {why}", where=where, sides=sides or None)


def _header(path: Path, data: Array) -> tuple[dict[str, Any], Array]:
    length = int.from_bytes(data[:8].tobytes(), "little") if data.size >= 8 else -1
    if not 0 <= length <= data.size - 8:
        sides = {"header": f"{length} bytes" if length >= 0 else "missing", "file": f"{data.size} bytes"}
        raise _refused("the file ends inside its header", str(path), **sides)
    try:
        pairs = json.loads(data[8 : 8 + length].tobytes(), object_pairs_hook=_Pairs)
    except (ValueError, RecursionError) as error:
        raise _refused(f"the header is not JSON: {error}", str(path)) from None
    if not isinstance(pairs, _Pairs):
        raise _refused("the header is not an object", str(path))
    header = {name: dict(entry) if isinstance(entry, _Pairs) else entry for name, entry in pairs}
    if len(header) != len(pairs):
        raise _refused("a name occurs twice in the header", str(path))
    return header, data[8 + length :]


class _Pairs(list[tuple[str, Any]]):
    """An object of JSON, names that occur twice included."""


def _array(path: Path, name: str, entry: Any, body: Array) -> Array:
    try:
        dtype, shape, (start, stop) = numpy_dtype(_NAMES[entry["dtype"]]), tuple(entry["shape"]), entry["data_offsets"]
        honest = all(type(n) is int and n >= 0 for n in (*shape, start, stop))
    except (KeyError, TypeError, ValueError):
        raise _refused(f"the entry of {name!r} is malformed, or of a dtype that is not known", str(path)) from None
    nbytes = prod(shape) * dtype.itemsize if honest else -1
    if not honest or stop - start != nbytes or stop > body.size:
        sides = {
            "shape and dtype": f"{nbytes} bytes",
            "offsets": f"{start}:{stop}",
            "file": f"{body.size} bytes of data",
        }
        raise _refused(f"the sizes of {name!r} contradict one another", str(path), **sides)
    raw = body[start:stop]
    if dtype.kind == "b" and raw.max(initial=0) > 1:
        raise _refused(f"{name!r} holds bytes that are no booleans", str(path), witness=int(raw.max()))
    array: Array = np.frombuffer(raw.tobytes() if start % dtype.itemsize else raw, dtype)
    return array.reshape(shape)
