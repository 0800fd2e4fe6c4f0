"""C++ declarations of a specification: the header that a specialised kernel begins with."""

from __future__ import annotations

from collections.abc import Iterator

from .specification import (
    ELEMENTS,
    AnyDimension,
    Axis,
    Compound,
    Dimension,
    Extent,
    Fold,
    Fragment,
    Parameter,
    Registers,
    Specification,
    Tensor,
)
from .validation import validate


def declarations(spec: Specification) -> str:
    """The C++ text of a valid specification: includes and one namespace. The same text for the same specification.

    Raises a `KernelError` (WrongValue, WrongLayout, TooLarge) naming the declaration that cannot be.

    >>> dims = (Dimension("C"), Fold("C8", "C", 8))
    >>> print(declarations(Specification("tiny", dims, parameters=(Parameter("N", 3),))))
    #include <tapestry/compound.cuh>
    #include <tapestry/fragment.cuh>
    #include <tapestry/tensor.cuh>
    <BLANKLINE>
    namespace tiny {
    <BLANKLINE>
    constexpr int N = 3;
    <BLANKLINE>
    using C = tapestry::Dim<struct C_tag>;
    using C8 = tapestry::Fold<C, 8>;
    <BLANKLINE>
    }  // namespace tiny
    <BLANKLINE>
    """
    validate(spec)
    includes = [f"#include <tapestry/{name}.cuh>" for name in ("compound", "fragment", "tensor")]
    blocks = [list(block) for block in _blocks(spec)]
    body = [line for block in blocks if block for line in (*block, "")]
    return "\n".join([*includes, "", f"namespace {spec.name} {{", "", *body, f"}}  // namespace {spec.name}", ""])


def _blocks(spec: Specification) -> Iterator[Iterator[str]]:
    yield (_parameter(parameter) for parameter in spec.parameters)
    yield (_dimension(dim) for dim in spec.dims)
    yield (_tensor(tensor) for tensor in spec.tensors)
    yield (_compound(compound) for compound in spec.compounds)
    yield (_registers(array) for array in spec.registers)
    yield (_fragment(fragment) for fragment in spec.fragments)


def _parameter(parameter: Parameter) -> str:
    if isinstance(parameter.value, bool):
        return f"constexpr bool {parameter.name} = {str(parameter.value).lower()};"
    return f"constexpr int {parameter.name} = {parameter.value};"


def _dimension(dim: AnyDimension) -> str:
    if isinstance(dim, Dimension):
        return f"using {dim.name} = tapestry::Dim<struct {dim.name}_tag>;"
    kind = "Fold" if isinstance(dim, Fold) else "Module"
    return f"using {dim.name} = tapestry::{kind}<{dim.of}, {dim.size}>;"


def _number(value: int | None) -> str:
    return "tapestry::run_time" if value is None else str(value)


def _extent(extent: Extent | Axis) -> str:
    if isinstance(extent, Axis):
        return f"tapestry::Axis<{extent.dim}, {_number(extent.size)}, {_number(extent.stride)}>"
    return f"tapestry::Extent<{extent.dim}, {_number(extent.size)}>"


def _tensor(tensor: Tensor) -> str:
    layout = "Layout" if isinstance(tensor.axes[0], Axis) else "Packed"
    axes = ", ".join(_extent(axis) for axis in tensor.axes)
    kind = "SharedTensor" if tensor.shared else "Tensor"
    element = ELEMENTS[tensor.element][0]
    swizzle = f", tapestry::Swizzle<{tensor.swizzle}>" if tensor.swizzle else ""
    return f"using {tensor.name} = tapestry::{kind}<{element}, tapestry::{layout}<{axes}>{swizzle}>;"


def _compound(compound: Compound) -> str:
    return f"using {compound.name} = tapestry::Compound<{', '.join(_extent(extent) for extent in compound.extents)}>;"


def _registers(array: Registers) -> str:
    extents = ", ".join(_extent(extent) for extent in array.extents)
    return f"using {array.name} = tapestry::Array<{ELEMENTS[array.element][0]}, {extents}>;"


def _fragment(fragment: Fragment) -> str:
    depth = "" if fragment.operand == "C" else f", {fragment.depth}"
    return f"using {fragment.name} = tapestry::Fragment{fragment.operand}<{', '.join(fragment.dims)}{depth}>;"
