"""The block kernels: what is true of each, in one entry. `verify` holds every block operation to its entry.

A block operation writes one value per point of its kept dimensions. Its result may be a record (`Monoid.packed`): then
the last axis of the output holds the components one after another, and its reduction may be cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import TYPE_CHECKING, Any

from . import fourier
from .dtypes import DTYPES
from .errors import ProgramError, close_match
from .expr import MONOIDS, Monoid

if TYPE_CHECKING:
    from .program import Block, Operation, Tensor


@dataclass(frozen=True)
class Attribute:
    """A setting of a block kernel: its Python type, and whether it may be left out."""

    name: str
    type: type
    required: bool = True


@dataclass(frozen=True)
class Bodies:
    """What a block kernel computes, as functions of whole blocks: one array an operand, attributes by name.

    An operand has an axis for every kept dimension of the operation (of extent 1 where it does not depend on it), then
    one for each folded and each made dimension that it depends on. The result has an axis for every kept and every made
    dimension, or for a packed monoid the components of the record in place of the latter, and may be broadcast.

    numpy       of NumPy arrays in the dtypes of the operands (bf16 and smaller floats: f32)
    reference   the same in float64, for the oracle; None: ``numpy``
    torch       of torch's tensors on a GPU; None: the kernel runs on no GPU
    derivative  of tensors of the DSL: the cotangent of the result, the operands, attributes by name, to one cotangent
                (or None) an operand, each with that operand's axes; None: the kernel has no derivative
    home        the file that declares it, for processes that have not run it; "": all of them know it
    """

    numpy: Callable[..., Any]
    reference: Callable[..., Any] | None = None
    torch: Callable[..., Any] | None = None
    derivative: Callable[..., Any] | None = None
    home: str = ""


@dataclass(frozen=True)
class BlockKernel:
    """What is true of every operation that runs a block kernel.

    reads        the operands, by what they are to the kernel
    attributes   its settings
    folded       how many dimensions it reduces; they stand right before the uncut ones
    uncut        how many of its last dimensions may not be cut
    monoid       the monoid of its partial state; None: its reduction may not be cut
    rate         the class of rates at which devices run it (see `planner.machine`)
    flops        operations charged per index point
    work         operations of all folded and uncut points that share the kept ones, by extents; None: by ``flops``
    check        further conditions: gives what is wrong, or None
    pieces       what it computes as operations that differentiate, "module:function"; None: it has no derivative
    bodies       what it computes, of a kernel that is declared in one place; None: devices know it by name
    call         the name of a library's call that makes the results of several kernels at once, of the same operands
                 and points, each of which is charged an equal part of it; None: none does
    spread       the operands all elements of which along the uncut dimensions enter each element of the result along
                 them; of the others only the same one does. None: all operands
    """

    name: str
    reads: tuple[str, ...]
    attributes: tuple[Attribute, ...] = ()
    folded: int = 0
    uncut: int = 0
    monoid: str | None = None
    rate: str = "elementwise"
    flops: int = 1
    work: Callable[[Mapping[str, int]], int] | None = None
    check: Callable[[Operation, Block, Tensor], str | None] | None = None
    pieces: str | None = None
    bodies: Bodies | None = None
    call: str | None = None
    spread: tuple[str, ...] | None = None

    @property
    def partial_state(self) -> Monoid | None:
        return None if self.monoid is None else MONOIDS[self.monoid]


BLOCKS: dict[str, BlockKernel] = {}


def add_block(kernel: BlockKernel) -> BlockKernel:
    """Add an entry to the table. ValueError for a name that is taken or a monoid that is not there."""
    if kernel.name in BLOCKS or (kernel.monoid is not None and kernel.monoid not in MONOIDS):
        raise ValueError(f"the block kernel {kernel.name} is there already, or its monoid {kernel.monoid} is not")
    BLOCKS[kernel.name] = kernel
    return kernel


def flops_of_block(op: Operation, kernel: str) -> int | Fraction:
    """Operations charged per index point of an operation that runs a block kernel."""
    entry = BLOCKS[kernel]
    if entry.work is None:
        return entry.flops
    shared = prod(dim.extent for dim in op.dims[len(op.dims) - entry.folded - entry.uncut :])
    found = Fraction(entry.work(op.extents), max(1, shared))
    return found.numerator if found.denominator == 1 else found


def record_layout(monoid: Monoid, length: int) -> dict[str, slice]:
    """Component -> its place in a packed record of so many elements; the vector takes what the others leave."""
    rest = length - sum(not component.vector for component in monoid.components)
    found, start = {}, 0
    for component in monoid.components:
        size = rest if component.vector else 1
        found[component.name] = slice(start, start + size)
        start += size
    return found


def check_block(op: Operation, block: Block, output: Tensor, where: str) -> None:
    """Raise ProgramError unless a block operation is as its entry says."""
    entry = BLOCKS.get(block.kernel)
    if entry is None:
        hint = f"{close_match(block.kernel, list(BLOCKS))}; one of your own: tapestry --import FILE.py ..."
        raise ProgramError(f"there is no block kernel {block.kernel!r}", where=where, hint=hint)
    if len(block.reads) != len(entry.reads):
        sides = {"reads": len(block.reads), "wants": ", ".join(entry.reads)}
        raise ProgramError(f"{entry.name} is given another number of reads", where=where, sides=sides)
    _attributes(entry, block.attrs, where)
    _dimensions(entry, op, where)
    if op.monoid != entry.monoid:
        sides = {"folds with": op.monoid, "wants": entry.monoid}
        raise ProgramError(f"{entry.name} folds with another monoid", where=where, sides=sides)
    state = entry.partial_state
    if state is not None and DTYPES[output.dtype].kind != "float" and state.result == "float":
        raise ProgramError(f"keeps the state of {entry.name} in {output.dtype}", where=where)
    if entry.bodies is not None and (op.where or tuple(map(str, op.write)) != op.parallel_dims):
        hint = "a kernel declared by tp.block writes its kept and made dimensions as they are, at all points"
        raise ProgramError(f"{entry.name} writes elsewhere", where=where, hint=hint)
    fault = entry.check(op, block, output) if entry.check is not None else None
    if fault is not None:
        raise ProgramError(fault, where=where)


def _attributes(entry: BlockKernel, given: Mapping[str, Any], where: str) -> None:
    known = {attribute.name: attribute for attribute in entry.attributes}
    for name, value in given.items():
        if name not in known:
            hint = f"it has {', '.join(known) or 'none'}"
            raise ProgramError(f"{entry.name} has no attribute {name!r}", where=where, hint=hint)
        if type(value) is not known[name].type:
            sides = {"given": repr(value), "wants": known[name].type.__name__}
            raise ProgramError(f"the attribute {name} of {entry.name} is of another type", where=where, sides=sides)
    missing = [attribute.name for attribute in entry.attributes if attribute.required and attribute.name not in given]
    if missing:
        raise ProgramError(f"{entry.name} lacks its attribute {missing[0]}", where=where)


def _dimensions(entry: BlockKernel, op: Operation, where: str) -> None:
    """The last dimensions are the uncut ones, those before them are folded, and nothing else is either."""
    names = [dim.name for dim in op.dims]
    first_uncut = len(names) - entry.uncut
    first_folded = first_uncut - entry.folded
    if first_folded < 0 or list(op.reduce_dims) != names[first_folded:first_uncut]:
        sides = {"folds": " ".join(op.reduce_dims) or "nothing", "dimensions": " ".join(names)}
        hint = f"{entry.folded} folded dimensions stand right before {entry.uncut} uncut ones, at the end"
        raise ProgramError(f"{entry.name} folds other dimensions", where=where, sides=sides, hint=hint)
    whole = names[first_uncut:] + (names[first_folded:first_uncut] if entry.monoid is None else [])
    wrong = [dim.name for dim in op.dims if dim.cut and dim.name in whole]
    if wrong:
        raise ProgramError(f"{entry.name} may not be cut along {wrong[0]}", where=where, hint="cut=False")


def _attention_fault(op: Operation, block: Block, output: Tensor) -> str | None:
    """The state lies along the output's last axis as along the last dimension, and the scale is a number."""
    last = op.write[-1] if op.write else None
    if last is None or str(last) != op.dims[-1].name:
        return f"the record does not lie along the last axis of {output.name}"
    scale, width = block.attrs["scale"], op.dims[-1].extent - 2
    if width < 1 or block.attrs.get("width", width) != width:
        return f"its state is {width + 2} long, which is not 2 more than its width {block.attrs.get('width', '')}"
    return None if abs(scale) < float("inf") else f"the scale {scale} is not a finite number"


