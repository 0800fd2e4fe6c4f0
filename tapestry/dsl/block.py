"""Block operations of one's own: a function of whole blocks, declared in one place, called in index notation."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..blocks import BLOCKS, Attribute, BlockKernel, Bodies, add_block
from ..errors import UsageError
from ..expr import MONOIDS, Affine, Const, Read
from ..names import check_name
from ..program import Block, Dim
from .caller import here, user_frame
from .door import door
from .element import Element, element
from .index import Index, joined
from .ranges import solve
from .tensor import Tensor
from .trace import current

SETTINGS = (bool, int, float, str)  # types that an attribute may have


@dataclass(frozen=True)
class BlockOperation:
    """A block kernel of one's own. Called inside a program it adds one operation."""

    kernel: BlockKernel

    def __call__(
        self,
        *reads: Tensor,
        fold: Index | Sequence[Index] = (),
        make: Index | Sequence[Index] = (),
        dtype: str | None = None,
        name: str = "",
        **attributes: Any,
    ) -> Tensor:
        """The result, with an axis for each kept index of ``reads`` in their order, then for each of ``make``.

        ``reads`` are elements in index notation (``x[n, s]``); the kernel gets all elements along ``fold`` and gives
        all along ``make``. Ranges of indices are found as in `tapestry.op`; those of ``make`` are told to
        `tapestry.indices` or stand in a read. ``dtype`` None is that of the first read. Raises UsageError for what does
        not fit the declaration.
        """
        return _called(self.kernel, reads, _listed(fold), _listed(make), dtype, attributes, name)


def _called(
    kernel: BlockKernel,
    reads: Sequence[Tensor],
    fold: Sequence[Index],
    make: Sequence[Index],
    dtype: str | None,
    attributes: Mapping[str, Any],
    name: str,
) -> Tensor:
    trace = current(kernel.name)
    _demand_fit(kernel, reads, fold, make)
    found = [_read(kernel, x) for x in reads]
    folds, makes = ([_letter(kernel, index) for index in group] for group in (fold, make))
    inner = [*folds, *makes]
    kept = [n for n in dict.fromkeys(n for e in found for n in e.free) if n not in inner]
    given = joined(*(e.given for e in found), *(index.given for index in (*fold, *make)))
    accesses = tuple(access for e in found for access in e.accesses)
    extents = solve(kernel.name, Element(Const(0), accesses, (), given), [*kept, *inner], {}).out
    dims = [Dim(n, extents[n]) for n in kept]
    dims += [Dim(n, extents[n], cut=kernel.monoid is not None) for n in folds]
    dims += [Dim(n, extents[n], cut=False) for n in makes]
    body = Block(kernel.name, tuple(e.expr for e in found if isinstance(e.expr, Read)), _settings(kernel, attributes))
    return trace.compute(
        kernel.name, dims, body, reduce_dims=folds, monoid=kernel.monoid,
        dtype=dtype or trace.dtypes[body.reads[0].tensor], explicit=name,
    )  # fmt: skip


def _listed(given: Index | Sequence[Index]) -> tuple[Index, ...]:
    return (given,) if isinstance(given, Index) else tuple(given)


def _letter(kernel: BlockKernel, index: Index) -> str:
    """The name of an index that stands alone."""
    names = [str(name) for name, _ in index.affine.terms] if isinstance(index, Index) else []
    if len(names) != 1 or index.affine != Affine.dim(names[0]):
        what = f"{kernel.name} folds and makes indices, not {index.affine}"
        raise UsageError(what, where=here(), hint='n, s = tp.indices("n s"), then fold=s')
    return names[0]


def _demand_fit(kernel: BlockKernel, reads: Sequence[object], fold: Sequence[Index], make: Sequence[Index]) -> None:
    """UsageError unless a call has what the declaration says."""
    given = {"operands": len(reads), "fold": len(fold), "make": len(make)}
    wanted = {"operands": len(kernel.reads), "fold": kernel.folded, "make": kernel.uncut}
    if given != wanted:
        said = [", ".join(f"{count} {word}" for word, count in side.items()) for side in (given, wanted)]
        what = f"{kernel.name} is called otherwise than it was declared"
        raise UsageError(what, where=here(), sides={"called with": said[0], "declared with": said[1]})


