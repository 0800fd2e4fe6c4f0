"""Cases of products, folds, norms, windows, views and notation."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

import tapestry as tp

from .registry import Cases, floats, whole

CASES = Cases()
T = torch.Tensor

# -- products ----------------------------------------------------------------------------------------------------------

A, B, V, W = floats(4, 6), floats(6, 5, seed=1), floats(6, seed=2), floats(6, seed=3)
BATCH, OTHER = floats(3, 4, 6), floats(3, 6, 5, seed=1)
CASES.torch("matmul", tp.matmul, torch.matmul, A, B)
CASES.torch("bmm", tp.bmm, torch.bmm, BATCH, OTHER)
CASES.torch("outer", tp.outer, torch.outer, V, W)
CASES.torch("inner", tp.inner, torch.inner, A, floats(3, 6, seed=4))
CASES.torch("vdot", tp.vdot, torch.vdot, V, W)
CASES.torch("kron", tp.kron, torch.kron, A, floats(2, 3, seed=4))
CASES.torch("tensordot", tp.tensordot, torch.tensordot, BATCH, floats(4, 6, 2, seed=5))
CASES.torch(
    "tensordot",
    lambda a, b: tp.tensordot(a, b, ([0, 2], [0, 1])),
    lambda a, b: torch.tensordot(a, b, ([0, 2], [0, 1])),
    BATCH,
    OTHER,
)
CASES.torch("linear", tp.linear, F.linear, BATCH, floats(5, 6, seed=6), floats(5, seed=7))
CASES.torch(
    "addmm",
    lambda c, a, b: tp.addmm(c, a, b, alpha=2.5, beta=0.5),
    lambda c, a, b: torch.addmm(c, a, b, alpha=2.5, beta=0.5),
    floats(5, seed=8),
    A,
    B,
)
CASES.torch("bilinear", tp.bilinear, F.bilinear, A, floats(4, 5, seed=2), floats(3, 6, 5, seed=9), floats(3))
CASES.torch("cross", tp.cross, torch.linalg.cross, floats(4, 3), floats(4, 3, seed=1))
CASES.torch(
    "einsum",
    lambda a, b: tp.einsum("...ik,...kj->...ij", a, b),
    lambda a, b: torch.einsum("...ik,...kj->...ij", a, b),
    BATCH,
    B,
)
CASES.torch(
    "einsum",
    lambda a, b: tp.einsum("i...,j...", a, b),
    lambda a, b: torch.einsum("i...,j...", a, b),
    floats(2, 1, 4),
    floats(3, 5, 4, seed=1),
)
CASES.torch("einsum", lambda a: tp.einsum("...ii->...i", a), lambda a: torch.einsum("...ii->...i", a), floats(3, 4, 4))

# -- folds -------------------------------------------------------------------------------------------------------------

X3 = floats(3, 4, 5)
for name in ("sum", "mean"):
    CASES.alike(name, torch, (X3,), 1)
CASES.torch("prod", lambda x: tp.prod(x, 1), lambda x: torch.prod(x, 1), X3)
CASES.torch("max", lambda x: tp.max(x, (0, 2)), lambda x: torch.amax(x, (0, 2)), X3)
CASES.torch("min", lambda x: tp.min(x, -1, keepdims=True), lambda x: torch.amin(x, -1, keepdim=True), X3)
CASES.torch("logsumexp", lambda x: tp.logsumexp(x, 1), lambda x: torch.logsumexp(x, 1), X3)
CASES.torch("variance", lambda x: tp.variance(x, 1), lambda x: torch.var(x, 1, correction=0), X3)
CASES.torch("var", lambda x: tp.var(x, 1, correction=1), lambda x: torch.var(x, 1), X3)
CASES.torch("std", lambda x: tp.std(x, (0, 2), correction=2), lambda x: torch.std(x, (0, 2), correction=2), X3)
CASES.numpy("std", tp.std, np.std, X3)
for order in (1, 2, 3, 0.5, np.inf, -np.inf, 0):
    CASES.torch(
        "norm", lambda x, p=order: tp.norm(x, 1, order=p), lambda x, p=order: torch.linalg.vector_norm(x, p, 1), X3
    )
CASES.numpy("argmax", lambda x: tp.argmax(x, 1), lambda x: np.argmax(x, 1), X3)
CASES.numpy("argmin", lambda x: tp.argmin(x, 1), lambda x: np.argmin(x, 1), X3)
CASES.numpy("any", lambda x: tp.any(x > 1.5, 1), lambda x: np.any(x > 1.5, 1), X3)
CASES.numpy("all", lambda x: tp.all(x > -1.5, 1), lambda x: np.all(x > -1.5, 1), X3)
CASES.numpy(
    "count_nonzero", lambda x: tp.count_nonzero(x, 0), lambda x: np.count_nonzero(x, 0), whole(4, 5, low=-1, high=2)
)
CASES.numpy("ptp", lambda x: tp.ptp(x, 1), lambda x: np.ptp(x, 1), X3)
CASES.numpy(
    "average", lambda x, w: tp.average(x, w, 0), lambda x, w: np.average(x, 0, w), A, np.abs(floats(4, 6, seed=3))
)
CASES.numpy("nansum", lambda x: tp.nansum(x, 0), lambda x: np.nansum(x, 0), np.where(A > 1, np.nan, A))

# -- norms -------------------------------------------------------------------------------------------------------------

IMAGE, SCALE, SHIFT = floats(2, 6, 4, 3), floats(6, seed=1), floats(6, seed=2)
MEAN, SPREAD = floats(6, seed=3), floats(6, low=0.3, high=2)
CASES.torch("softmax", tp.softmax, lambda x: F.softmax(x, -1), A)
CASES.torch("softmin", tp.softmin, lambda x: F.softmin(x, -1), A)
CASES.torch("log_softmax", lambda x: tp.log_softmax(x, 1), lambda x: F.log_softmax(x, 1), X3)
CASES.torch("normalize", tp.normalize, F.normalize, X3)
CASES.torch("layer_norm", tp.layer_norm, lambda x, w, b: F.layer_norm(x, (6,), w, b), A, SCALE, SHIFT)
CASES.torch("rms_norm", tp.rms_norm, lambda x, w: F.rms_norm(x, (6,), w, 1e-6), A, SCALE)
CASES.torch(
    "group_norm",
    lambda x, w, b: tp.group_norm(x, 3, w, b),
    lambda x, w, b: F.group_norm(x, 3, w, b),
    IMAGE,
    SCALE,
    SHIFT,
)
CASES.torch(
    "instance_norm", tp.instance_norm, lambda x, w, b: F.instance_norm(x, weight=w, bias=b), IMAGE, SCALE, SHIFT
)
CASES.torch("batch_norm", tp.batch_norm, F.batch_norm, IMAGE, MEAN, SPREAD, SCALE, SHIFT, held=(1, 2))
CASES.torch(
    "local_response_norm",
    lambda x: tp.local_response_norm(x, 3, alpha=0.3),
    lambda x: F.local_response_norm(x, 3, alpha=0.3),
    IMAGE,
)

# -- windows -----------------------------------------------------------------------------------------------------------

LINE, CUBE = floats(2, 4, 9), floats(1, 2, 3, 4, 3)
SQUARE = floats(2, 4, 7, 6)
CASES.torch(
    "conv1d",
    lambda x, w: tp.conv1d(x, w, stride=2, padding=1),
    lambda x, w: F.conv1d(x, w, None, 2, 1),
    LINE,
    floats(3, 4, 3, seed=1),
)
CASES.torch(
    "conv2d",
    lambda x, w: tp.conv2d(x, w, groups=2, dilation=2),
    lambda x, w: F.conv2d(x, w, groups=2, dilation=2),
    SQUARE,
    floats(6, 2, 3, 2, seed=1),
)
CASES.torch(
    "conv3d",
    lambda x, w: tp.conv3d(x, w, padding=1),
    lambda x, w: F.conv3d(x, w, padding=1),
    CUBE,
    floats(2, 2, 2, 3, 2, seed=1),
)
CASES.torch(
    "conv_transpose1d",
    lambda x, w: tp.conv_transpose1d(x, w, stride=3, padding=1, extra=2),
    lambda x, w: F.conv_transpose1d(x, w, stride=3, padding=1, output_padding=2),
    LINE,
    floats(4, 3, 4, seed=1),
)
CASES.torch("conv_transpose2d", tp.conv_transpose2d, F.conv_transpose2d, SQUARE, floats(4, 3, 3, 2, seed=1))
CASES.torch(
    "conv_transpose2d",
    lambda x, w: tp.conv_transpose2d(x, w, stride=(2, 3), padding=1, groups=2, dilation=(2, 1)),
    lambda x, w: F.conv_transpose2d(x, w, stride=(2, 3), padding=1, groups=2, dilation=(2, 1)),
    SQUARE[:, :, :4, :3],
    floats(4, 3, 3, 3, seed=1),
)
CASES.torch(
    "conv_transpose3d",
    lambda x, w: tp.conv_transpose3d(x, w, stride=2),
    lambda x, w: F.conv_transpose3d(x, w, stride=2),
    CUBE[..., :2, :2],
    floats(2, 2, 2, 2, 3, seed=1),
)
for rank, image in ((1, LINE), (2, SQUARE), (3, CUBE)):
    for kind in ("avg", "max"):
        name, size = f"adaptive_{kind}_pool{rank}d", (4, 3, 2)[-rank:] if rank > 1 else 4
        CASES.alike(name, F, (image,), size)
        CASES.alike(f"{kind}_pool{rank}d", F, (image,), 2, stride=1, padding=1)
CASES.torch(
    "unfold", lambda x: tp.unfold(x, (3, 2), stride=2, padding=1), lambda x: F.unfold(x, (3, 2), 1, 1, 2), SQUARE
)
CASES.torch(
    "fold",
    lambda x: tp.fold(x, (5, 6), (2, 3), stride=(1, 2), padding=1),
    lambda x: F.fold(x, (5, 6), (2, 3), 1, 1, (1, 2)),
    floats(2, 12, 18),
)
POSITIVE = floats(2, 4, 7, 6, low=0.2, high=2.0)
CASES.torch("lp_pool1d", lambda x: tp.lp_pool1d(x, 3, 2), lambda x: F.lp_pool1d(x, 3, 2), POSITIVE[..., 0])
CASES.torch("lp_pool2d", lambda x: tp.lp_pool2d(x, 2, (2, 3)), lambda x: F.lp_pool2d(x, 2, (2, 3)), SQUARE)
CASES.torch(
    "lp_pool2d",
    lambda x: tp.lp_pool2d(x, 1.5, 3, stride=2),
    lambda x: F.lp_pool2d(x, 1.5, 3, stride=2),
    POSITIVE,
)
CASES.torch("lp_pool3d", lambda x: tp.lp_pool3d(x, 2, 2), lambda x: F.lp_pool3d(x, 2.0, 2), CUBE)
for mode, image in (
    ("nearest", SQUARE),
    ("nearest-exact", SQUARE),
    ("bilinear", SQUARE),
    ("bicubic", SQUARE),
    ("linear", LINE),
    ("trilinear", CUBE),
    ("area", SQUARE),
):
    size = {3: (5,), 4: (9, 4), 5: (2, 5, 6)}[image.ndim]
    CASES.torch(
        "interpolate",
        lambda x, m=mode, s=size: tp.interpolate(x, s, mode=m),
        lambda x, m=mode, s=size: F.interpolate(x, s, mode=m),
        image,
    )
CASES.torch(
    "interpolate",
    lambda x: tp.interpolate(x, (9, 5), mode="bilinear", align_corners=True),
    lambda x: F.interpolate(x, (9, 5), mode="bilinear", align_corners=True),
    SQUARE,
)
CASES.torch(
    "interpolate",
    lambda x: tp.interpolate(x, (2, 7), mode="bicubic", align_corners=True),
    lambda x: F.interpolate(x, (2, 7), mode="bicubic", align_corners=True),
    SQUARE,
)
CASES.torch("interpolate", lambda x: tp.interpolate(x, scale=2), lambda x: F.interpolate(x, scale_factor=2), SQUARE)
CASES.torch("pixel_shuffle", lambda x: tp.pixel_shuffle(x, 2), lambda x: F.pixel_shuffle(x, 2), floats(2, 8, 2, 3))
CASES.torch(
    "pixel_unshuffle", lambda x: tp.pixel_unshuffle(x, 2), lambda x: F.pixel_unshuffle(x, 2), floats(2, 2, 4, 6)
)
CASES.torch("channel_shuffle", lambda x: tp.channel_shuffle(x, 3), lambda x: F.channel_shuffle(x, 3), floats(2, 6, 3))
for mode, theirs in (("edge", "replicate"), ("reflect", "reflect"), ("circular", "circular")):
    CASES.torch(
        "pad",
        lambda x, m=mode: tp.pad(x, ((0, 0), (0, 0), (2, 1), (0, 3)), mode=m),
        lambda x, m=theirs: F.pad(x, (0, 3, 2, 1), mode=m),
        SQUARE,
    )
CASES.numpy(
    "pad",
    lambda x: tp.pad(x, ((4, 2), (0, 6)), mode="symmetric"),
    lambda x: np.pad(x, ((4, 2), (0, 6)), mode="symmetric"),
    A,
)
CASES.torch("pad", lambda x: tp.pad(x, ((1, 2), (0, 1)), value=0.5), lambda x: F.pad(x, (0, 1, 1, 2), value=0.5), A)

# -- attention ---------------------------------------------------------------------------------------------------------


def attended(q: T, k: T, v: T) -> T:
    heads = [x.transpose(1, 2) for x in (q, k, v)]
    return F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True).transpose(1, 2)


CASES.torch(
    "attention",
    lambda q, k, v: tp.attention(q, k, v, causal=True),
    attended,
    floats(2, 4, 4, 3),
    floats(2, 4, 2, 3, seed=1),
    floats(2, 4, 2, 3, seed=2),
)


def attended_within(q: T, k: T, v: T) -> T:
    """A window of two keys and the first one, of rows with 4 and 3 keys."""
    t, s = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
    seen = torch.stack([(((s <= t) & (t - s < 2)) | (s < 1)) & (s < n) for n in (4, 3)])[:, None]
    heads = [x.transpose(1, 2) for x in (q, k, v)]
    return F.scaled_dot_product_attention(*heads, attn_mask=seen, enable_gqa=True).transpose(1, 2)


CASES.torch(
    "attention",
    lambda q, k, v: tp.attention(
        q, k, v, where=lambda b, t, s: ((s <= t) & (t - s < 2) | (s < 1)) & (s < tp.table([4, 3])[b])
    ),
    attended_within,
    floats(2, 4, 4, 3),
    floats(2, 4, 2, 3, seed=1),
    floats(2, 4, 2, 3, seed=2),
)

# -- views -------------------------------------------------------------------------------------------------------------

CASES.torch("roll", lambda x: tp.roll(x, (1, -2), (0, 2)), lambda x: torch.roll(x, (1, -2), (0, 2)), X3)
CASES.torch("tile", lambda x: tp.tile(x, (2, 1, 3)), lambda x: torch.tile(x, (2, 1, 3)), A)
CASES.torch("repeat_interleave", lambda x: tp.repeat_interleave(x, 3, 1), lambda x: torch.repeat_interleave(x, 3, 1), A)
CASES.torch("flip", lambda x: tp.flip(x, 1), lambda x: torch.flip(x, (1,)), A)
CASES.torch("reverse", lambda x: tp.reverse(x, 0), lambda x: torch.flip(x, (0,)), A)
CASES.torch("fliplr", tp.fliplr, torch.fliplr, A)
CASES.torch("flipud", tp.flipud, torch.flipud, A)
for times in (1, 2, 3):
    CASES.torch("rot90", lambda x, k=times: tp.rot90(x, k), lambda x, k=times: torch.rot90(x, k), A)
CASES.torch("swapaxes", lambda x: tp.swapaxes(x, 0, 2), lambda x: torch.swapaxes(x, 0, 2), X3)
CASES.torch("moveaxis", lambda x: tp.moveaxis(x, 0, 2), lambda x: torch.moveaxis(x, 0, 2), X3)
CASES.torch("flatten", lambda x: tp.flatten(x, 1), lambda x: torch.flatten(x, 1), X3)
CASES.torch("reshape", lambda x: tp.reshape(x, (6, -1)), lambda x: torch.reshape(x, (6, -1)), X3)
CASES.torch("transpose", lambda x: tp.transpose(x, (2, 0, 1)), lambda x: torch.permute(x, (2, 0, 1)), X3)
CASES.torch("squeeze", lambda x: tp.squeeze(x[:, 1:2], 1), lambda x: torch.squeeze(x[:, 1:2], 1), X3)
CASES.torch("expand_dims", lambda x: tp.expand_dims(x, (0, 2)), lambda x: x[None, :, None], A)
CASES.torch("broadcast_to", lambda x: tp.broadcast_to(x, (3, 4, 6)), lambda x: torch.broadcast_to(x, (3, 4, 6)), A)
CASES.torch(
    "concat", lambda x, y: tp.concat((x, y), 1), lambda x, y: torch.concat((x, y), 1), X3, floats(3, 2, 5, seed=1)
)
CASES.torch("stack", lambda x, y: tp.stack((x, y), 1), lambda x, y: torch.stack((x, y), 1), A, floats(4, 6, seed=1))
CASES.torch("vstack", lambda x, y: tp.vstack((x, y)), lambda x, y: torch.vstack((x, y)), A, V)
CASES.torch("hstack", lambda x, y: tp.hstack((x, y)), lambda x, y: torch.hstack((x, y)), A, floats(4, 2, seed=1))
CASES.torch("split", lambda x: tp.split(x, (1, 3, 2), 1), lambda x: torch.split(x, (1, 3, 2), 1), A)
CASES.torch("split", lambda x: tp.split(x, 2, 1), lambda x: torch.split(x, 3, 1), A)
CASES.torch("unbind", lambda x: tp.unbind(x, 0), lambda x: torch.unbind(x, 0), A)
CASES.torch(
    "meshgrid", lambda x, y: tp.meshgrid((x, y)), lambda x, y: torch.meshgrid(x, y, indexing="ij"), V, floats(3)
)
for offset in (0, 2, -1):
    CASES.torch("diagonal", lambda x, k=offset: tp.diagonal(x, k), lambda x, k=offset: torch.diagonal(x, k), X3)
    CASES.torch("diag", lambda x, k=offset: tp.diag(x, k), lambda x, k=offset: torch.diag(x, k), V)
    CASES.torch("diag", lambda x, k=offset: tp.diag(x, k), lambda x, k=offset: torch.diag(x, k), A)
    CASES.torch("diag_embed", lambda x, k=offset: tp.diag_embed(x, k), lambda x, k=offset: torch.diag_embed(x, k), A)
    CASES.torch("tril", lambda x, k=offset: tp.tril(x, k), lambda x, k=offset: torch.tril(x, k), X3)
    CASES.torch("triu", lambda x, k=offset: tp.triu(x, k), lambda x, k=offset: torch.triu(x, k), X3)
CASES.torch("trace", tp.trace, torch.trace, A)

# -- what indices make -------------------------------------------------------------------------------------------------

ONE = np.ones((2, 3))
CASES.numpy("arange", lambda _: tp.arange(3, 20, 4), lambda _: np.arange(3, 20, 4), ONE)
CASES.numpy("arange", lambda _: tp.arange(1.5, -2, -0.75, dtype="f64"), lambda _: np.arange(1.5, -2, -0.75), ONE)
CASES.numpy("linspace", lambda _: tp.linspace(-1, 2, 7, dtype="f64"), lambda _: np.linspace(-1, 2, 7), ONE)
CASES.numpy("eye", lambda _: tp.eye(3, 5, offset=1, dtype="f64"), lambda _: np.eye(3, 5, 1), ONE)
CASES.numpy("full", lambda _: tp.full((2, 2), 7, "int32"), lambda _: np.full((2, 2), 7, "int32"), ONE)
CASES.numpy("full_like", lambda x: tp.full_like(x, 2.5), lambda x: np.full_like(x, 2.5), ONE)
CASES.numpy("zeros", lambda _: tp.zeros((3, 2), "int32"), lambda _: np.zeros((3, 2), "int32"), ONE)
CASES.numpy("ones", lambda _: tp.ones((3, 2)), lambda _: np.ones((3, 2), "float32"), ONE)
CASES.numpy("zeros_like", tp.zeros_like, np.zeros_like, ONE)
CASES.numpy("ones_like", tp.ones_like, np.ones_like, ONE)

# -- einops' notation --------------------------------------------------------------------------------------------------

PATCHES = floats(2, 4, 6, 3)
CASES.torch(
    "rearrange",
    lambda x: tp.rearrange(x, "n (h p) (w q) c -> n (h w) (p q c)", p=2, q=3),
    lambda x: x.reshape(2, 2, 2, 2, 3, 3).permute(0, 1, 3, 2, 4, 5).reshape(2, 4, 18),
    PATCHES,
)
CASES.torch(
    "rearrange",
    lambda x: tp.rearrange(x, "n ... c -> c (...) 1 n"),
    lambda x: x.permute(3, 1, 2, 0).reshape(3, 24, 1, 2),
    PATCHES,
)
CASES.torch(
    "reduce",
    lambda x: tp.reduce(x, "n (h 2) (w q) c -> n h w", "mean", q=3),
    lambda x: x.reshape(2, 2, 2, 2, 3, 3).mean((2, 4, 5)),
    PATCHES,
)
CASES.torch("reduce", lambda x: tp.reduce(x, "n ... -> n", "max"), lambda x: x.amax((1, 2, 3)), PATCHES)
CASES.torch(
    "repeat",
    lambda x: tp.repeat(x, "a b -> (b k) 2 a", k=3),
    lambda x: x.T.repeat_interleave(3, 0)[:, None].expand(-1, 2, -1),
    A,
)
