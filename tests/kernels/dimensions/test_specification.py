"""Specifications: what is declared, what is refused, and that the declarations compile and mean what Python meant."""

import ctypes
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry.kernels.dimensions.declarations import declarations
from tapestry.kernels.dimensions.digits import Digits, digits_of
from tapestry.kernels.dimensions.specification import (
    AnyDimension,
    Axis,
    Compound,
    Dimension,
    Extent,
    Fold,
    Fragment,
    Module,
    Parameter,
    Registers,
    Specification,
    Tensor,
)
from tapestry.kernels.dimensions.validation import strides
from tapestry.kernels.errors import KernelError, TooLarge, WrongLayout, WrongValue

from .toolchain import compile_text, shared_library

DIMS: tuple[AnyDimension, ...] = (
    Dimension("N"),
    Dimension("X"),
    Dimension("C"),
    Fold("C8", "C", 8),
    Module("C8m", "C", 8),
    Module("C16m", "C", 16),
)
WHOLE = Specification(
    "walk",
    dims=DIMS,
    tensors=(
        Tensor("Row", "octet", (Extent("X", 18), Extent("C8", 8)), shared=True, swizzle=128),
        Tensor("Image", "f16", (Extent("N"), Extent("X"), Extent("C8", 8), Extent("C8m", 8))),
        Tensor("Strided", "f32", (Axis("N", 2, 640), Axis("X", 10, None))),
    ),
    compounds=(
        Compound("Lane", (Extent("X", 4), Extent("C8", 8)), size=32),
        Compound("Block", (Extent("N"), Extent("X", 7))),
    ),
    registers=(Registers("Open", "quad", (Extent("X", 3), Extent("C8", 2))),),
    fragments=(Fragment("A", "A", ("X", "C")), Fragment("B", "B", ("C", "N"), 8), Fragment("Sums", "C", ("X", "N"))),
    parameters=(Parameter("STAGES", 4), Parameter("RESIDUAL", True)),
)
GOLDEN = """#include <tapestry/compound.cuh>
#include <tapestry/fragment.cuh>
#include <tapestry/tensor.cuh>

namespace walk {

constexpr int STAGES = 4;
constexpr bool RESIDUAL = true;

using N = tapestry::Dim<struct N_tag>;
using X = tapestry::Dim<struct X_tag>;
using C = tapestry::Dim<struct C_tag>;
using C8 = tapestry::Fold<C, 8>;
using C8m = tapestry::Module<C, 8>;
using C16m = tapestry::Module<C, 16>;

using Row = tapestry::SharedTensor<tapestry::Octet, \
tapestry::Packed<tapestry::Extent<X, 18>, tapestry::Extent<C8, 8>>, tapestry::Swizzle<128>>;
using Image = tapestry::Tensor<unsigned short, tapestry::Packed<tapestry::Extent<N, tapestry::run_time>, \
tapestry::Extent<X, tapestry::run_time>, tapestry::Extent<C8, 8>, tapestry::Extent<C8m, 8>>>;
using Strided = tapestry::Tensor<float, tapestry::Layout<tapestry::Axis<N, 2, 640>, \
tapestry::Axis<X, 10, tapestry::run_time>>>;

using Lane = tapestry::Compound<tapestry::Extent<X, 4>, tapestry::Extent<C8, 8>>;
using Block = tapestry::Compound<tapestry::Extent<N, tapestry::run_time>, tapestry::Extent<X, 7>>;

using Open = tapestry::Array<tapestry::Quad, tapestry::Extent<X, 3>, tapestry::Extent<C8, 2>>;

using A = tapestry::FragmentA<X, C, 16>;
using B = tapestry::FragmentB<C, N, 8>;
using Sums = tapestry::FragmentC<X, N>;

}  // namespace walk
"""


def test_the_declarations_read_like_the_specification() -> None:
    assert declarations(WHOLE) == GOLDEN


def test_the_declarations_compile() -> None:
    uses = """
static_assert(sizeof(walk::Row) == 4 && sizeof(walk::Open) == 96 && walk::Lane::size() == 32, "");
static_assert(walk::STAGES == 4 && walk::RESIDUAL, "");
static_assert(tapestry::contracts<tapestry::FragmentA<walk::X, walk::C, 8>, walk::B, walk::Sums>(), "");
"""
    nested = declarations(replace(WHOLE, name="tapestry::inner"))
    for standard in (17, 20):
        done = compile_text(declarations(WHOLE) + nested + uses, "-fsyntax-only", standard=standard)
        assert done.returncode == 0, done.stderr


def tensor(*axes: Extent | Axis, element: str = "f16", shared: bool = False, swizzle: int = 0) -> Specification:
    made = Tensor("T", element, axes, shared, swizzle)  # type: ignore[arg-type]
    return Specification("walk", DIMS, (made,))


def dims(*more: AnyDimension) -> Specification:
    return Specification("walk", (*DIMS, *more))


