"""Cases of elementwise operations."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

import tapestry as tp

from .registry import Cases, floats, whole

CASES = Cases()

X, Y, Z = floats(3, 8), floats(3, 8, seed=1), floats(8, seed=2)
POSITIVE, UNIT, ABOVE = floats(3, 8, low=0.1, high=3.0), floats(3, 8, low=-0.9, high=0.9), floats(3, 8, low=1.1, high=4)
N, M, SHIFTS = whole(3, 8), whole(3, 8, seed=1), whole(3, 8, low=0, high=40)
TRUE, FALSE = X > 0, Y > 0.5
SPECIAL = np.array([0.0, -1.5, np.nan, np.inf, -np.inf])

for name in (
    "abs",
    "ceil",
    "cos",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "negative",
    "reciprocal",
    "round",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "cosh",
    "square",
    "tan",
    "tanh",
    "trunc",
    "atan",
    "asinh",
    "deg2rad",
    "rad2deg",
):
    CASES.torch(name, getattr(tp, name), getattr(torch, name), X)
for name in ("log", "log2", "log10", "log1p", "rsqrt", "sqrt"):
    CASES.torch(name, getattr(tp, name), getattr(torch, name), POSITIVE)
for name in ("acos", "asin", "atanh"):
    CASES.torch(name, getattr(tp, name), getattr(torch, name), UNIT)
CASES.torch("acosh", tp.acosh, torch.acosh, ABOVE)
CASES.numpy("cbrt", tp.cbrt, np.cbrt, X)
for name in (
    "add",
    "subtract",
    "multiply",
    "divide",
    "remainder",
    "fmod",
    "minimum",
    "maximum",
    "atan2",
    "hypot",
    "logaddexp",
    "logaddexp2",
):
    CASES.torch(name, getattr(tp, name), getattr(torch, name), X, Z)
for name in ("floor_divide", "remainder", "fmod", "multiply"):
    CASES.numpy(name, getattr(tp, name), getattr(np, name), N, np.where(M == 0, 3, M))
CASES.torch("power", tp.power, torch.pow, POSITIVE, Z)
CASES.torch("heaviside", tp.heaviside, torch.heaviside, X, Z, held=(0, 1))
CASES.torch("floor_divide", tp.floor_divide, torch.floor_divide, X, Z, held=(0, 1))
CASES.torch("lerp", tp.lerp, torch.lerp, X, Y, Z)
CASES.torch("clip", lambda x: tp.clip(x, -0.6, 0.8), lambda x: torch.clip(x, -0.6, 0.8), X)
CASES.torch("clip", lambda x, y: tp.clip(x, low=y), lambda x, y: torch.clip(x, min=y), X, Y)
CASES.torch("where", lambda x, y: tp.where(x > y, x, y * 2), lambda x, y: torch.where(x > y, x, y * 2), X, Y)
for name in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"):
    CASES.numpy(name, getattr(tp, name), getattr(np, name), N, M)
for name in ("logical_and", "logical_or"):
    CASES.numpy(name, getattr(tp, name), getattr(np, name), TRUE, FALSE)
CASES.numpy("logical_not", tp.logical_not, np.logical_not, TRUE)
for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    CASES.torch(name, getattr(tp, name), getattr(torch, name), N, M)
CASES.torch("bitwise_not", tp.bitwise_not, torch.bitwise_not, N)
CASES.numpy("left_shift", lambda x, y: x << y, np.left_shift, N, SHIFTS)
CASES.numpy("right_shift", lambda x, y: x >> y, np.right_shift, N, SHIFTS)
CASES.numpy("right_shift", tp.right_shift, np.right_shift, N, np.array([-1, 63, 64, 65, 0, 1, 2, 3]))
CASES.numpy("left_shift", tp.left_shift, np.left_shift, N, np.array([-1, 63, 64, 65, 0, 1, 2, 3]))
for name in ("isnan", "isinf", "isfinite"):
    CASES.numpy(name, getattr(tp, name), getattr(np, name), SPECIAL)
    CASES.numpy(name, getattr(tp, name), getattr(np, name), N)
CASES.numpy("nan_to_num", tp.nan_to_num, lambda x: np.where(np.isnan(x), 0.0, x), SPECIAL)
CASES.numpy("isclose", tp.isclose, np.isclose, X, X + 1e-6 * (Y > 0))
CASES.numpy("cast", lambda x: tp.cast(x, "int32"), lambda x: x.astype("int32"), X * 5)

for name in (
    "relu",
    "silu",
    "gelu",
    "elu",
    "selu",
    "celu",
    "leaky_relu",
    "relu6",
    "hardtanh",
    "hardswish",
    "mish",
    "softplus",
    "softsign",
    "tanhshrink",
    "softshrink",
    "hardshrink",
    "logsigmoid",
):
    CASES.torch(name, getattr(tp, name), getattr(F, name), X * 3)
CASES.torch("hardsigmoid", tp.hardsigmoid, lambda x: F.relu6(x + 3) / 6, X * 3)  # torch's slope is f32's 1/6
CASES.torch("softplus", lambda x: tp.softplus(x, beta=2.5), lambda x: F.softplus(x, beta=2.5), X)
CASES.torch("elu", lambda x: tp.elu(x, alpha=0.3), lambda x: F.elu(x, alpha=0.3), X)
CASES.torch("threshold", lambda x: tp.threshold(x, 0.3, -7.0), lambda x: F.threshold(x, 0.3, -7.0), X)
CASES.torch("prelu", tp.prelu, F.prelu, floats(2, 3, 4), floats(3, seed=4))
CASES.torch("prelu", tp.prelu, F.prelu, floats(2, 3, 4), floats(1, seed=4))
CASES.torch("glu", tp.glu, F.glu, X)

for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
    for reduction in ("mean", "sum", "none"):
        CASES.alike(name, F, (X, Y), reduction=reduction)
P, Q = floats(3, 8, low=0.05, high=0.95), floats(3, 8, low=0.05, high=0.95, seed=3)
SIDES, WEIGHTS = np.where(floats(3, 8, seed=5) > 0, 1.0, -1.0), floats(5, low=0.2, high=2)
CASES.torch("binary_cross_entropy", tp.binary_cross_entropy, F.binary_cross_entropy, P, Q)
CASES.torch(
    "binary_cross_entropy_with_logits", tp.binary_cross_entropy_with_logits, F.binary_cross_entropy_with_logits, X, P
)
CASES.torch(
    "kl_div",
    lambda x, y: tp.kl_div(x, y, reduction="batchmean"),
    lambda x, y: F.kl_div(x, y, reduction="batchmean"),
    X,
    P,
)
CASES.torch(
    "kl_div",
    lambda x, y: tp.kl_div(x, y, log_target=True, reduction="sum"),
    lambda x, y: F.kl_div(x, y, log_target=True, reduction="sum"),
    X,
    Y,
)
CASES.torch("soft_margin_loss", tp.soft_margin_loss, F.soft_margin_loss, X, SIDES, held=(1,))
CASES.torch(
    "hinge_embedding_loss",
    lambda x, y: tp.hinge_embedding_loss(x, y, margin=1.3),
    lambda x, y: F.hinge_embedding_loss(x, y, margin=1.3),
    X,
    SIDES,
    held=(1,),
)
CASES.torch("margin_ranking_loss", tp.margin_ranking_loss, F.margin_ranking_loss, X, Y, SIDES, held=(2,))
CASES.torch("poisson_nll_loss", tp.poisson_nll_loss, F.poisson_nll_loss, X, POSITIVE)
CASES.torch(
    "poisson_nll_loss",
    lambda x, y: tp.poisson_nll_loss(x, y, log_input=False, full=True),
    lambda x, y: F.poisson_nll_loss(x, y, log_input=False, full=True),
    POSITIVE,
    ABOVE,
)
CASES.torch(
    "gaussian_nll_loss",
    lambda x, y, v: tp.gaussian_nll_loss(x, y, v, full=True),
    lambda x, y, v: F.gaussian_nll_loss(x, y, v, full=True),
    X,
    Y,
    POSITIVE,
)
CASES.torch("cosine_similarity", tp.cosine_similarity, F.cosine_similarity, X, Y)
CASES.torch("pairwise_distance", tp.pairwise_distance, F.pairwise_distance, X, Y)
CASES.torch("triplet_margin_loss", tp.triplet_margin_loss, F.triplet_margin_loss, X, Y, floats(3, 8, seed=9))
CASES.torch(
    "cosine_embedding_loss",
    lambda x, y, t: tp.cosine_embedding_loss(x, y, t, margin=0.1),
    lambda x, y, t: F.cosine_embedding_loss(x, y, t, margin=0.1),
    X,
    Y,
    np.array([1, -1, 1]),
)
LOGP, LABELS = floats(4, 5, 3), whole(4, 3, low=0, high=5)
CASES.torch("nll_loss", tp.nll_loss, F.nll_loss, LOGP, LABELS)
CASES.torch(
    "nll_loss",
    lambda x, t, w: tp.nll_loss(x, t, w, ignore=2),
    lambda x, t, w: F.nll_loss(x, t, w, ignore_index=2),
    LOGP,
    LABELS,
    WEIGHTS,
    held=(2,),
)
CASES.torch(
    "nll_loss",
    lambda x, t: tp.nll_loss(x, t, reduction="none"),
    lambda x, t: F.nll_loss(x, t, reduction="none"),
    LOGP,
    LABELS,
)
