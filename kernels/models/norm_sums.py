"""A residual that is added to a fused batch norm and the activation behind the sum: both become the norm's.

    before:  y = act(norm(x) + residual)        three layers' work, in the forward of a block
    after:   y = norm(x, residual)

The block is traced by torch.fx, and computes from then on what its graph says, while its settings and the layers that
the graph does without are those it was traced with. That is done only where the graph is the same however the block is
called, and says all that it does.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import product

from torch import fx, nn

from ..layers.activations import ACTIVATIONS, activation_name
from ..layers.norms import NormAct2d
from .alike import looks
from .hooks import bare
from .in_place import ADDITIONS, makes_new, undisturbed, writes
from .rewritten import called_in, rewrite
from .tracing import in_mode, recorded_and_lowered, same_places, tracer


def fuse_sums(model: nn.Module) -> dict[NormAct2d, str]:
    """Put residuals and activations into the fused norms of `model` without an activation: which, and what.

    Blocks within others come first. Of the parts of a block those are called as they are that have nothing to do with
    it: what hangs on them, now or later, goes on.
    """
    taken: dict[NormAct2d, str] = {}
    graphs = Graphs()
    for block in reversed(list(model.modules())):
        if "forward" in vars(block) or not _may_hold_one(block) or not bare(block):
            continue
        whole = graphs.of(block)
        pairs = [] if whole is None else list(_sums(block, whole))
        pairs = [pair for pair in pairs if all(map(bare, _around(block, pair)))]
        if not pairs or not same_places(model, [block, *(act for _, act in pairs)]):
            continue
        graph = graphs.of(block, _around(block, [part for pair in pairs for part in pair]))
        before = set() if graph is None else called_in(graph)
        found = [] if graph is None else list(_sums(block, graph, pairs))
        if graph is None or not found:
            continue
        for norm, act in found:
            norm.act, norm.activation, norm.summed = act, activation_name(act), True
            taken[norm] = norm.activation or ""
        rewrite(block, graph, before)
    return taken


def _around(block: nn.Module, within: Collection[nn.Module]) -> set[nn.Module]:
    """The parts of a block that hold any of these."""
    holding = {part for part in block.modules() if any(one in within for one in part.modules())}
    return holding - {block, *within}


def _may_hold_one(block: nn.Module) -> bool:
    """A fused norm without an activation somewhere, and an activation of its own; not a layer of torch."""
    own = any(type(part) in ACTIVATIONS and type(part) is not nn.Identity for part in block.children())
    if not own or type(block).__module__.startswith("torch.nn"):
        return False
    return any(isinstance(part, NormAct2d) and part.activation == "" for part in block.modules())


class Graphs:
    """Graphs of blocks of a model, as `graph_of` has them, traced once for all that look alike."""

    def __init__(self) -> None:
        self._known: dict[Hashable, fx.Graph | None] = {}

    def of(self, block: nn.Module, opened: Collection[nn.Module] | None = None) -> fx.Graph | None:
        """The graph of a block, which is the caller's."""
        alike = looks(block)
        if alike is None:
            return graph_of(block, opened)
        inside = None if opened is None else frozenset(name for name, part in block.named_modules() if part in opened)
        key = (alike, inside)
        if key not in self._known:
            self._known[key] = graph_of(block, opened)
        return copy.deepcopy(self._known[key])


def graph_of(block: nn.Module, opened: Collection[nn.Module] | None = None) -> fx.Graph | None:
    """What a block computes, in training and in evaluation alike, whether gradients are recorded and under autocast, or
    not; None where that differs or cannot be told.

    Nor is it told of one that keeps something of a call, or makes tensors of nothing, at random even: who computes what
    the graph says keeps nothing, and has them as they were made once. And of one with several operands, of which some
    may be None: the graph would have them as if they were not. `opened`: see `tracer`.
    """
    graphs, reader = [], tracer(opened=opened)
    for training, on in product((True, False), repeat=2):
        try:
            with in_mode(block, training), recorded_and_lowered(on):
                graphs.append(reader.trace(block))
        except Exception:
            return None
        several = len(graphs[-1].find_nodes(op="placeholder")) > 1
        unsaid = reader.kept.anything or reader.constants or reader.optional or reader.regions or reader.read
        if unsaid or several:
            return None
    sources = {graph.python_code("self").src for graph in graphs}
    return graphs[0] if len(sources) == 1 else None