def _slopes_fault(op: Operation, block: Block, output: Tensor) -> str | None:  # noqa: ARG001
    """The scale is a number."""
    scale = block.attrs["scale"]
    return None if abs(scale) < float("inf") else f"the scale {scale} is not a finite number"


add_block(
    BlockKernel(
        "attention",
        ("q", "k", "v"),
        (
            Attribute("scale", float),
            Attribute("width", int, required=False),
            Attribute("causal", bool, required=False),
            Attribute("offset", int, required=False),
            Attribute("groups", int, required=False),
        ),
        folded=1,
        uncut=1,
        monoid="online_softmax",
        rate="attention",
        # Per query, head and key and element of the head width: a multiply-add for the score and one for the value.
        flops=4,
        check=_attention_fault,
        pieces="tapestry.autodiff.attention:pieces",
        spread=("q", "k"),
    )
)
# Of five products of matrices by which all three are made at once two are for q, two for k, one for v. Made apart they
# have the scores in common, and the slopes of the weights.
for _side, _folded, _flops in (("q", 1, 4), ("k", 2, 4), ("v", 2, 2)):
    add_block(
        BlockKernel(
            f"attention_slopes_{_side}",
            ("q", "k", "v", "result", "slope", "total", "largest"),
            (Attribute("scale", float),),
            folded=_folded,
            uncut=1,
            monoid="sum",
            rate="slopes",
            flops=_flops,
            check=_slopes_fault,
            pieces=f"tapestry.autodiff.attention:pieces_of_slopes_{_side}",
            call="attention_slopes",
        )
    )
add_block(
    BlockKernel(
        "fft",
        ("x",),
        (Attribute("inverse", bool),),
        folded=2,
        uncut=2,
        work=fourier.operations,
        check=fourier.fault_of_transform,
        bodies=Bodies(fourier.transformed, torch=fourier.transformed_torch, derivative=fourier.turned_back),
    )
)
add_block(
    BlockKernel(
        "rfft",
        ("x",),
        folded=1,
        uncut=2,
        work=fourier.operations,
        check=fourier.fault_of_reals,
        bodies=Bodies(fourier.of_reals, torch=fourier.of_reals_torch, derivative=fourier.of_reals_back),
    )
)
add_block(
    BlockKernel(
        "irfft",
        ("x",),
        (Attribute("length", int),),
        folded=2,
        uncut=1,
        work=fourier.operations,
        check=fourier.fault_to_reals,
        bodies=Bodies(fourier.to_reals, torch=fourier.to_reals_torch, derivative=fourier.to_reals_back),
    )
)
