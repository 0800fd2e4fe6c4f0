"""The ways of sharding that have names: a declaration, a machine on which it is the optimum, and the bytes it moves.

Nothing here is known to the planner. Extents are small, and the rates of the machines stand in the relation in which
large programs and real machines do. Closed forms are of bytes that all ranks together receive.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import tapestry as tp
from tapestry import Tensor, f32, param, state
from tapestry.planner import Plan, plan
from tapestry.planner.machine import Machine
from tapestry.planner.machine.device import DeviceModel, Rate, Tier
from tapestry.planner.machine.links import Link
from tapestry.program import Program

PLENTY = 1 << 40


@tp.program
def mlp(x: f32[Tensor, "t d"], w_in: param[f32[Tensor, "d f"]], w_out: param[f32[Tensor, "f d"]]) -> Tensor:
    return tp.relu(x @ w_in) @ w_out


@tp.program
def deep(x: f32[Tensor, "t d"], *, layers: int = 4) -> Tensor:
    d = x.shape[1]
    for layer in range(layers):
        x = tp.relu(x @ tp.param(f"w{layer}", "f32", (d, d), axes=("d", "e")))
    return x


@tp.program
def two_mlps(
    x: f32[Tensor, "t d"],
    w0: param[f32[Tensor, "d f"]],
    w1: param[f32[Tensor, "f d"]],
    w2: param[f32[Tensor, "d f"]],
    w3: param[f32[Tensor, "f d"]],
) -> Tensor:
    return tp.relu(tp.relu(x @ w0) @ w1 @ w2) @ w3


@tp.program
def loss(
    x: f32[Tensor, "t d"], y: f32[Tensor, "t d"], w_in: param[f32[Tensor, "d f"]], w_out: param[f32[Tensor, "f d"]]
) -> Tensor:
    wrong = tp.relu(x @ w_in) @ w_out - y
    return tp.mean(wrong * wrong)


@tp.program
def train(
    x: f32[Tensor, "t d"], y: f32[Tensor, "t d"], w_in: state[f32[Tensor, "d f"]], w_out: state[f32[Tensor, "f d"]]
) -> dict[str, Tensor]:
    value, grads = tp.value_and_grad(loss)(x, y, w_in, w_out)
    tp.optim.adamw({"w_in": w_in, "w_out": w_out}, grads, rate=1e-3)
    return {"loss": value}


@tp.program
def block(
    x: f32[Tensor, "t d"],
    wq: param[f32[Tensor, "d h e"]],
    wk: param[f32[Tensor, "d h e"]],
    wv: param[f32[Tensor, "d h e"]],
    wo: param[f32[Tensor, "h e d"]],
    scale: param[f32[Tensor, "d"]],
    w_in: param[f32[Tensor, "d f"]],
    w_out: param[f32[Tensor, "f d"]],
) -> Tensor:
    q, k, v = (tp.einsum("td,dhe->the", x, w, name=name) for name, w in (("q", wq), ("k", wk), ("v", wv)))
    y = x + tp.einsum("the,hed->td", tp.attention(q, k, v, causal=True, name="attention"), wo, name="o")
    return y + tp.relu(tp.rms_norm(y, scale) @ w_in) @ w_out


_NAMES, _AXES = ("wq", "wk", "wv", "wo", "w_in", "w_out"), ("dhe", "dhe", "dhe", "hed", "df", "fd")


@tp.program
def decoder(x: f32[Tensor, "t d"], *, layers: int = 4, heads: int = 8, ffn: int = 256) -> Tensor:
    d = x.shape[1]
    shapes = {"dhe": (d, heads, d // heads), "hed": (heads, d // heads, d), "df": (d, ffn), "fd": (ffn, d)}
    for layer in range(layers):
        with tp.name(f"layers.{layer}"):
            wq, wk, wv, wo, w_in, w_out = (
                tp.param(name, "f32", shapes[axes], axes=tuple(axes)) for name, axes in zip(_NAMES, _AXES, strict=True)
            )
            q, k, v = (tp.einsum("td,dhe->the", x, w, name=name) for name, w in (("q", wq), ("k", wk), ("v", wv)))
            x = x + tp.einsum("the,hed->td", tp.attention(q, k, v, causal=True, name="attention"), wo, name="o")
            x = x + tp.relu(x @ w_in) @ w_out
    return x


@tp.program
def attend(
    x: f32[Tensor, "t d"],
    wq: param[f32[Tensor, "d h e"]],
    wk: param[f32[Tensor, "d g e"]],
    wv: param[f32[Tensor, "d g e"]],
    wo: param[f32[Tensor, "h e d"]],
    *,
    causal: bool = True,
) -> Tensor:
    q = tp.einsum("td,dhe->the", x, wq, name="q")
    k, v = tp.einsum("td,dge->tge", x, wk, name="k"), tp.einsum("td,dge->tge", x, wv, name="v")
    return tp.einsum("the,hed->td", tp.attention(q, k, v, causal=causal, name="attention"), wo, name="o")


@tp.program
def experts(
    x: f32[Tensor, "g s d"],
    place: f32[Tensor, "g s x c"],
    w_in: param[f32[Tensor, "x d f"]],
    w_out: param[f32[Tensor, "x f d"]],
) -> Tensor:
    sent = tp.einsum("gsd,gsxc->gxcd", x, place, name="dispatch")
    hidden = tp.relu(tp.einsum("gxcd,xdf->gxcf", sent, w_in, name="hidden"))
    computed = tp.einsum("gxcf,xfd->gxcd", hidden, w_out, name="computed")
    return tp.einsum("gxcd,gsxc->gsd", computed, place, name="combine")


@tp.program
def convolved(image: f32[Tensor, "n c y x"], w: param[f32[Tensor, "o c 3 3"]]) -> Tensor:
    return tp.relu(tp.conv2d(image, w, padding=1, name="conv"))


@tp.program
def product(a: f32[Tensor, "m k"], b: f32[Tensor, "k n"]) -> Tensor:
    return tp.einsum("mk,kn->mn", a, b, name="product")


@dataclass(frozen=True)
class Described:
    """A machine in one line; GB are 10^9 bytes. ``between``: GB/s of a device to another host."""

    devices: int
    hosts: int = 1
    tflops: float = 0.1
    gb_per_s: float = 1.0
    latency_us: float = 1.0
    memory: int = PLENTY
    between: float | None = None

    def machine(self) -> Machine:
        """All devices at one rate, whatever they compute; memory that is never what takes long. A device computes or
        transfers, so that nothing is gained by cutting up a transfer to hide its parts.
        """
        links = [Link("inside", self.gb_per_s, self.latency_us * 1e-6, "host")]
        if self.hosts > 1:
            links.append(Link("between", self.between or self.gb_per_s, self.latency_us * 1e-6, "cluster"))
        rates = (Rate("elementwise", "f64", self.tflops), Rate("matmul", "f64", self.tflops))
        device = DeviceModel("device", 1e-7, rates, (Tier("memory", self.memory, 1000.0, 1000.0),), overlap=False)
        return Machine("described", str(self), device, self.hosts, self.devices // self.hosts, tuple(links))

    def __str__(self) -> str:
        hosts = f" on {self.hosts} hosts, {self.between:g} GB/s between them" if self.hosts > 1 else ""
        room = "as much memory as wanted" if self.memory >= PLENTY else f"{self.memory:,} B of memory"
        return (
            f"{self.devices} devices{hosts}: {self.tflops:g} TFLOP/s, links of {self.gb_per_s:g} GB/s that take "
            f"{self.latency_us:g} µs, {room} each"
        )


@dataclass(frozen=True)
class Named:
    """``traffic``: the closed form's value. ``cut``: how operations are cut; homes: ranks' different shares of tensors.

    ``kinds``: the transfers there are, by what a library would call them. ``why``: where it is the optimum.
    """

    name: str
    why: str
    program: Program
    machine: Described
    mesh: tuple[int, ...]
    form: str
    traffic: int
    kinds: frozenset[str]
    cut: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    homes: Mapping[str, int] = field(default_factory=dict)

    def plan(self) -> Plan:
        """Made once."""
        return _planned(self.name)


def cut(dim: str, *ops: str) -> dict[str, Mapping[str, str]]:
    """Operations that are cut along one dimension over a mesh of one axis; "" leaves them whole."""
    return {op: {dim: "mesh0"} if dim else {} for op in ops}


_WEIGHTS = 4 * 2 * 32 * 64  # bytes of both, f32
_ATTENDING = attend.bind(t=256, d=64, h=8, g=1, e=8)
_KEYS = 4 * 2 * 256 * 8  # bytes of all K and V
_EXPERTS = experts.bind(g=8, s=16, d=32, x=8, c=3, f=128)
_SENT = 4 * 8 * 8 * 3 * 32  # bytes of what the experts read, or write
_LAYERS = decoder.bind(t=64, d=64, layers=2)
_MATRICES = sum(tensor.nbytes for tensor in _LAYERS.of_role("param"))
_ADAM = ("adamw.mean", "adamw.square", "adamw.weight")


CASES = (
    Named(
        "data parallel",
        "Starting a transfer takes long beside sending the gradients, and memory has room for a copy of everything.",
        train.bind(t=512, d=32, f=64),
        Described(4, latency_us=100.0),
        (4,),
        "2 (P - 1) W for the gradients, (P - 1) 4 B for the loss",
        2 * 3 * _WEIGHTS + 3 * 4,
        frozenset({"all_reduce", "reduce"}),
        cut("t", "matmul", "matmul_1", "grad.d_w_in", "grad.d_w_out") | cut("", *_ADAM),
        {"w_in": 1, "w_in.mean": 1, "w_out.square": 1},
    ),
    Named(
        "optimizer states sharded (ZeRO)",
        "As before, in less memory than a copy of weights and states takes.",
        train.bind(t=256, d=64, f=128),
        Described(4, latency_us=1000.0, memory=300_000),
        (4,),
        "(P - 1) W to scatter the gradients, (P - 1) W to gather the weights, (P - 1) 4 B for the loss",
        2 * 3 * 4 * 2 * 64 * 128 + 3 * 4,
        frozenset({"all_gather", "reduce_scatter", "reduce"}),
        cut("t", "matmul", "matmul_1", "grad.d_w_in", "grad.d_w_out") | cut("d", *_ADAM),
        {"w_in.mean": 4, "w_in.square": 4, "w_out.mean": 4, "w_out.square": 4},
    ),
    Named(
        "FSDP",
        "Weights do not fit, and the tokens of a rank are more bytes than the weights of a layer.",
        deep.bind(t=256, d=64),
        Described(4, memory=66_000),
        (4,),
        "(P - 1) W",
        3 * 4 * 4 * 64 * 64,
        frozenset({"all_gather"}),
        cut("t", "matmul", "matmul_1", "matmul_2", "matmul_3"),
        {"w0": 4, "w1": 4, "w2": 4, "w3": 4},
    ),
    Named(
        "Megatron",
        "Weights do not fit, tokens are few, and starting a transfer takes long: one all-reduce, not two moves.",
        two_mlps.bind(t=16, d=64, f=256),
        Described(4, tflops=0.01, latency_us=20.0, memory=80_000),
        (4,),
        "4 (P - 1) T d b",
        4 * 3 * 16 * 64 * 4,
        frozenset({"all_gather", "all_reduce", "reduce_scatter"}),
        cut("f", "matmul", "relu", "matmul_1", "matmul_2", "relu_1", "matmul_3"),
        {"w0": 4, "w1": 4, "w2": 4, "w3": 4},
    ),
    Named(
        "Megatron with sequence parallelism",
        "As before, but starting a transfer takes next to nothing; between the products it is tokens that are cut.",
        block.bind(t=16, d=64, h=8, e=8, f=256),
        Described(4, tflops=0.01, latency_us=0.01, memory=70_000),
        (4,),
        "4 (P - 1) T d b",
        4 * 3 * 16 * 64 * 4,
        frozenset({"all_gather", "reduce_scatter"}),
        cut("h", "q", "k", "v", "attention.state", "o")
        | cut("f", "matmul", "matmul_1")
        | cut("t", "add", "rms_norm.scale", "add_1"),
        {"wq": 4, "wk": 4, "wv": 4, "wo": 4, "w_in": 4, "w_out": 4},
    ),
    Named(
        "context parallel, keys and values gathered",
        "Weights fit, and several heads share keys and values, so that these are fewer bytes than all else.",
        attend.bind(t=256, d=64, h=8, g=1, e=8, causal=False),
        Described(4, tflops=0.02),
        (4,),
        "2 (P - 1) T d_kv b",
        3 * _KEYS,
        frozenset({"all_gather"}),
        cut("t", "q", "k", "v", "attention.state", "o"),
        {"wq": 1, "wk": 1, "wv": 1, "wo": 1},
    ),
    Named(
        "context parallel, causal and balanced",
        "The same where tokens attend to earlier ones alone: pairs of chunks (zigzag), and only what is read is sent.",
        _ATTENDING,
        Described(4, tflops=0.02),
        (4,),
        "3/4 of 2 (P - 1) T d_kv b",
        3 * _KEYS * 3 // 4,
        frozenset({"all_gather"}),
        cut("t", "q", "k", "v", "attention.state", "o"),
        {"wq": 1, "wk": 1, "wv": 1, "wo": 1},
    ),
    Named(
        "expert parallel",
        "The experts' weights do not fit; tokens are sent to the experts and back.",
        _EXPERTS,
        Described(4, memory=150_000),
        (4,),
        "2 (1 - 1/P) V, V what all experts read",
        2 * _SENT * 3 // 4,
        frozenset({"all_to_all"}),
        cut("g", "dispatch", "combine") | cut("x", "hidden", "computed"),
        {"w_in": 4, "w_out": 4},
    ),
    Named(
        "spatial, with halos",
        "One image: its rows are cut, and each rank gets the row beside its own from either neighbour.",
        convolved.bind(n=1, c=8, y=64, x=48, o=8),
        Described(4),
        (4,),
        "(P - 1) (k - 1) rows",
        3 * 2 * 48 * 8 * 4,
        frozenset({"shift"}),
        cut("p", "conv", "relu"),
        {"w": 1},
    ),
    Named(
        "batch and space",
        "Fewer images than devices, on a mesh of 2 x 4: images over the one axis, columns of each over the other.",
        convolved.bind(n=2, c=8, y=32, x=48, o=8),
        Described(8),
        (2, 4),
        "n (P_1 - 1) (k - 1) columns",
        2 * 3 * 2 * 32 * 8 * 4,
        frozenset({"shift"}),
        {"conv": {"n": "mesh0", "q": "mesh1"}},
        {"w": 1},
    ),
    Named(
        "tokens and hidden units",
        "Half of the weights fit: tokens over one axis of a mesh of 2 x 2, what is hidden over the other.",
        mlp.bind(t=16, d=64, f=256),
        Described(4, tflops=0.01, memory=105_000),
        (2, 2),
        "2 (P_1 - 1) T d b",
        2 * 16 * 64 * 4,
        frozenset({"all_gather", "reduce_scatter", "shift"}),
        {"matmul": {"t": "mesh0", "f": "mesh1"}, "matmul_1": {"t": "mesh0", "f": "mesh1"}},
        {"w_in": 2, "w_out": 2},
    ),
    Named(
        "product in three dimensions (2.5-D)",
        "A cube on a mesh of 2 x 2 x 2; each factor is sent along one axis, shares of the result along the third.",
        product.bind(m=64, n=64, k=64),
        Described(8, tflops=1.0, gb_per_s=0.1, latency_us=0.001),
        (2, 2, 2),
        "3 (m n k / P)^(2/3) - (m n + m k + n k) / P elements a rank",
        8 * 4 * (3 * 32 * 32 - 3 * 64 * 64 // 8),
        frozenset({"all_gather", "reduce_scatter", "shift"}),
        {"product": {"k": "mesh0", "m": "mesh1", "n": "mesh2"}},
    ),
    Named(
        "pipeline",
        "Links between hosts are slow, and no host has memory for all weights; tokens go through the layers in pieces.",
        _LAYERS,
        Described(2, hosts=2, tflops=0.01, between=0.01, memory=_MATRICES * 7 // 10),
        (2,),
        "(P - 1) T d b",
        64 * 64 * 4,
        frozenset({"broadcast"}),
        cut("", "layers.0.q", "layers.0.attention.state", "layers.1.matmul", "layers.1.o"),
        {"layers.0.wq": 2, "layers.1.w_out": 2},
    ),
)


def declaration(program: Program) -> str:
    """How it is written here."""
    return inspect.getsource(globals()[program.name].function).rstrip()


@cache
def _planned(name: str) -> Plan:
    (case,) = (case for case in CASES if case.name == name)
    return plan(case.program, case.machine.machine(), mesh=case.mesh, time_limit=600)