REFUSED: list[tuple[Specification, type[KernelError], str]] = [
    (dims(Fold("D8", "D", 8)), WrongValue, "not declared before it"),
    (dims(Fold("C0", "C", 0)), WrongValue, "has no size"),
    (dims(Module("Odd", "C16m", 5)), WrongValue, "does not divide C16m"),
    (replace(tensor(Extent("C8", 4), Extent("Again", 4)), dims=(*DIMS, Fold("Again", "C", 8))), WrongValue, "overlap"),
    (dims(Dimension("X")), WrongValue, "X is declared twice"),
    (dims(Dimension("class")), WrongValue, "cannot be a name in C++"),
    (dims(Dimension("tapestry")), WrongValue, "use `tapestry`"),
    (replace(WHOLE, name="walk::int"), WrongValue, "cannot be a name in C++"),
    (dims(Dimension("a b")), WrongValue, "cannot be a name in C++"),
    (dims(Dimension("x__y")), WrongValue, "cannot be a name in C++"),
    (dims(Dimension("X\n")), WrongValue, "cannot be a name in C++"),
    (replace(WHOLE, name="1st"), WrongValue, "cannot be a name in C++"),
    (tensor(), WrongValue, "no dimensions"),
    (tensor(Extent("D", 3)), WrongValue, "an unknown dimension"),
    (tensor(Extent("X", 3), Extent("X", 3)), WrongValue, "X stands twice"),
    (tensor(Extent("X", 0)), WrongValue, "the extent of X is empty"),
    (tensor(Extent("C8m", 9)), WrongValue, "C8m has fewer values"),
    (tensor(Extent("C", 64), Extent("C8", 8)), WrongValue, "overlap"),
    (tensor(Extent("C8", 64), Extent("C16m", 16)), WrongValue, "overlap"),
    (tensor(Extent("X", 3), Axis("C", 3, 1)), WrongLayout, "mixed"),
    (tensor(Extent("X", 3), element="f15"), WrongValue, "unknown element type"),
    (tensor(Extent("X", 3), swizzle=128), WrongLayout, "a swizzle outside shared memory"),
    (tensor(Extent("X", 3), shared=True, swizzle=96), WrongLayout, "no such swizzle"),
    (tensor(Extent("X"), shared=True), WrongValue, "a run-time extent"),
    (tensor(Axis("X", 3, -8), shared=True), WrongLayout, "negative stride"),
    (tensor(Extent("X", 200_000), shared=True), TooLarge, "too much shared memory"),
    (
        tensor(Extent("X", 8), Extent("C8", 4), element="octet", shared=True, swizzle=32),
        WrongLayout,
        "rows do not match",
    ),
    (
        replace(WHOLE, compounds=(Compound("T", (Extent("X", 4), Extent("C8", 7)), 32),)),
        WrongValue,
        "the extents do not make up the index",
    ),
    (replace(WHOLE, compounds=(Compound("T", (Extent("X"),), 32),)), WrongValue, "do not make up"),
    (replace(WHOLE, compounds=(Compound("T", (Extent("X", 4), Extent("C8"))),)), WrongValue, "a run-time extent"),
    (replace(WHOLE, registers=(Registers("R", "f32", (Extent("X"),)),)), WrongValue, "a run-time extent"),
    (
        replace(WHOLE, registers=(Registers("R", "f32", (Extent("X", 256),)),)),
        TooLarge,
        "more than a thread's registers",
    ),
    (replace(WHOLE, fragments=(Fragment("F", "A", ("X", "Z")),)), WrongValue, "an unknown dimension"),
    (replace(WHOLE, fragments=(Fragment("F", "A", ("X", "X")),)), WrongValue, "one dimension twice"),
    (replace(WHOLE, fragments=(Fragment("F", "A", ("X", "C"), 4),)), WrongValue, "no such depth"),
    (replace(WHOLE, fragments=(Fragment("F", "D", ("X", "C")),)), WrongValue, "no such operand"),  # type: ignore[arg-type]
    (replace(WHOLE, parameters=(Parameter("P", 2**31),)), TooLarge, "past 32 bits"),
    (replace(WHOLE, parameters=(Parameter("P", "3"),)), WrongValue, "not a number"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("spec", "kind", "phrase"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_cannot_be_is_refused_by_name(spec: Specification, kind: type[KernelError], phrase: str) -> None:
    with pytest.raises(kind) as refusal:
        declarations(spec)
    assert phrase in str(refusal.value)
    assert refusal.value.where is not None


def test_a_refusal_is_an_argument() -> None:
    wide = tensor(Extent("X", 8), Extent("C8", 4), element="octet", shared=True, swizzle=32)
    with pytest.raises(WrongLayout) as refusal:
        declarations(wide)
    assert str(refusal.value).splitlines() == [
        "walk.T: rows do not match the swizzle of 32 bytes",
        "  expected   inner axes within 32 bytes, outer strides multiples of 32 bytes",
        "  came       strides [64, 16] bytes for extents [8, 4]: 64 bytes inside a row",
        "  hint       choose the swizzle of the row's length",
    ]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([2, 3, 4, 6])), max_size=4), st.integers(0, 10_000))
def test_digits_are_those_of_the_numbers(steps: list[tuple[bool, int]], index: int) -> None:
    """(index mod period) // unit of the whole dimension is what folds and modules one after the other make of it."""
    made: list[AnyDimension] = [Dimension("D0")]
    value, left = index, None
    for number, (fold, size) in enumerate(steps, 1):
        if left is not None and left % size:
            continue
        kind = Fold if fold else Module
        made.append(kind(f"D{number}", made[-1].name, size))
        value = value // size if fold else value % size
        left = size if not fold else None if left is None else left // size
    digits = digits_of(tuple(made), "drawn")[made[-1].name]
    whole = index % digits.period if digits.period else index
    assert whole // digits.unit == value
    assert digits.base == "D0"


def test_digits_know_how_many_values_they_have() -> None:
    assert (Digits("C", 8, 64).size, Digits("C", 8).size) == (8, None)


def test_strides_are_those_of_the_compiler() -> None:
    made = WHOLE.tensors[0]
    text = (
        declarations(WHOLE)
        + """
extern "C" int x() { return walk::Row(0u).stride<walk::X>(); }
extern "C" int c() { return walk::Row(0u).stride<walk::C8>(); }
"""
    )
    library: ctypes.CDLL = shared_library(text)
    assert strides(made) == [library.x(), library.c()] == [8, 1]
    assert strides(WHOLE.tensors[1]) == [None, 64, 8, 1]
    assert strides(WHOLE.tensors[2]) == [640, None]
