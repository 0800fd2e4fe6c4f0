"""A convolutional network in the manner of ConvNeXt (Liu et al., arXiv:2201.03545): a stem that cuts the image into
patches, then blocks.

    python examples/convnet.py
    tapestry plan examples/convnet.py:forward --machine cpu-4 --set n=8 y=256 x=256

Activations are channels-last, [n, y, x, c]. A block is a depthwise 7 x 7 window, a normalisation over channels, and two
pointwise products with a gelu between, added to what came in. Cutting the image's rows makes halos of three rows;
cutting the hidden channels is a tensor-parallel MLP. Neither is written here.
"""

import tapestry as tp
from tapestry import Tensor, f32


@tp.op
def depthwise(x: f32[Tensor, "n y x c"], w: f32[Tensor, "r s c"]) -> f32[Tensor, "n p q c"]:
    """Every channel with a window of its own: x [n, y, x, c], w [r, s, c] -> [n, p, q, c]."""
    n, p, q, c, r, s = tp.indices("n p q c r s")
    return tp.sum[r, s](x[n, p + r, q + s, c] * w[r, s, c])


@tp.op
def patches(image: f32[Tensor, "n y x i"], w: f32[Tensor, "r s i c"]) -> f32[Tensor, "n p q c"]:
    """Windows side by side, each a vector of channels: image [n, y, x, i], w [r, s, i, c] -> [n, y/r, x/s, c]."""
    n, p, q, c, r, s, i = tp.indices("n p q c r s i")
    return tp.sum[r, s, i](image[n, w.shape[0] * p + r, w.shape[1] * q + s, i] * w[r, s, i, c])


def weight(name: str, **axes: int) -> Tensor:
    """A parameter of the layer being written; axes by name."""
    return tp.param(name, "f32", tuple(axes.values()), axes=tuple(axes))


def block(x: Tensor, *, window: int, expand: int) -> Tensor:
    """One block, [n, p, q, c] -> [n, p, q, c]."""
    c = x.shape[-1]
    hidden = expand * c
    around = window // 2
    padded = tp.pad(x, (0, around, around, 0))
    mixed = depthwise(padded, weight("window", r=window, s=window, c=c))
    normed = tp.layer_norm(mixed, weight("scale", c=c), weight("shift", c=c))
    grown = tp.gelu(tp.einsum("npqc,ch->npqh", normed, weight("grow", c=c, h=hidden), name="grown"))
    return x + tp.einsum("npqh,hc->npqc", grown, weight("shrink", h=hidden, c=c), name="shrunk")


@tp.program
def forward(
    image: f32[Tensor, "n y x 3"],
    *,
    n: int = 4,
    y: int = 224,
    x: int = 224,
    channels: int = 96,
    blocks: int = 3,
    patch: int = 4,
    window: int = 7,
    expand: int = 4,
) -> dict[str, Tensor]:
    """Features [n, y/patch, x/patch, channels] of n images."""
    with tp.name("stem"):
        h = patches(image, weight("w", r=patch, s=patch, i=3, c=channels))
        h = tp.layer_norm(h, weight("scale", c=channels), weight("shift", c=channels))
    for layer in range(blocks):
        with tp.name(f"blocks.{layer}"):
            h = block(h, window=window, expand=expand)
    return {"features": h}


if __name__ == "__main__":
    print(forward.bind())
