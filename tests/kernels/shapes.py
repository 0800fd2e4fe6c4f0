"""The list of convolutions that every kernel has to get right, and to do no slower than cuDNN.

`SHAPES` maps a name to a problem. Model layers are the grouped and depthwise convolutions of EfficientNet (Tan and Le
2019 and 2021, "same" padding of the original at stride 2, which is asymmetric), ConvNeXt (Liu et al. 2022), RegNet
(Radosavovic et al. 2020) and ResNeXt (Xie et al. 2017) at their own extents; the rest are corners: every filter size,
rectangles, paddings 0, 2, 7, odd and tiny extents, group counts 1 to 256, every group width, batches 1 to 1024.
`TABLE` holds the six problems of the published comparison, `WIDE` groups of any other width (RegNet's among them), with
strides, and with other channels out than in.
"""

from __future__ import annotations

from dataclasses import replace

from tapestry.kernels.convolution.problem import ConvolutionProblem

Padding = tuple[int, int, int, int]


def grouped(
    n: int,
    extent: int | tuple[int, int],
    channels: int,
    width: int,
    filter_size: int | tuple[int, int],
    stride: int | tuple[int, int] = 1,
    padding: int | Padding | None = None,
    dilation: int | tuple[int, int] = 1,
    dtype: str = "f16",
) -> ConvolutionProblem:
    """One problem; `padding` None keeps a stride-1 extent, an int pads alike on all sides."""
    (h, w), (r, s) = _pair(extent), _pair(filter_size)
    gaps = _pair(dilation)
    if padding is None:
        rows, columns = gaps[0] * (r - 1), gaps[1] * (s - 1)
        padding = (rows // 2, rows - rows // 2, columns // 2, columns - columns // 2)
    sides = (padding,) * 4 if isinstance(padding, int) else padding
    return ConvolutionProblem(n, h, w, channels, channels // width, r, s, _pair(stride), gaps, sides, dtype)


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def _same(extent: int, size: int, stride: int) -> Padding:
    """TensorFlow's "same": the odd row and column go to the bottom and the right."""
    total = max(0, (-(-extent // stride) - 1) * stride + size - extent)
    return (total // 2, total - total // 2, total // 2, total - total // 2)


# Model, batch, then (extent, channels, filter, stride) of its distinct depthwise layers.
_EFFICIENTNET: dict[str, tuple[int, tuple[tuple[int, int, int, int], ...]]] = {
    "efficientnet_b0": (
        64,
        (
            (112, 32, 3, 1),
            (112, 96, 3, 2),
            (56, 144, 3, 1),
            (56, 144, 5, 2),
            (28, 240, 5, 1),
            (28, 240, 3, 2),
            (14, 480, 3, 1),
            (14, 480, 5, 1),
            (14, 672, 5, 1),
            (14, 672, 5, 2),
            (7, 1152, 5, 1),
            (7, 1152, 3, 1),
        ),
    ),
    "efficientnet_b3": (
        16,
        (
            (150, 40, 3, 1),
            (150, 24, 3, 1),
            (150, 144, 3, 2),
            (75, 192, 3, 1),
            (75, 192, 5, 2),
            (38, 288, 5, 1),
            (38, 288, 3, 2),
            (19, 576, 3, 1),
            (19, 816, 5, 1),
            (19, 816, 5, 2),
            (10, 1392, 5, 1),
            (10, 2304, 3, 1),
        ),
    ),
    "efficientnet_b7": (
        4,
        (
            (300, 64, 3, 1),
            (300, 192, 3, 2),
            (150, 288, 3, 1),
            (150, 288, 5, 2),
            (75, 480, 5, 1),
            (38, 960, 3, 1),
            (38, 1344, 5, 1),
            (19, 2304, 5, 1),
            (19, 3840, 3, 1),
        ),
    ),
    "efficientnet_v2_s": (
        32,
        ((48, 256, 3, 2), (24, 512, 3, 1), (24, 768, 3, 1), (24, 960, 3, 1), (24, 960, 3, 2), (12, 1536, 3, 1)),
    ),
}

# Model, batch, channels of the four stages, at 56, 28, 14 and 7.
_CONVNEXT = {
    "convnext_t": (64, (96, 192, 384, 768)),
    "convnext_b": (64, (128, 256, 512, 1024)),
    "convnext_l": (16, (192, 384, 768, 1536)),
}

# Model, batch, group width, channels of the stages; each stage begins with a layer of stride 2.
_REGNET = {
    "regnet_x_200mf": (64, 8, (24, 56, 152, 368)),
    "regnet_x_400mf": (64, 16, (32, 64, 160, 400)),
    "regnet_x_800mf": (64, 16, (64, 128, 288, 672)),
    "regnet_y_400mf": (128, 8, (48, 104, 208, 440)),
    "regnet_y_600mf": (32, 16, (48, 112, 256, 608)),
}

# Model, batch, groups, channels of the stages whose group width is at most 32.
_RESNEXT = {
    "resnext50_32x4d": (64, 32, (128, 256, 512, 1024)),
    "resnext101_32x8d": (32, 32, (256, 512, 1024)),
    "resnext101_64x4d": (32, 64, (256, 512, 1024, 2048)),
}


def _efficientnet() -> dict[str, ConvolutionProblem]:
    return {
        f"{model}.{extent}x{channels}k{size}s{stride}": grouped(
            batch, extent, channels, 1, size, stride, _same(extent, size, stride)
        )
        for model, (batch, layers) in _EFFICIENTNET.items()
        for extent, channels, size, stride in layers
    }


def _convnext() -> dict[str, ConvolutionProblem]:
    return {
        f"{model}.stage{stage}": grouped(batch, 56 >> stage, channels, 1, 7, dtype="bf16")
        for model, (batch, stages) in _CONVNEXT.items()
        for stage, channels in enumerate(stages)
    }


def _regnet() -> dict[str, ConvolutionProblem]:
    return {
        f"{model}.stage{stage}{'.first' if first else ''}": grouped(
            batch, (112 if first else 56) >> stage, channels, width, 3, 2 if first else 1, 1
        )
        for model, (batch, width, stages) in _REGNET.items()
        for stage, channels in enumerate(stages)
        for first in (True, False)
    }


def _resnext() -> dict[str, ConvolutionProblem]:
    return {
        f"{model}.stage{stage}{'.first' if first else ''}": grouped(
            batch, (112 if first else 56) >> stage, channels, channels // groups, 3, 2 if first else 1, 1
        )
        for model, (batch, groups, stages) in _RESNEXT.items()
        for stage, channels in enumerate(stages)
        for first in ((True, False) if stage else (False,))
    }


TABLE: dict[str, ConvolutionProblem] = {
    "table.64x64x64k3": grouped(64, 64, 64, 8, 3),
    "table.256x64x64k3": grouped(256, 64, 64, 8, 3),
    "table.64x1024x16k3": grouped(64, 16, 1024, 8, 3),
    "table.256x1024x16k3": grouped(256, 16, 1024, 8, 3),
    "table.64x64x64k5": grouped(64, 64, 64, 8, 5),
    "table.256x256x28k5": grouped(256, 28, 256, 8, 5),
}

# Group width, channels, extent, at batch 128; stride where it is 2.
_WIDTHS = (
    (3, 96, 28), (5, 320, 28), (24, 48, 56), (24, 336, 28), (24, 888, 7), (40, 320, 28), (48, 432, 28), (56, 448, 28),
    (64, 384, 28), (80, 320, 28), (96, 384, 28), (112, 448, 28), (120, 720, 14), (128, 768, 14),
    (24, 336, 28, 2), (48, 432, 28, 2), (112, 448, 28, 2),
)  # fmt: skip
WIDE: dict[str, ConvolutionProblem] = {
    **{
        f"wide.{'x'.join(map(str, found))}": grouped(128, found[2], found[1], found[0], 3, *found[3:], padding=1)
        for found in _WIDTHS
    },
    "wide.24to48": replace(grouped(128, 28, 240, 24, 3), channels_out=480),
    "wide.depthwise.to2": replace(grouped(64, 28, 128, 1, 3), channels_out=256),
    "wide.depthwise.to4": replace(grouped(64, 28, 64, 1, 5), channels_out=256),
}

_FILTERS = {
    **{f"filter.{k}x{k}": grouped(16, 32, 64, 8, k) for k in range(1, 8)},
    **{
        f"filter.{r}x{s}": grouped(8, (30, 33), 64, 8, (r, s))
        for r, s in ((1, 3), (3, 1), (1, 7), (7, 1), (2, 3), (3, 2), (5, 3), (3, 5), (4, 6), (6, 1), (2, 7), (7, 4))
    },
    **{f"filter.depthwise.{k}x{k}": grouped(8, 24, 128, 1, k) for k in range(1, 8)},
    **{f"filter.width16.{r}x{s}": grouped(8, 20, 128, 16, (r, s)) for r, s in ((1, 1), (2, 2), (5, 5), (7, 7), (3, 7))},
    **{f"filter.width32.{r}x{s}": grouped(8, 18, 128, 32, (r, s)) for r, s in ((1, 1), (4, 4), (5, 5), (7, 7), (1, 5))},
    **{f"filter.width4.{k}x{k}": grouped(8, 22, 64, 4, k) for k in (2, 5, 7)},
    **{f"filter.width2.{k}x{k}": grouped(8, 22, 64, 2, k) for k in (1, 3, 6)},
}

_PADDINGS = {
    **{f"padding.{p}.k{k}": grouped(8, 28, 64, 8, k, padding=p) for p in (0, 2, 7) for k in (1, 3, 5, 7)},
    **{
        f"padding.{'-'.join(map(str, sides))}": grouped(8, (21, 26), 96, 8, 3, padding=sides)
        for sides in ((0, 1, 0, 1), (1, 2, 3, 4), (7, 0, 0, 7), (2, 0, 5, 1), (0, 0, 3, 0))
    },
    "padding.0.depthwise": grouped(8, 28, 96, 1, 3, padding=0),
    "padding.7.depthwise": grouped(8, 28, 96, 1, 5, padding=7),
    "padding.2.width16": grouped(8, 28, 96, 16, 3, padding=2),
    "padding.4-1-0-2.width32": grouped(8, 28, 96, 32, 3, padding=(4, 1, 0, 2)),
    "padding.7-0-1-3.stride2": grouped(8, 27, 64, 8, 5, 2, padding=(7, 0, 1, 3)),
}

_STEPS = {
    **{f"stride2.k{k}": grouped(16, 56, 128, 8, k, 2, k // 2) for k in (1, 2, 3, 4, 5, 7)},
    **{f"dilation2.k{k}": grouped(16, 30, 64, 8, k, dilation=2) for k in (2, 3, 5, 7)},
    "stride2.dilation2": grouped(16, 40, 64, 8, 3, 2, 2, 2),
    "stride2.rows": grouped(16, 40, 64, 8, 3, (2, 1), 1),
    "stride2.columns": grouped(16, 40, 64, 8, 3, (1, 2), 1),
    "dilation2.rows": grouped(16, 40, 64, 8, 3, dilation=(2, 1)),
    "dilation2.columns": grouped(16, 40, 64, 8, (3, 5), dilation=(1, 2)),
    "stride2.odd": grouped(16, (57, 43), 128, 8, 3, 2, 1),
    "stride2.depthwise.k7": grouped(16, 42, 96, 1, 7, 2, 3),
    "dilation2.depthwise.k5": grouped(16, 42, 96, 1, 5, dilation=2),
    "stride2.width16": grouped(16, 42, 96, 16, 3, 2, 1),
    "stride2.width32": grouped(16, 42, 96, 32, 3, 2, 1),
    "dilation2.width32": grouped(16, 22, 96, 32, 3, dilation=2),
}

_EXTENTS = {
    **{
        f"extent.{h}x{w}": grouped(4, (h, w), 64, 8, 3)
        for h, w in ((1, 1), (1, 9), (9, 1), (2, 3), (5, 5), (7, 7), (13, 17), (15, 63), (33, 65), (127, 3), (3, 131))
    },
    "extent.511x257": grouped(1, (511, 257), 16, 8, 3),
    "extent.31x29.depthwise": grouped(4, (31, 29), 80, 1, 5),
    "extent.17x9.width32": grouped(4, (17, 9), 64, 32, 3),
    "extent.1024x1024": grouped(1, 1024, 8, 8, 3),
}

_GROUPS = {
    **{f"groups.{g}": grouped(4, 14, 8 * g, 8, 3) for g in (1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 32, 64, 100, 128, 256)},
    **{f"groups.{g}.width4": grouped(4, 14, 4 * g, 4, 3) for g in (2, 6, 32, 256)},
    **{f"groups.{g}.width2": grouped(4, 14, 2 * g, 2, 3) for g in (4, 20, 256)},
    **{f"groups.{g}.width16": grouped(4, 14, 16 * g, 16, 3) for g in (1, 3, 64, 256)},
    **{f"groups.{g}.width32": grouped(4, 14, 32 * g, 32, 3) for g in (1, 3, 64, 256)},
    # 3, 12 and 20 channels: 16 bytes do not divide a position.
    "groups.3.width1": grouped(4, 14, 3, 1, 3),
    "groups.12.width1": grouped(4, 14, 12, 1, 5),
    "groups.5.width4": grouped(4, 14, 20, 4, 3),
}

_BATCHES = {
    **{f"batch.{n}": grouped(n, 14, 64, 8, 3) for n in (1, 2, 3, 17, 128, 512, 1024)},
    "batch.1024.7": grouped(1024, 7, 256, 8, 3),
    "batch.1.112": grouped(1, 112, 64, 8, 3),
    "batch.1000.depthwise": grouped(1000, 7, 96, 1, 7),
    "batch.1.width32": grouped(1, 28, 256, 32, 3),
}

_BF16 = {
    "bf16.k3": grouped(32, 28, 256, 8, 3, dtype="bf16"),
    "bf16.k5.width16": grouped(32, 28, 256, 16, 5, dtype="bf16"),
    "bf16.k3.width32": grouped(32, 28, 256, 32, 3, dtype="bf16"),
    "bf16.k4.width4": grouped(32, 28, 256, 4, 4, dtype="bf16"),
    "bf16.stride2": grouped(32, 28, 256, 8, 3, 2, 1, dtype="bf16"),
}

SHAPES: dict[str, ConvolutionProblem] = {
    **TABLE,
    "table.128x512x14k3": grouped(128, 14, 512, 8, 3),
    **_efficientnet(),
    **_convnext(),
    **_regnet(),
    **_resnext(),
    **_FILTERS,
    **_PADDINGS,
    **_STEPS,
    **_EXTENTS,
    **_GROUPS,
    **_BATCHES,
    **_BF16,
}
