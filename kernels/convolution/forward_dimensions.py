"""What the forward kernel calls its dimensions: tiles in shared memory, lanes, warps; for one problem and cut.

The names are those of forward_place.cu. `X` counts columns of the input box, `Q` columns of the output tile, `C` and
`K` channels read and written; `Unit` eight columns of one image, `Tile` two units; `Step` eight channels of one filter
column, `Pair` two steps; `Piece` the sums of one tile and octet of a warp. The rest is the filter as it is stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from ..dimensions.specification import Compound, Dimension, Extent, Fold, Module, Parameter, Specification, Tensor
from .configuration import ForwardConfiguration, footprint, group_block
from .problem import ConvolutionProblem

WHOLE = ("Image", "X", "Q", "C", "K", "TapX", "TapY", "Step", "Unit", "Piece", "Outer", "StoredY", "StoredX", "Inner")
OF_FILTER = ("Fragment", "TapStep")
LANES = 32


def specification(
    problem: ConvolutionProblem, cut: ForwardConfiguration, parameters: Mapping[str, int | bool]
) -> Specification:
    """The dimensions, tiles and compound indices of the kernel, and `parameters` beside them."""
    octets, steps = group_block(problem) // 8, problem.s * group_block(problem) // 8
    counts = {"OCTETS": octets, "UNITS": cut.images * cut.units, "STEPS": steps}
    return Specification(
        "spec",
        dims=(
            *map(Dimension, (*WHOLE, *OF_FILTER)),
            *(Fold("Q8", "Q", 8), Module("Q8m", "Q", 8)),
            *(Fold("C8", "C", 8), Fold("K8", "K", 8), Fold("K8Block", "K8", cut.octets)),
            *(Fold("Pair", "Step", 2), Module("PairHalf", "Step", 2), Module("PieceHalf", "Piece", 2)),
            *(Fold("Outer8", "Outer", 8), Module("Outer8m", "Outer", 8), Fold("Inner8", "Inner", 8)),
            *(Fold("TapPair", "TapStep", 2), Module("TapPairHalf", "TapStep", 2)),
            *(Module("FragmentHalf", "Fragment", 2),),
            *(Fold("Tile", "Unit", 2), Module("TileHalf", "Unit", 2), Fold("TileBlock", "Tile", cut.tiles)),
        ),
        tensors=(
            *_tiles(problem, cut),
            Tensor("FilterTile", "octet", _filter_tile(problem, cut, octets), True, 16 * octets if octets > 1 else 0),
        ),
        compounds=(*_lanes(), *_places(problem, cut, octets), *_filter_places(problem, cut, octets)),
        parameters=tuple(Parameter(name, value) for name, value in {**parameters, **counts}.items()),
    )


def _position_warps(cut: ForwardConfiguration) -> int:
    return ceil(cut.images * cut.units / (2 * cut.tiles))


def _tiles(problem: ConvolutionProblem, cut: ForwardConfiguration) -> tuple[Tensor, Tensor]:
    """A row of the input box, and a row of the output tile with what its last warp writes beyond it."""
    chunks = cut.channels // 8
    swizzle = 2 * cut.channels if chunks > 1 else 0
    box = (Extent("Image", cut.images), Extent("X", footprint(problem, cut).box_x), Extent("C8", chunks))
    units = 2 * cut.tiles * _position_warps(cut)
    out = (Extent("Unit", units), Extent("Q8m", 8), Extent("K8", chunks))
    return Tensor("InputRow", "octet", box, True, swizzle), Tensor("OutputRow", "octet", out, True, swizzle)


def _filter_tile(problem: ConvolutionProblem, cut: ForwardConfiguration, octets: int) -> tuple[Extent, ...]:
    """The filter of a channel block: taps in the order of the pass, outer channels counted from the block's first."""
    taps = (Extent("TapY", problem.r), Extent("TapX", problem.s))
    return (*taps, Extent("Outer", cut.channels), Extent("Inner8", octets))


def _filter_places(problem: ConvolutionProblem, cut: ForwardConfiguration, octets: int) -> tuple[Compound, ...]:
    """An octet of the filter's tile, the four matrices of two fragments, and what the number of a fragment means."""
    lanes = (Extent("FragmentHalf", 2), Extent("TapPairHalf", 2), Extent("Outer8m", 8))
    return (
        Compound("FilterChunk", _filter_tile(problem, cut, octets)),
        Compound("FragmentRow", lanes, LANES),
        Compound("FragmentPlace", (Extent("K8", cut.octets), Extent("TapPair", max(1, octets // 2)))),
    )


def _lanes() -> tuple[Compound, Compound]:
    """The four 8 x 8 matrices of an ldmatrix (two steps x two units) and of an stmatrix (two pieces x two units)."""
    rows = (Extent("TileHalf", 2), Extent("Q8m", 8))
    read = Compound("MatrixRow", (Extent("PairHalf", 2), *rows), LANES)
    return read, Compound("StoredRow", (Extent("PieceHalf", 2), *rows), LANES)


def _places(problem: ConvolutionProblem, cut: ForwardConfiguration, octets: int) -> tuple[Compound, ...]:
    """What one number of a unit, a step, a piece and a computing warp stands for."""
    warps = (Extent("TileBlock", _position_warps(cut)), Extent("K8Block", cut.channels // 8 // cut.octets))
    return (
        Compound("UnitPlace", (Extent("Image", cut.images), Extent("Q8", cut.units))),
        Compound("StepPlace", (Extent("TapX", problem.s), Extent("C8", octets))),
        Compound("PiecePlace", (Extent("Tile", cut.tiles), Extent("K8", cut.octets))),
        Compound("WarpPlace", warps),
    )
