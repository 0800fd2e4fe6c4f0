"""Refuses a specification that would not compile, would not fit, or would not mean what it says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod

from ..errors import TooLarge, WrongLayout, WrongValue
from .digits import Digits, digits_of
from .specification import (
    ELEMENTS,
    Axis,
    Compound,
    Extent,
    Fragment,
    Parameter,
    Registers,
    Specification,
    Tensor,
)

SHARED_LIMIT = 232_448  # bytes of shared memory a block may have on compute capability 9.0 (CUDA C++ programming guide)
REGISTER_LIMIT = 255  # 32-bit registers a thread may have (same source)
IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*\Z")
WORDS = """
    alignas alignof and asm auto bool break case catch char class concept const consteval constexpr constinit continue
    decltype default delete do double else enum explicit export extern false final float for friend goto if import
    inline int long module mutable namespace new noexcept not nullptr operator or override private protected public
    register requires return short signed sizeof static struct switch template this thread_local throw true try
    typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
"""
KEYWORDS = frozenset(WORDS.split())


def validate(spec: Specification) -> dict[str, Digits]:
    """The digits of every dimension of a specification that holds together; else raises a `KernelError`."""
    _names(spec)
    dims = digits_of(spec.dims, spec.name)
    for tensor in spec.tensors:
        _tensor(tensor, dims, f"{spec.name}.{tensor.name}")
    for compound in spec.compounds:
        _compound(compound, dims, f"{spec.name}.{compound.name}")
    for array in spec.registers:
        _registers(array, dims, f"{spec.name}.{array.name}")
    for fragment in spec.fragments:
        _fragment(fragment, dims, f"{spec.name}.{fragment.name}")
    for parameter in spec.parameters:
        _parameter(parameter, f"{spec.name}.{parameter.name}")
    return dims


def _names(spec: Specification) -> None:
    things = (*spec.dims, *spec.tensors, *spec.compounds, *spec.registers, *spec.fragments, *spec.parameters)
    names = [thing.name for thing in things]
    for name in (*spec.name.split("::"), *names):
        if not IDENTIFIER.match(name) or "__" in name or name in KEYWORDS:
            raise WrongValue(f"{name!r} cannot be a name in C++", where=spec.name, expected="a free C++ identifier")
    if "tapestry" in names:
        raise WrongValue("the declarations use `tapestry` themselves", where=spec.name, expected="another name")
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise WrongValue(f"{twice} is declared twice", where=spec.name, expected="one thing of a name")


def _extents(extents: Sequence[Extent | Axis], dims: dict[str, Digits], where: str) -> None:
    if not extents:
        raise WrongValue("no dimensions", where=where, expected="at least one extent")
    for at, extent in enumerate(extents):
        if extent.dim not in dims:
            raise WrongValue("an unknown dimension", where=where, expected=f"one of {', '.join(dims)}", came=extent.dim)
        if any(extent.dim == other.dim for other in extents[:at]):
            raise WrongValue(f"{extent.dim} stands twice", where=where, expected="every dimension once")
        _extent(extent.dim, extent.size, dims[extent.dim].size, where)
    _no_overlap([extent.dim for extent in extents], dims, where)


def _extent(dim: str, size: int | None, limit: int | None, where: str) -> None:
    if size is not None and size < 1:
        raise WrongValue(f"the extent of {dim} is empty", where=where, expected="at least 1", came=size)
    if size is not None and limit is not None and size > limit:
        raise WrongValue(f"{dim} has fewer values than its extent", where=where, expected=f"<= {limit}", came=size)


def _no_overlap(names: Iterable[str], dims: dict[str, Digits], where: str) -> None:
    """Two parts of one dimension share no digit: an index would be counted twice. (Modules of 1 have none.)"""
    taken = sorted(
        (name for name in names if dims[name].size != 1), key=lambda name: (dims[name].base, dims[name].unit)
    )
    for low, high in pairwise(taken):
        a, b = dims[low], dims[high]
        if a == b or (a.base == b.base and (a.period == 0 or a.period > b.unit)):
            raise WrongValue(
                f"{low} and {high} overlap",
                where=where,
                expected=f"parts of {a.base} that share no digit",
                came=f"{low} goes past {b.unit}, where {high} begins",
                hint=f"take the module of {low} by {b.unit // a.unit or 1} in its place",
            )


def _element(element: str, where: str) -> int:
    if element not in ELEMENTS:
        raise WrongValue("unknown element type", where=where, expected=f"one of {', '.join(ELEMENTS)}", came=element)
    return ELEMENTS[element][1]


def _known(sizes: Sequence[int | None], where: str, why: str) -> list[int]:
    known = [size for size in sizes if size is not None]
    if len(known) != len(sizes):
        raise WrongValue("a run-time extent or stride", where=where, expected=f"compile-time ones: {why}")
    return known


def _tensor(tensor: Tensor, dims: dict[str, Digits], where: str) -> None:
    _extents(tensor.axes, dims, where)
    size = _element(tensor.element, where)
    if len({type(axis) for axis in tensor.axes}) != 1:
        raise WrongLayout("extents and axes are mixed", where=where, expected="all Extent (packed) or all Axis")
    if tensor.swizzle not in (0, 32, 64, 128):
        raise WrongLayout("no such swizzle", where=where, expected="0, 32, 64 or 128 bytes", came=tensor.swizzle)
    if tensor.swizzle and not tensor.shared:
        raise WrongLayout("a swizzle outside shared memory", where=where, expected="shared=True")
    if tensor.shared:
        _shared(tensor, size, where)


def strides(tensor: Tensor) -> list[int | None]:
    """The strides of a tensor's axes in elements; `None` where they are known at run time only."""
    found: list[int | None] = []
    inner: int | None = 1
    axes: Sequence[Extent | Axis] = tensor.axes
    for axis in reversed(axes):
        found.append(axis.stride if isinstance(axis, Axis) else inner)
        inner = None if inner is None or axis.size is None else inner * axis.size
    return found[::-1]


