"""Python values into a kernel's parameters, each as wide as the kernel declares it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ..errors import WrongType, WrongValue

_INTEGER = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOAT = {2: "e", 4: "f", 8: "d"}
_ALIGNMENT = 64  # of by-value structures: a tensor map's

_Conversion = Callable[[Any], int | float | bytes]


class _Layout(NamedTuple):
    """How values of certain types are packed: those that are no plain numbers are converted first."""

    pack_into: Callable[..., None]
    conversions: tuple[tuple[int, _Conversion], ...]


class Arguments:
    """A block of host memory laid out for one kernel, and the array of pointers into it that a launch takes.

    Integers (pointers too) and floats take the width of their parameter; arrays give their pointer, None a null
    pointer; NumPy scalars of structured or other types and `bytes` go by value and must have the parameter's size.
    """

    def __init__(self, kernel: str, sizes: Sequence[int]) -> None:
        self.kernel, self.sizes = kernel, tuple(sizes)
        self._offsets = _offsets(self.sizes)
        end = self._offsets[-1] + self.sizes[-1] if self.sizes else 0
        memory = np.zeros(end + _ALIGNMENT, np.uint8)
        self._start = -memory.ctypes.data % _ALIGNMENT
        self._end = self._start + end
        self._memory = memoryview(memory)  # type: ignore[arg-type]
        self._pointers = np.array([memory.ctypes.data + self._start + offset for offset in self._offsets], np.uint64)
        self.address = int(self._pointers.ctypes.data)
        self._layouts: dict[tuple[type, ...], _Layout] = {}

    def another(self) -> Arguments:
        """Other memory for the same kernel; how values of certain types are packed is worked out once for both."""
        made = Arguments(self.kernel, self.sizes)
        made._layouts = self._layouts
        return made

    def pack(self, values: Sequence[Any]) -> None:
        """Write the values. Raises `WrongType` and `WrongValue`, naming the argument; what was there may be lost."""
        kinds = tuple(map(type, values))
        layout = self._layouts.get(kinds)
        if layout is None:
            layout = self._layouts[kinds] = self._layout(kinds)
        if layout.conversions:
            values = list(values)
            for index, convert in layout.conversions:
                values[index] = convert(values[index])
        try:
            layout.pack_into(self._memory, self._start, *values)
        except (struct.error, OverflowError):
            signed = [self._signed(index, value) for index, value in enumerate(values)]
            layout.pack_into(self._memory, self._start, *signed)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where the parameters begin, in bytes."""
        return tuple(self._offsets)

    @property
    def words(self) -> memoryview:
        """The memory as 64-bit words, to be read and written; what follows the last argument is zero."""
        size = -(-(self._end - self._start) // 8) * 8
        return self._memory[self._start : self._start + size].cast("Q")

    def packed(self) -> bytes:
        """The memory as it is now."""
        return self._memory[self._start : self._end].tobytes()

    def _layout(self, kinds: tuple[type, ...]) -> _Layout:
        if len(kinds) != len(self.sizes):
            raise WrongType(
                "wrong number of arguments",
                where=self.kernel,
                expected=f"{len(self.sizes)}, of {', '.join(map(str, self.sizes))} bytes",
                came=f"{len(kinds)}: {', '.join(kind.__name__ for kind in kinds)}",
            )
        text = "<"
        end = 0
        conversions = []
        for index, (kind, size, offset) in enumerate(zip(kinds, self.sizes, self._offsets, strict=True)):
            code, convert = self._code(index, kind)
            if convert is not None:
                conversions.append((index, convert))
            text += "x" * (offset - end) + code
            end = offset + size
        return _Layout(struct.Struct(text).pack_into, tuple(conversions))

    def _code(self, index: int, kind: type) -> tuple[str, _Conversion | None]:
        """How a value of a type goes into a parameter: `struct`'s code, and what makes a plain value of it."""
        size = self.sizes[index]
        plain = {int: None, bool: None, float: None}.get(kind, _conversion(kind))
        if issubclass(kind, float | np.floating) and size in _FLOAT:
            return _FLOAT[size], plain
        integral = issubclass(kind, int | np.integer | np.bool_ | type(None)) or hasattr(kind, "pointer")
        if integral and size in _INTEGER:
            return _INTEGER[size], plain
        if issubclass(kind, bytes | np.generic):
            return f"{size}s", lambda value: self._whole(index, value)
        raise self._misfit(index, kind.__name__)

    def _whole(self, index: int, value: Any) -> bytes:
        data = value if isinstance(value, bytes) else value.tobytes()
        if len(data) != self.sizes[index]:
            raise self._misfit(index, f"{len(data)} bytes")
        return bytes(data)

    def _misfit(self, index: int, came: str) -> WrongType:
        size = self.sizes[index]
        return WrongType(
            f"argument {index} does not fit its parameter",
            where=self.kernel,
            expected=f"{size} bytes" + (": an int, a float, or an array for its pointer" if size == 8 else ""),
            came=came,
        )

    def _signed(self, index: int, value: Any) -> Any:
        """An integer beyond its signed range as the one that has the same bits; anything else that fits, as it is."""
        bits = 8 * self.sizes[index]
        if isinstance(value, float) and not _holds(_FLOAT[self.sizes[index]], value):
            raise WrongValue(f"argument {index} is out of range", where=self.kernel, expected=f"an f{bits}", came=value)
        if not isinstance(value, int):
            return value
        if not -(1 << (bits - 1)) <= value < 1 << bits:
            raise WrongValue(
                f"argument {index} is out of range",
                where=self.kernel,
                expected=f"an integer of {bits} bits",
                came=value,
            )
        return value - (1 << bits) if value >= 1 << (bits - 1) else value


def _holds(code: str, value: float) -> bool:
    """Whether a float is within the range of a narrower one."""
    try:
        struct.pack(f"<{code}", value)
    except (struct.error, OverflowError):
        return False
    return True


def _conversion(kind: type) -> _Conversion | None:
    if hasattr(kind, "pointer"):
        return attrgetter("pointer")
    if issubclass(kind, np.floating):
        return float
    if issubclass(kind, np.integer | np.bool_):
        return int
    return _null if kind is type(None) else None


def _null(value: None) -> int:  # noqa: ARG001
    return 0


def _offsets(sizes: Sequence[int]) -> list[int]:
    """Numbers at multiples of 8, structures at multiples of 64."""
    offsets = []
    end = 0
    for size in sizes:
        unit = 8 if size <= 8 else _ALIGNMENT
        offsets.append(-(-end // unit) * unit)
        end = offsets[-1] + size
    return offsets
