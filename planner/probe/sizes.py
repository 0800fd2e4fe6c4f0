"""What is measured: for processors that a task of a millisecond keeps busy, and for those that take a thousand times as
much work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product

WINDOW, SIDE = 3, 28  # of the images and their windows; of layers the side of a result
PLACES = SIDE**2  # of a result of one image


TableName = tuple[str, str, int]
"""Kernel class, dtype, and places of a window, 0 of what has none."""


@dataclass(frozen=True)
class Heads:
    """Attention of a rank: so many heads of so many elements, in a dtype; ``causal``: up to the query's own key."""

    count: int
    width: int
    dtype: str
    causal: bool


@dataclass(frozen=True)
class Grid:
    """Shapes that are measured, each size with each (see `ShapeTable`). ``window``: places of one, of convolutions."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    folded: tuple[int, ...]
    window: int = 0

    @property
    def axes(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        return self.rows, self.columns, self.folded


@dataclass(frozen=True)
class Sizes:
    """Shapes (m, k, n) of products, elements of elementwise work and of rows that are folded, images (side, channels),
    queries of attention, bytes of transfers; ``row``: elements of a row that is folded; ``degree``: of polynomials
    of every element, none for 0; ``coarse``: what is measured of other dtypes. ``shapes``: of products by dtype, of
    which rows and columns are the same sizes; ``seen``: of attention, queries of a head, keys that each sees,
    causally where so few can be seen so, and widths. ``windows``: sides of images of which every element is read with
    those around it. ``layers``: shapes of convolutions by dtype, of which rows are multiples of
    `PLACES` and what is folded of a square window's places.
    """

    products: tuple[tuple[int, int, int], ...]
    elements: tuple[int, ...]
    row: int
    images: tuple[tuple[int, int], ...]
    queries: tuple[int, ...]
    heads: Heads
    moved: tuple[int, ...]
    dtypes: tuple[str, ...]
    degree: int = 0
    coarse: Sizes | None = None
    shapes: Mapping[str, Grid] = field(default_factory=dict)
    seen: Grid | None = None
    windows: tuple[int, ...] = ()
    layers: Mapping[str, tuple[Grid, ...]] = field(default_factory=dict)

    def products_of(self, dtype: str) -> list[tuple[int, int, int]]:
        """All (m, k, n) that are measured, the smallest first: of two with their sides exchanged one."""
        grid = self.shapes.get(dtype)
        shapes = [] if grid is None else [(m, k, n) for m, n, k in product(*grid.axes) if m >= n]
        return sorted({*self.products, *shapes}, key=lambda shape: (shape[0] * shape[1] * shape[2], shape))

    @property
    def grids(self) -> dict[TableName, Grid]:
        """The shapes of products and of convolutions by their class, dtype and window."""
        found = {("matmul", dtype, 0): grid for dtype, grid in self.shapes.items()}
        found |= {("conv", dtype, grid.window): grid for dtype, grids in self.layers.items() for grid in grids}
        return found if self.coarse is None else found | self.coarse.grids

    @property
    def vectors(self) -> Grid | None:
        """The shapes of the slopes of attention as tasks: vectors of as many elements as heads are wide."""
        if self.seen is None:
            return None
        return Grid(tuple(t * self.heads.count for t in self.seen.rows), self.seen.columns, self.seen.folded)

    @property
    def records(self) -> Grid | None:
        """The shapes of attention as tasks: the record of a head has two elements more than it is wide."""
        if self.seen is None:
            return None
        rows, folded = (tuple(t * self.heads.count for t in self.seen.rows), tuple(e + 2 for e in self.seen.folded))
        return Grid(rows, self.seen.columns, folded)


FULL = Sizes(
    products=((8, 8, 8), (32, 32, 32), (96, 96, 96), (256, 256, 256), (512, 512, 512), (16, 512, 512), (1024, 64, 128)),
    elements=(64, 1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20),
    row=64,
    images=((12, 8), (32, 16), (64, 32)),
    queries=(16, 64, 256),
    heads=Heads(1, 32, "f32", causal=False),
    moved=(256, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22),
    dtypes=("f32", "f64", "bf16"),
)
QUICK = Sizes(
    products=((8, 8, 8), (64, 64, 64), (256, 256, 256)),
    elements=(64, 1 << 13, 1 << 17),
    row=64,
    images=((12, 8), (32, 16)),
    queries=(16, 128),
    heads=Heads(1, 32, "f32", causal=False),
    moved=(256, 1 << 16, 1 << 20),
    dtypes=("f32", "f64"),
)

# What keeps a GPU busy: layers of language models with 4,096 features, for many tokens and for few; and squares.
_HEADS = Heads(32, 128, "bf16", causal=True)
_SIDES, _DEPTHS = (16, 64, 256, 1024, 2048, 4096, 8192, 16384), (64, 256, 1024, 4096, 16384)
_SIDES_F32, _DEPTHS_F32 = (16, 64, 256, 1024, 4096), (64, 256, 1024, 4096)
_DEGREE = 64
_CHANNELS = {3: (2, 3, 4, 8, 16, 32, 64), 5: (3, 8, 16, 64), 7: (3, 8, 16, 64), 11: (3, 8, 16)}  # by sides of windows
_LAYERS = tuple(
    Grid((2 * PLACES, 128 * PLACES), (16, 64, 256), tuple(side**2 * c for c in channels), side**2)
    for side, channels in _CHANNELS.items()
)
_COARSE = Sizes(
    products=((128, 128, 128), (1024, 1024, 1024), (8192, 4096, 4096)),
    elements=(1 << 10, 1 << 20, 1 << 25),
    row=4096,
    images=((64, 64), (128, 256)),
    queries=(),
    heads=_HEADS,
    moved=(),
    dtypes=("f16", "f64"),
    degree=_DEGREE,
    layers={"f16": _LAYERS},
)
GPU = Sizes(
    products=(
        (128, 128, 128), (512, 512, 512), (8192, 4096, 14336), (8192, 14336, 4096), (65536, 96, 384), (65536, 384, 96),
        (2, 4096, 14336),
    ),
    elements=(1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 25),
    row=4096,
    images=((32, 16), (64, 64), (128, 96), (224, 64), (56, 512), (512, 64), (128, 256), (256, 256)),
    queries=(32768,),
    heads=_HEADS,
    moved=(1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 27),
    dtypes=("bf16", "f32"),
    degree=_DEGREE,
    coarse=_COARSE,
    windows=(64, 512, 4096),
    layers={"bf16": _LAYERS, "f32": _LAYERS[:1]},
    shapes={"bf16": Grid(_SIDES, _SIDES, _DEPTHS), "f32": Grid(_SIDES_F32, _SIDES_F32, _DEPTHS_F32)},
    seen=Grid((128, 512, 1024, 4096, 16384), (256, 1024, 4096, 16384), (64, 128)),
)  # fmt: skip
GPU_QUICK = Sizes(
    products=((128, 128, 128), (1024, 1024, 1024), (8192, 4096, 4096), (8192, 4096, 128), (16, 4096, 14336)),
    elements=(1 << 10, 1 << 18, 1 << 24),
    row=4096,
    images=((64, 64),),
    queries=(256, 2048, 8192),
    heads=_HEADS,
    moved=(1 << 10, 1 << 18, 1 << 24),
    dtypes=("bf16", "f32"),
    degree=_DEGREE,
)
