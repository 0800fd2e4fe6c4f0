"""What the weight gradient calls its dimensions: rows in shared memory, lanes, warps, partial sums; for one cut.

The names are those of weight_gradient_place.cu. `X` counts columns of the box of x, `Q` columns of the tile of dy, `C`
and `K` channels of x and dy; `Unit` eight columns of one image, `Step` two units; `Tap` a filter column, `TapY` a
filter row, `TapC` a tap of a pair and a channel. `BlockAndPart` numbers blocks of channels in filter parts in splits.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..dimensions.specification import (
    AnyDimension,
    Compound,
    Dimension,
    Extent,
    Fold,
    Module,
    Parameter,
    Specification,
    Tensor,
)
from .weight_gradient_configuration import LANES, Cut

WHOLE = ("Image", "X", "Q", "C", "K", "Tap", "TapY", "TapC", "Unit", "Share", "Lane", "BlockAndPart")


def specification(cut: Cut, parameters: Mapping[str, int | bool]) -> Specification:
    """The dimensions, tiles and compound indices of the kernels, and `parameters` beside them."""
    parameters = {**parameters, "group_chunks": cut.group_chunks}
    return Specification(
        "tapestry::parameters",
        dims=(
            *map(Dimension, WHOLE),
            *(Fold("Q8", "Q", 8), Module("Q8m", "Q", 8), Fold("C8", "C", 8), Module("InGroup", "C", cut.problem.width)),
            *(Fold("K8", "K", 8), Module("K8m", "K8", cut.configuration.out_blocks)),
            Fold("K8Block", "K8", cut.configuration.out_blocks),
            *(Fold("TapPair", "Tap", 2), Module("TapHalf", "Tap", 2)),
            *(Fold("Step", "Unit", 2), Module("UnitHalf", "Unit", 2)),
            *_deal(cut),
        ),
        tensors=(*_rows(cut), Tensor("Partials", "float4", _partials(cut)), *_exchange(cut)),
        compounds=(*_lanes(), *_places(cut)),
        parameters=_numbers(parameters),
    )


def plain_specification(lanes: int, width: int, parameters: Mapping[str, int | bool]) -> Specification:
    """The dimensions of the plain kernel: `Y` and `X` of x, `P` and `Q` of dy, `lanes` output channels a block."""
    whole = ("N", "Y", "X", "C", "P", "Q", "K", "Tap", "TapY", "Split", "Beside", "Warp")
    parts = Module("InGroup", "C", width), Fold("KBlock", "K", lanes), Module("KLane", "K", lanes)
    dims: tuple[AnyDimension, ...] = (*map(Dimension, whole), *parts)
    return Specification("tapestry::parameters", dims, parameters=_numbers(parameters))


def _numbers(parameters: Mapping[str, int | bool]) -> tuple[Parameter, ...]:
    return tuple(Parameter(name, value) for name, value in parameters.items())


def _rows(cut: Cut) -> tuple[Tensor, Tensor]:
    """A row of the box of x, and a row of the tile of dy."""
    chosen = cut.configuration
    swizzle = 2 * chosen.channel_block if cut.chunks > 1 and not chosen.flat else 0
    x = (Extent("Image", chosen.images), Extent("X", cut.x_columns), Extent("C8", cut.chunks))
    dy = (Extent("Unit", chosen.images * chosen.units), Extent("Q8m", 8), Extent("K8", cut.chunks))
    return Tensor("XRow", "octet", x, True, swizzle), Tensor("DyRow", "octet", dy, True, swizzle)


def _partials(cut: Cut) -> tuple[Extent, ...]:
    """Four sums of a lane, of every fragment of every warp."""
    chosen = cut.configuration
    warps = (Extent("C8", cut.chunks), Extent("K8Block", cut.group_chunks // chosen.out_blocks))
    fragments = (Extent("K8m", chosen.out_blocks), Extent("TapY", cut.filter_rows), Extent("TapPair", cut.tap_pairs))
    return (Extent("BlockAndPart"), *warps, *fragments, Extent("Lane", LANES))


def _deal(cut: Cut) -> tuple[AnyDimension, ...]:
    """Fragments of a block's sums dealt to the ranks of a cluster, one after the other."""
    if not cut.configuration.together:
        return ()
    ranks = cut.configuration.splits
    return Dimension("Rank"), Dimension("Item"), Module("Owner", "Item", ranks), Fold("Turn", "Item", ranks)


def _exchange(cut: Cut) -> tuple[Tensor, ...]:
    """What a rank is given to add."""
    chosen = cut.configuration
    if not chosen.together:
        return ()
    given = (Extent("Rank", chosen.splits), Extent("Share", chosen.share), Extent("Turn", cut.turns))
    return (Tensor("Exchange", "float4", (*given, Extent("Lane", LANES)), True),)


def _lanes() -> tuple[Compound, Compound]:
    """The four 8 x 8 matrices of an ldmatrix.trans: two units x two taps of x, four units of dy."""
    x = (Extent("UnitHalf", 2), Extent("TapHalf", 2), Extent("Q8m", 8))
    return Compound("XMatrixRow", x, LANES), Compound("DyMatrixRow", (Extent("Unit", 4), Extent("Q8m", 8)), LANES)


def _places(cut: Cut) -> tuple[Compound, ...]:
    """What one number of a unit, a multiplying warp and a partial sum stands for."""
    chosen = cut.configuration
    warps = (Extent("C8", cut.chunks), Extent("K8Block", cut.group_chunks // chosen.out_blocks))
    return (
        Compound("UnitPlace", (Extent("Image", chosen.images), Extent("Q8", chosen.units))),
        Compound("WarpPlace", (*warps, Extent("Share", chosen.share)), cut.consumers),
        Compound("PartialPlace", _partials(cut)),
    )
