"""The traffic of plans with pinned layouts against closed forms and enumerations: bytes received by all ranks together.

The forms are those of the literature on collectives and sharded training; nothing here calls the planner's own
counting.
"""

from __future__ import annotations

import pytest

import tapestry as tp
from tapestry import Tensor, bf16, f16, f32, param
from tapestry.inputs import random_inputs
from tapestry.planner import Plan, plan
from tapestry.program import Pin, PinKind, Program

from ..files import example

RANKS = (2, 3, 4, 8)


def op(pattern: str, dim: str | None, kind: PinKind = "block") -> Pin:
    return Pin("op", pattern, (("mesh0", dim),), kind)


def tensor(pattern: str, axis: str | None, kind: PinKind = "block") -> Pin:
    return Pin("tensor", pattern, (("mesh0", axis),), kind)


def planned(program: Program, ranks: int, *pins: Pin) -> Plan:
    made = plan(program, "h200x8", mesh=(ranks,), pins=pins, objective="bytes")
    report = made.check()
    assert report.ok, str(report)
    assert made.run(random_inputs(program, 0)).bytes_moved == made.document.traffic.bytes_total
    return made


def moved(program: Program, ranks: int, *pins: Pin) -> int:
    return planned(program, ranks, *pins).document.traffic.bytes_total


