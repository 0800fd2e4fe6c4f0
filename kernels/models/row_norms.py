"""A swap of a model's layer norms and global response norms for those that kernels compute.

Under autocast torch computes both in f32. Where whoever reads the result casts it down again, as the input of linear
layers and convolutions is, it comes rounded already: the same values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from torch import fx, nn

from ..layers.biases import BiasedLinear
from ..layers.layer_norms import FusedLayerNorm
from ..layers.response_norms import FusedResponseNorm, is_timms
from ..layers.timm import kind_of
from ..normalization.layer_norm import RowKind
from .hooks import bare
from .tracing import in_mode, recorded_and_lowered, set_module, tracer

PASSED_ON = (nn.Identity, nn.Dropout)
MOVED = ("permute", "transpose", "flatten", "reshape", "view")


def fuse_row_norms(model: nn.Module, autocast: bool = True) -> tuple[list[str], dict[str, str]]:
    """Put `FusedLayerNorm` and `FusedResponseNorm` into `model`, in place: where, and why other norms are left.

    Who reads their results is looked for where `autocast` may be on.
    """
    places = [(name, part) for name, part in model.named_modules(remove_duplicate=False) if _is_norm(part)]
    readers = _read_lowered(model) if places and autocast else set()
    swapped: dict[nn.Module, nn.Module] = {}
    taken, left = [], {}
    for name, module in places:
        reason = "it is the model itself: wrap it in a module" if module is model else _unfit(module)
        if reason:
            left[name] = reason
            continue
        if module not in swapped:
            swapped[module] = _made(module, module in readers)
        set_module(model, name, swapped[module])
        taken.append(name)
    return taken, left


def _is_norm(part: nn.Module) -> bool:
    return is_timms(part) or (isinstance(part, nn.LayerNorm) and not isinstance(part, FusedLayerNorm))


def _made(norm: nn.Module, read_lowered: bool) -> nn.Module:
    if isinstance(norm, nn.LayerNorm):
        return FusedLayerNorm(norm, _timms(norm) == "LayerNorm2d", read_lowered)
    return FusedResponseNorm(norm, read_lowered)


def _timms(norm: nn.LayerNorm) -> str:
    """The name of a class of timm that computes nothing else, or an empty one."""
    kind = type(norm)
    named = kind.__module__ == "timm.layers.norm" and kind.__name__ in ("LayerNorm", "LayerNorm2d")
    return kind.__name__ if named and not getattr(norm, "_fast_norm", False) else ""


def _unfit(norm: nn.Module) -> str | None:
    """Why a norm is left to torch, or None."""
    facts = {"hooks or parametrizations hang on it": bare(norm)}
    if isinstance(norm, nn.LayerNorm):
        size = norm.normalized_shape
        facts |= {
            f"{type(norm).__name__}, whose forward may differ": type(norm) is nn.LayerNorm or _timms(norm) != "",
            f"over {len(size)} dimensions": len(size) == 1,
            f"rows of {size[-1]} values": RowKind.of(size[-1], "f16", "f16") is not None,
        }
    return next((reason for reason, holds in facts.items() if not holds), None)


def _read_lowered(model: nn.Module) -> set[nn.Module]:
    """Norms whose results go to linear layers and convolutions alone, in training and in evaluation."""
    found: set[nn.Module] | None = None
    for training in (True, False):
        with in_mode(model, training):
            graphs = list(_traces(model))
        readers: dict[nn.Module, bool] = {}
        for traced in graphs:
            for node in traced.graph.find_nodes(op="call_module"):
                norm = traced.root.get_submodule(str(node.target))
                if _is_norm(norm):
                    readers[norm] = readers.get(norm, True) and _lowered_by_all(traced, node)
        these = {norm for norm, lowered in readers.items() if lowered}
        found = these if found is None else found & these
    return found or set()


class _Traced(NamedTuple):
    """The graph of a part, values of it that are kept, and those that are computed with another autocast."""

    root: nn.Module
    graph: fx.Graph
    kept: Collection[fx.Node]
    apart: Collection[fx.Node]


def _traces(model: nn.Module) -> Iterator[_Traced]:
    """Graphs that have all calls of the norms of a model, as far as torch.fx can tell, and values that are kept."""
    try:
        yield _traced(model)
    except Exception:
        for block in model.modules():
            if block is not model and any(_is_norm(part) for part in block.children()):
                try:
                    yield _traced(block)
                except Exception:
                    continue


def _traced(part: nn.Module) -> _Traced:
    reader = tracer()
    with recorded_and_lowered(True):
        graph = reader.trace(part)
    return _Traced(part, graph, reader.kept.nodes, reader.regions)


def _lowered_by_all(traced: _Traced, node: fx.Node) -> bool:
    """Whether autocast casts a value for everybody who reads it."""
    known = bool(node.users) and node not in traced.kept
    return known and all(_lowered_by(traced, reader) for reader in node.users)


def _lowered_by(traced: _Traced, reader: fx.Node) -> bool:
    if reader in traced.apart:
        return False
    if reader.op == "call_module":
        module = traced.root.get_submodule(str(reader.target))
        return _lowers(module) or (type(module) in PASSED_ON and _lowered_by_all(traced, reader))
    moves = reader.op == "call_method" and reader.target in MOVED
    return moves and _lowered_by_all(traced, reader)


def _lowers(module: nn.Module) -> bool:
    """Whether autocast casts the input of a layer, which is none of a class that may do otherwise, or look at it."""
    known = type(module) in (nn.Linear, BiasedLinear) or (isinstance(module, nn.Conv2d) and kind_of(module) is not None)
    return known and bare(module)
