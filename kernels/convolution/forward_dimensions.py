"""What the forward kernel calls its dimensions: tiles in shared memory, lanes, warps; for one problem and cut.

The names are those of forward_place.cu. `X` counts columns of the input box, `Q` columns of the output tile, `C` and
`K` channels read and written; `Unit` eight columns of one image, `Tile` two units; `Step` eight channels of one filter
column, `Pair` two steps. `P` and `Q` count cells, `Row` and `Column` the outputs in them, whose place in a cell is
their parity; `Piece` is the sums of one tile, octet and column of a warp's cells. The rest is the filter as it is
stored.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..dimensions.specification import Compound, Dimension, Extent, Fold, Module, Parameter, Specification, Tensor
from .configuration import LANES, QUAD, ForwardConfiguration, column_steps, footprint, group_block
from .problem import ConvolutionProblem

WHOLE = (
    *("Image", "X", "Row", "Column", "C", "K", "TapX", "TapY", "Step", "Unit", "Piece"),
    *("Outer", "StoredY", "StoredX", "Inner", "OctetPart"),
)
OF_FILTER = ("Fragment", "TapStep")


def specification(
    problem: ConvolutionProblem, cut: ForwardConfiguration, parameters: Mapping[str, int | bool]
) -> Specification:
    """The dimensions, tiles and compound indices of the kernel, and `parameters` beside them."""
    octets, steps = group_block(problem) // 8, problem.s * group_block(problem) // 8
    rows, columns = problem.cell
    pieces = cut.tiles * (cut.pairs or cut.octets) * columns
    counts = {"OCTETS": octets, "UNITS": cut.images * cut.units, "STEPS": steps, "PIECES": pieces}
    if cut.pairs:
        counts |= {"CHANNEL_PAIRS": cut.pairs, "COLUMN_STEPS": column_steps(problem)}
    filter_tile = _filter_tile(cut, octets, parameters)
    in_tile = "TileUnit" if cut.pairs else "TileHalf"
    return Specification(
        "spec",
        dims=(
            *map(Dimension, (*WHOLE, *OF_FILTER)),
            *(Fold("P", "Row", rows), Module("RowParity", "Row", rows)),
            *(Fold("Q", "Column", columns), Module("ColumnParity", "Column", columns)),
            *(Fold("Q8", "Q", 8), Module("Q8m", "Q", 8), Module("QuadColumn", "Q", QUAD)),
            *(Fold("C8", "C", 8), Fold("K8", "K", 8), Fold("K8Block", "K8", cut.octets)),
            *(Fold("Pair", "Step", 2), Module("PairHalf", "Step", 2), Module("PieceHalf", "Piece", 2)),
            *(Fold("Outer8", "Outer", 8), Module("Outer8m", "Outer", 8), Fold("Inner8", "Inner", 8)),
            *(Fold("TapPair", "TapStep", 2), Module("TapPairHalf", "TapStep", 2)),
            *(Module("FragmentHalf", "Fragment", 2),),
            *(Fold("Tile", "Unit", cut.tile_units), Module(in_tile, "Unit", cut.tile_units)),
            Fold("TileBlock", "Tile", cut.tiles),
        ),
        tensors=(
            *_tiles(problem, cut),
            Tensor("FilterTile", "octet", filter_tile, True, 16 * octets if octets > 1 else 0),
        ),
        compounds=(*_lanes(cut), *_places(problem, cut, octets), *_filter_places(cut, octets, filter_tile)),
        parameters=tuple(Parameter(name, value) for name, value in {**parameters, **counts}.items()),
    )


def _tiles(problem: ConvolutionProblem, cut: ForwardConfiguration) -> tuple[Tensor, Tensor]:
    """A row of the input box, and the output rows of a row of cells."""
    chunks = cut.pitch // 8
    swizzle = 16 * chunks if chunks > 1 and not cut.flat else 0
    box = (Extent("Image", cut.images), Extent("X", footprint(problem, cut).box_x), Extent("C8", chunks))
    rows, columns = (Extent("RowParity", problem.cell[0]), Extent("Column", 8 * cut.units * problem.cell[1]))
    out = (Extent("Image", cut.images), rows, columns, Extent("K8", chunks))
    return Tensor("InputRow", "octet", box, True, swizzle), Tensor("OutputRow", "octet", out, True, swizzle)


def _filter_tile(cut: ForwardConfiguration, octets: int, parameters: Mapping[str, int | bool]) -> tuple[Extent, ...]:
    """The filter of a channel block: taps as they are stored, outer channels counted from the block's first."""
    taps = (Extent("StoredY", parameters["STORED_R"]), Extent("StoredX", parameters["STORED_S"]))
    return (*taps, Extent("Outer", cut.channels), Extent("Inner8", octets))


def _filter_places(cut: ForwardConfiguration, octets: int, tile: tuple[Extent, ...]) -> tuple[Compound, ...]:
    """An octet of the filter's tile, the four matrices of two fragments, and what the number of a fragment means."""
    lanes = (Extent("FragmentHalf", 2), Extent("TapPairHalf", 2), Extent("Outer8m", 8))
    return (
        Compound("FilterChunk", tile),
        Compound("FragmentRow", lanes, LANES),
        Compound("FragmentPlace", (Extent("K8", cut.octets), Extent("TapPair", max(1, octets // 2)))),
    )


def _lanes(cut: ForwardConfiguration) -> tuple[Compound, ...]:
    """The four 8 x 8 matrices of an ldmatrix (two steps x two units) and of an stmatrix (two pieces x two units).

    Of pairs of channels: the unit of a tile and the column of a quad that a lane has.
    """
    if cut.pairs:
        return (Compound("PlaceRow", (Extent("TileUnit", cut.tile_units), Extent("QuadColumn", QUAD)), LANES),)
    rows = (Extent("TileHalf", 2), Extent("Q8m", 8))
    read = Compound("MatrixRow", (Extent("PairHalf", 2), *rows), LANES)
    return read, Compound("StoredRow", (Extent("PieceHalf", 2), *rows), LANES)


def _places(problem: ConvolutionProblem, cut: ForwardConfiguration, octets: int) -> tuple[Compound, ...]:
    """What one number of a unit, a step, a piece and a computing warp stands for."""
    columns = problem.cell[1]
    blocks = cut.channels // 8 // cut.octets
    parts = QUAD // cut.pairs if cut.pairs else 1  # of an octet, four pairs
    across = cut.warps // (blocks * parts)
    warps = (
        Extent("TileBlock", across),
        Extent("K8Block", blocks),
        *([Extent("OctetPart", parts)] if cut.pairs else []),
    )
    return (
        Compound("UnitPlace", (Extent("Image", cut.images), Extent("Q8", cut.units))),
        Compound("StepPlace", (Extent("TapX", problem.s), Extent("C8", octets))),
        Compound("TapRow", (Extent("TapY", problem.r), Extent("RowParity", problem.cell[0]))),
        Compound("PiecePlace", (Extent("Tile", cut.tiles), Extent("K8", cut.octets), Extent("ColumnParity", columns))),
        Compound("WarpPlace", warps),
    )