def _shared(tensor: Tensor, size: int, where: str) -> None:
    why = "shared memory is laid out before the kernel runs"
    axes: Sequence[Extent | Axis] = tensor.axes
    extents = _known([axis.size for axis in axes], where, why)
    steps = _known(strides(tensor), where, why)
    if min(steps) < 0:
        raise WrongLayout("a negative stride in shared memory", where=where, expected="strides >= 0", came=steps)
    total = (1 + sum((extent - 1) * step for extent, step in zip(extents, steps, strict=True))) * size
    if total > SHARED_LIMIT:
        raise TooLarge("too much shared memory", where=where, expected=f"<= {SHARED_LIMIT} bytes", came=total)
    if tensor.swizzle:
        _rows(tensor.swizzle, [step * size for step in steps], extents, size, where)


def _rows(row: int, steps: list[int], extents: list[int], size: int, where: str) -> None:
    """Axes either stay inside a row of the swizzle or step by whole rows, so that a row is a row of the tile."""
    inside = [(step, extent) for step, extent in zip(steps, extents, strict=True) if step % row]
    length = size + sum(step * (extent - 1) for step, extent in inside)
    if length > row:
        raise WrongLayout(
            f"rows do not match the swizzle of {row} bytes",
            where=where,
            expected=f"inner axes within {row} bytes, outer strides multiples of {row} bytes",
            came=f"strides {steps} bytes for extents {extents}: {length} bytes inside a row",
            hint="choose the swizzle of the row's length",
        )


def _compound(compound: Compound, dims: dict[str, Digits], where: str) -> None:
    _extents(compound.extents, dims, where)
    inner = _known([extent.size for extent in compound.extents[1:]], where, "only the first extent needs no division")
    first = compound.extents[0].size
    if compound.size is None:
        return
    came = None if first is None else first * prod(inner)
    if came != compound.size:
        raise WrongValue("the extents do not make up the index", where=where, expected=compound.size, came=came)


def _registers(array: Registers, dims: dict[str, Digits], where: str) -> None:
    _extents(array.extents, dims, where)
    count = prod(_known([extent.size for extent in array.extents], where, "registers have no run-time index"))
    words = -(-count * _element(array.element, where) // 4)
    if words > REGISTER_LIMIT:
        raise TooLarge("more than a thread's registers", where=where, expected=f"<= {REGISTER_LIMIT}", came=words)


def _fragment(fragment: Fragment, dims: dict[str, Digits], where: str) -> None:
    for name in fragment.dims:
        if name not in dims:
            raise WrongValue("an unknown dimension", where=where, expected=f"one of {', '.join(dims)}", came=name)
    if fragment.dims[0] == fragment.dims[1]:
        raise WrongValue("one dimension twice", where=where, expected="two dimensions", came=fragment.dims)
    if fragment.operand not in ("A", "B", "C"):
        raise WrongValue("no such operand", where=where, expected="A, B or C", came=fragment.operand)
    if fragment.depth not in (8, 16):
        raise WrongValue("no such depth", where=where, expected="8 or 16", came=fragment.depth)


def _parameter(parameter: Parameter, where: str) -> None:
    try:
        ok = isinstance(parameter.value, bool) or -(2**31) < parameter.value < 2**31
    except TypeError as error:
        raise WrongValue("not a number", where=where, expected="an integer or a bool", came=parameter.value) from error
    if not ok:
        raise TooLarge("past 32 bits", where=where, expected="an int", came=parameter.value)