_Pair = tuple[NormAct2d, nn.Module]


def _sums(block: nn.Module, graph: fx.Graph, known: Collection[_Pair] | None = None) -> Iterator[_Pair]:
    """Rewrites the sums of a graph that it finds, or those that are `known`: the norm of each, and its activation.

    Who is known was found in a graph that says what all parts do.
    """
    called: dict[nn.Module, list[fx.Node]] = {}
    for node in graph.find_nodes(op="call_module"):
        called.setdefault(block.get_submodule(str(node.target)), []).append(node)
    for act, readers in called.items():
        if not activation_name(act) or not bare(act) or len(readers) != 1:
            continue
        (end,) = readers
        for chain in _summed(block, end):
            start = chain[-1]
            norm = block.get_submodule(str(start.target)) if start.op == "call_module" else None
            if not isinstance(norm, NormAct2d) or norm.activation != "" or len(called[norm]) != 1 or not bare(norm):
                continue
            if (norm, act) in known if known is not None else _alone(block, end, chain):
                _rewrite(graph, norm, chain, end)
                yield norm, act
                break


def _summed(block: nn.Module, end: fx.Node) -> Iterator[list[fx.Node]]:
    """From the sum that an activation gets back to what is summed: calls with one operand that nobody else reads.

    Past layers that pass on what they get, as a DropPath that drops nothing is.
    """
    (total,) = end.args if len(end.args) == 1 and not end.kwargs else (None,)
    if not isinstance(total, fx.Node) or total.target not in ADDITIONS or total.kwargs or len(total.args) != 2:
        return
    if len(total.users) != 1 or total.args[0] is total.args[1]:
        return
    both = [node for node in total.args if isinstance(node, fx.Node)]
    if len(both) != 2:
        return
    for node in both:
        chain = [total, node]
        while _passes_on(block, chain[-1]) and len(chain[-1].users) == 1 and isinstance(chain[-1].args[0], fx.Node):
            chain.append(chain[-1].args[0])
        if all(len(one.users) == 1 for one in chain) and len(chain[-1].args) == 1:
            yield chain


def _alone(block: nn.Module, end: fx.Node, chain: Sequence[fx.Node]) -> bool:
    """Whether nobody writes into what norm, sum and activation read until then, nor do they into what others read."""
    total, summand, start = chain[0], chain[1], chain[-1]
    into = total.args[0] if writes(total, None) else summand
    own = into is summand or (isinstance(into, fx.Node) and makes_new(block, into))
    return own and undisturbed(start, end, chain, block)


def _passes_on(block: nn.Module, node: fx.Node) -> bool:
    if node.op != "call_module" or len(node.args) != 1 or node.kwargs:
        return False
    layer = block.get_submodule(str(node.target))
    return type(layer) is nn.Identity and bare(layer)


def _rewrite(graph: fx.Graph, norm: NormAct2d, chain: Sequence[fx.Node], end: fx.Node) -> None:
    """One call in the place of norm, sum and activation."""
    total, summand, start = chain[0], chain[1], chain[-1]
    other = next(node for node in total.args if node is not summand)
    norm.written = "" if not writes(total, None) else "norm" if total.args[0] is summand else "residual"
    with graph.inserting_before(end):
        call = graph.call_module(str(start.target), (start.args[0], other))
    end.replace_all_uses_with(call)
    for node in (end, *chain):
        graph.erase_node(node)