def cuts(extent: int, ranks: int) -> list[range]:
    return [range(r * extent // ranks, (r + 1) * extent // ranks) for r in range(ranks)]


@tp.program
def one(x: f32[Tensor, "n k"]) -> Tensor:
    return tp.relu(x)


@tp.program
def two(x: f32[Tensor, "n k"]) -> Tensor:
    return tp.tanh(tp.relu(x))


@tp.program
def product(x: f32[Tensor, "n c"], w: param[f32[Tensor, "c k"]]) -> Tensor:
    return tp.relu(tp.einsum("nc,ck->nk", x, w))


shapes = pytest.mark.parametrize(("n", "k"), [(48, 24), (19, 11)])
every = pytest.mark.parametrize("ranks", RANKS)


@every
@shapes
def test_all_gather(ranks: int, n: int, k: int) -> None:
    made = planned(one.bind(n=n, k=k), ranks, tensor("x", "n"), op("relu", None))
    assert made.document.traffic.bytes_by_kind == {"all_gather": (ranks - 1) * n * k * 4}


@every
@shapes
def test_broadcast_from_one(ranks: int, n: int, k: int) -> None:
    made = planned(one.bind(n=n, k=k), ranks, tensor("x", "@0"), op("relu", None))
    assert made.document.traffic.bytes_by_kind == {"broadcast": (ranks - 1) * n * k * 4}


@every
@shapes
def test_all_to_all(ranks: int, n: int, k: int) -> None:
    made = planned(two.bind(n=n, k=k), ranks, op("relu", "n"), op("tanh", "k"))
    stays = sum(len(a) * len(b) for a, b in zip(cuts(n, ranks), cuts(k, ranks), strict=True))
    assert made.document.traffic.bytes_total == 4 * (n * k - stays)
    if n % ranks == k % ranks == 0:
        assert made.document.traffic.bytes_by_kind == {"all_to_all": 4 * (n * k - n * k // ranks)}


@every
@pytest.mark.parametrize(("n", "c", "k"), [(48, 16, 24), (19, 13, 11)])
@pytest.mark.parametrize(("after", "kind", "factor"), [("n", "reduce_scatter", 1), (None, "all_reduce", 2)])
def test_folds(ranks: int, n: int, c: int, k: int, after: str | None, kind: str, factor: int) -> None:
    pins = (tensor("x", "c"), tensor("w", "c"), op("einsum", "c"), op("relu", after))
    made = planned(product.bind(n=n, c=c, k=k), ranks, *pins)
    assert made.document.traffic.bytes_by_kind == {kind: factor * (ranks - 1) * n * k * 4}


@tp.program
def half_product(x: f16[Tensor, "n c"], w: param[f16[Tensor, "c k"]]) -> Tensor:
    return tp.relu(tp.einsum("nc,ck->nk", x, w))


@every
@pytest.mark.parametrize(("n", "c", "k"), [(48, 16, 24), (19, 13, 11)])
@pytest.mark.parametrize(("after", "kind", "itemsize"), [("n", "reduce_scatter", 4), (None, "all_reduce", 4 + 2)])
def test_folds_of_halves(ranks: int, n: int, c: int, k: int, after: str | None, kind: str, itemsize: int) -> None:
    """Parts of f16 are folded as f32, 4 bytes each; the finished values that an all-reduce hands out have 2."""
    pins = (tensor("x", "c"), tensor("w", "c"), op("einsum", "c"), op("relu", after))
    made = planned(half_product.bind(n=n, c=c, k=k), ranks, *pins)
    assert made.document.traffic.bytes_by_kind == {kind: (ranks - 1) * n * k * itemsize}


@every
@pytest.mark.parametrize(("n", "c", "k"), [(48, 16, 24), (19, 13, 11)])
@pytest.mark.parametrize("axis", ["c", "k"])
def test_fsdp_forward_gathers_every_weight(ranks: int, n: int, c: int, k: int, axis: str) -> None:
    pins = (tensor("x", "n"), tensor("w", axis), op("einsum", "n"), op("relu", "n"))
    assert moved(product.bind(n=n, c=c, k=k), ranks, *pins) == (ranks - 1) * c * k * 4


@tp.program
def gemm(a: f32[Tensor, "m k"], b: f32[Tensor, "k n"]) -> Tensor:
    return tp.einsum("mk,kn->mn", a, b)


def least_received(m: int, n: int, k: int, ranks: int) -> float:
    """Elements that some rank of any schedule receives where memory is no limit; m >= n >= k."""
    if ranks <= m / n:
        touched = (m * n + m * k) / ranks + n * k
    elif ranks <= m * n / k**2:
        touched = 2 * (m * n * k**2 / ranks) ** 0.5 + m * n / ranks
    else:
        touched = 3 * (m * n * k / ranks) ** (2 / 3)
    return touched - (m * n + m * k + n * k) / ranks


@pytest.mark.parametrize("grid", [(2, 1, 1), (2, 2, 1), (1, 2, 2), (2, 1, 4), (4, 2, 1), (2, 2, 2)])
def test_matrix_product_on_a_grid(grid: tuple[int, int, int]) -> None:
    m, n, k = 64, 48, 32
    p_m, p_n, p_k = grid
    pin = Pin("op", "einsum", (("mesh0", "m"), ("mesh1", "n"), ("mesh2", "k")))
    made = plan(gemm.bind(m=m, n=n, k=k), "h200x8", mesh=grid, pins=(pin,), objective="bytes")
    assert made.check().ok
    shares = [(m * k, p_m * p_k, p_n), (k * n, p_k * p_n, p_m), (m * n, p_m * p_n, p_k)]
    received = sum(size // cut - size // (cut * others) for size, cut, others in shares)
    ranks = p_m * p_n * p_k
    assert made.document.traffic.bytes_total == ranks * received * 4
    assert received >= least_received(m, n, k, ranks)


def decoder(tokens: int = 33, heads: int = 10, layers: int = 1) -> Program:
    """One decoder layer with extents that few numbers of ranks divide."""
    settings = {"layers": layers, "d": heads * 4, "heads": heads, "kv_heads": heads, "ffn": 50, "tokens": tokens}
    bound: Program = example("llama").forward.bind(**settings)
    return bound


HEADS = tuple(
    op(f"*.{name}", dim) for name, dim in (("q", "h"), ("k", "g"), ("v", "g"), ("q_rotary", "h"), ("k_rotary", "g"))
)
TENSOR_PARALLEL = (
    *HEADS,
    op("*.attention.*", "h"),
    op("*.o", "h"),
    *(op(f"*.{name}", "f") for name in ("gate", "up", "gated", "down")),
)


def around(dim: str | None) -> tuple[Pin, ...]:
    """Norms, residuals and the input: replicated (Megatron) or cut along the tokens (with sequence parallelism)."""
    return (*(op(f"*.{name}", dim) for name in ("rms_norm*", "add", "add_1")), tensor("x", dim))


@every
@pytest.mark.parametrize("dim", [None, "t"], ids=["megatron", "sequence parallel"])
def test_megatron_block(ranks: int, dim: str | None) -> None:
    program = decoder()
    moved_bytes = moved(program, ranks, *TENSOR_PARALLEL, *around(dim))
    assert moved_bytes == 4 * (ranks - 1) * 33 * 40 * 2


@tp.program
def seen(
    q: bf16[Tensor, "t h e"], k: bf16[Tensor, "t g e"], v: bf16[Tensor, "t g e"], *, causal: bool = False
) -> Tensor:
    return tp.attention(q, k, v, causal=causal)


def context_parallel(tokens: int, ranks: int, causal: bool, kind: PinKind) -> int:
    program = seen.bind(t=tokens, h=4, g=2, e=8, causal=causal)
    pins = (*(tensor(name, "t", kind) for name in "qkv"), op("attention.*", "t", kind))
    return moved(program, ranks, *pins)


@every
@pytest.mark.parametrize("tokens", [48, 37])
def test_context_parallel(ranks: int, tokens: int) -> None:
    row = 2 * 8 * 2  # bytes of one key or value row
    assert context_parallel(tokens, ranks, False, "block") == 2 * (ranks - 1) * tokens * row
    assert context_parallel(tokens, ranks, True, "block") == 2 * sum(part.start for part in cuts(tokens, ranks)) * row
    chunks = cuts(tokens, 2 * ranks)
    own = [(len(chunks[r]) + len(chunks[-1 - r]), chunks[-1 - r].stop) for r in range(ranks)]
    zigzag = context_parallel(tokens, ranks, True, "zigzag")
    assert zigzag == 2 * sum(end - held for held, end in own) * row
    if tokens % (2 * ranks) == 0:
        whole = 2 * (ranks - 1) * tokens * row
        assert context_parallel(tokens, ranks, True, "block") * 2 == whole
        assert zigzag * 4 == whole * 3


@tp.op
def window(x: f32[Tensor, "y j"], w: f32[Tensor, "k"], *, stride: int = 1, dilation: int = 1) -> f32[Tensor, "p j"]:
    """One-dimensional window over the rows."""
    p, j, k = tp.indices("p j k")
    return tp.sum[k](x[stride * p + dilation * k, j] * w[k])


@tp.program
def windowed(
    x: f32[Tensor, "y j"], w: param[f32[Tensor, "k"]], *, stride: int = 1, dilation: int = 1, padding: int = 0
) -> Tensor:
    return window(tp.pad(x, (padding, 0)), w, stride=stride, dilation=dilation)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("k", [1, 3, 5, 7])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("height", [64, 23])
def test_windows(ranks: int, k: int, stride: int, dilation: int, padded: bool, height: int) -> None:
    reach = (k - 1) * dilation + 1
    padding = reach // 2 if padded else 0
    rows = (height + 2 * padding - reach) // stride + 1
    settings = {"stride": stride, "dilation": dilation, "padding": padding}
    program = windowed.bind(y=height, j=2, k=k, **settings)
    needers = [0] * height
    for part in cuts(rows, ranks):
        touched = {stride * p + dilation * r - padding for p in part for r in range(k)}
        for row in touched & set(range(height)):
            needers[row] += 1
    expected = sum(max(0, count - 1) for count in needers) * 2 * 4
    assert moved(program, ranks, op("window", "p"), tensor("w", None)) == expected
    if rows >= ranks * reach:
        between = (ranks - 1) * (k - 1) if stride == dilation == 2 else (ranks - 1) * max(0, reach - stride)
        if (stride, dilation) != (1, 2):
            assert expected == between * 8