def _read(kernel: BlockKernel, x: Tensor) -> Element:
    """One operand: an element whose expression is one read. Views that are more than a change of axes are copied."""
    found = element(x)
    if isinstance(found.expr, Read) and found.accesses:
        return found
    one = len(found.accesses) == 1 and not found.reductions and not found.accesses[0].guarded
    if not one or found.expr != found.accesses[0].tensor.at(found.accesses[0].index):
        hint = "compute it first: a whole tensor, then its element"
        raise UsageError(f"{kernel.name} takes elements of tensors, not {found!r}", where=here(), hint=hint)
    [access] = found.accesses
    whole = access.tensor.trace.materialise(access.tensor)
    return Element(whole.at(access.index), found.accesses, (), found.given)


def _settings(kernel: BlockKernel, given: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Attributes in the order of the declaration; whole numbers stand for floats."""
    types = {attribute.name: attribute.type for attribute in kernel.attributes}
    listed = {name: float(value) if types.get(name) is float and type(value) is int else value
              for name, value in given.items()}  # fmt: skip
    return (*((name, listed.pop(name)) for name in types if name in listed), *listed.items())


@door
def block(
    name: str,
    numpy: Callable[..., Any],
    *,
    operands: str,
    fold: int = 0,
    make: int = 0,
    monoid: str | None = None,
    reference: Callable[..., Any] | None = None,
    torch: Callable[..., Any] | None = None,
    derivative: Callable[..., Any] | None = None,
    work: Callable[[Mapping[str, int]], int] | None = None,
    rate: str = "elementwise",
) -> BlockOperation:
    """Declare a block operation by a function of whole blocks; what is given is called in index notation.

    ``numpy`` gets an array an operand (``operands`` names them, "x w") and gives one: `tapestry.blocks.Bodies` says
    with which axes. Its keyword-only parameters, annotated as bool, int, float or str, are settings. ``fold`` and
    ``make`` count the indices that a call takes and gives whole. ``torch`` is the same for GPUs, ``reference`` for the
    oracle in float64 (None: ``numpy`` itself, so that the oracle proves the sharding and not the function).
    ``derivative`` is written in the DSL: from the cotangent of the result and the operands to a cotangent, or None, for
    each of these. ``monoid`` names a packed monoid whose records it makes: then its fold may be cut. ``work`` counts
    the operations of one kept point from the extents by name (None: one for each index point), at the rate of the class
    ``rate``.

    The operation is cut along its kept indices. Plans that use it are read by processes that have run the file that
    declares it: those of `tapestry --import FILE.py`, and the ranks of a run. Raises UsageError for a name that is
    taken by another declaration, and for what does not fit.
    """
    if BLOCKS.get(name, None) is not None and _home(BLOCKS[name]) != _declared_in():
        raise UsageError(f"the block kernel {name} is there already", where=here(), hint="give it another name")
    if not check_name(name, "a block kernel").isidentifier():
        raise UsageError(f"{name!r} is no identifier", where=here())
    if monoid is not None and (monoid not in MONOIDS or not MONOIDS[monoid].packed or make != 1):
        hint = "a monoid whose record lies along the one index that the operation makes"
        raise UsageError(f"{name} cannot fold with {monoid}", where=here(), hint=hint)
    bodies = Bodies(numpy, reference, torch, derivative, _declared_in())
    made = BlockKernel(
        name, tuple(operands.split()), _attributes(name, numpy), fold, make, monoid, rate, work=work, bodies=bodies
    )
    BLOCKS.pop(name, None)  # the same file, run again
    return BlockOperation(add_block(made))


def _home(kernel: BlockKernel) -> str:
    return kernel.bodies.home if kernel.bodies is not None else ""


def _declared_in() -> str:
    frame = user_frame()
    return frame.f_code.co_filename if frame is not None else "<tapestry>"


def _attributes(name: str, function: Callable[..., Any]) -> tuple[Attribute, ...]:
    """The settings that a body takes by keyword."""
    found = []
    types = {kind.__name__: kind for kind in SETTINGS}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        noted = parameter.annotation
        kind = types.get(noted if isinstance(noted, str) else getattr(noted, "__name__", ""))
        if kind is None:
            hint = f"annotate it as one of {', '.join(types)}"
            raise UsageError(f"the setting {parameter.name} of {name} has no known type", where=here(), hint=hint)
        found.append(Attribute(parameter.name, kind, required=parameter.default is parameter.empty))
    return tuple(found)
