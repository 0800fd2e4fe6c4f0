"""Kinds of convolutions whose cuts are timed, for a GPU that needs not be there."""

from __future__ import annotations

from dataclasses import replace

from tapestry.kernels.convolution.problem import ConvolutionProblem
from tapestry.kernels.cost.gpu import described_gpu
from tapestry.kernels.runtime.device import DeviceProperties

H200 = DeviceProperties("NVIDIA H200", (9, 0), 132, 60 << 20, 227 << 10, 228 << 10, 65536, 2048, 141 << 30)
GPU = described_gpu(H200)
SQUARE = ConvolutionProblem(4, 14, 14, 96, 12, 3, 3, padding=(1, 1, 1, 1), dtype="bf16")
KINDS = {
    "width 8": SQUARE,
    "strided": replace(SQUARE, stride=(2, 2)),
    "depthwise 7 x 7": replace(SQUARE, n=64, groups=96, r=7, s=7, padding=(3, 3, 3, 3)),
    "width 24": replace(SQUARE, groups=4),
    "width 24, strided": replace(SQUARE, groups=4, stride=(2, 2)),
    "width 3": replace(SQUARE, groups=32),
    "width 32": replace(SQUARE, groups=3),
    "width 32, large": replace(SQUARE, n=64, c=192, groups=6),
    "one group": replace(SQUARE, c=48, groups=1, channels_out=64),
    "over blocks of pixels": ConvolutionProblem(
        4, 14, 14, 16, 1, 2, 2, padding=(1, 0, 1, 0), dtype="bf16", channels_out=96
    ),
}
STEM = KINDS["over blocks of pixels"]
