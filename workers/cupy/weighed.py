"""Values weighed by a softmax of scores, for the keys that all rows see: attention that a program spells out.

    score[h, s] = sum[e] q[h, e] k[s, h // group, e]
    logit[h, s] = scale * score[h, s] if s <= at else -inf
    out[h, e]   = sum[s] exp(logit[h, s] - max) / sum * v[s, h // group, e]

Keys out of sight weigh 0, and are not looked at: their values count nothing, whatever they are.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from ...dtypes import DTYPES, name_of
from ...expr import MONOIDS, Affine, Call, Cast, Const, Expr, Read, substitute
from ...program import Block
from ...result_type import result_dtype
from ...updates import bounds_of
from ..device import Chain, Evaluation, Stored
from ..lifting import dtypes_of
from .arrays import DeviceArray
from .evaluating import jobs_of
from .few_queries import WIDTHS, Limit
from .heads import KNOWN
from .jobs import Renaming
from .machine import Attention, Heads, Keys, Matrices, Product
from .places import place
from .products import products_of

HIDDEN = -float("inf")


def weighed_values(chain: Chain) -> tuple[Attention, Limit | None] | None:
    """What a chain of tasks computes so, from the scores to what is made of the values; None where it is none."""
    if not 5 <= len(chain.tasks) <= 6 or chain.stored != {chain.tasks[-1].op.output}:
        return None
    scores, *logits, most, total, weights, values = chain.tasks
    if not all(_dense(task) for task in (*logits, most, total, weights)) or any(one.op.monoid for one in logits):
        return None
    logit = _softmax(most, total, weights)
    if logit is None:
        return None
    seen = _logits(scores, most, logit)
    if logits:
        plain = logit == Read(logits[0].op.output, _index(most))
        seen = _logits(scores, logits[0], _bare_body(logits[0])) if plain else None
    first, second = _product(scores), _product(values)
    if seen is None or first is None or second is None or not _alike(chain, first, second):
        return None
    found = _attention(first, second, seen[0])
    return None if found is None else (found, seen[1])


def _dense(task: Evaluation) -> bool:
    """Whether a task is of all elements of what it writes, its dimensions in their order."""
    op = task.op
    kept = tuple(Affine.dim(name) for name in op.parallel_dims)
    if isinstance(op.body, Block) or op.where or op.write != kept or len(task.points.grids) != 1:
        return False
    axes = dict(zip((dim.name for dim in op.dims), task.points.grids[0].axes, strict=True))
    return task.write.grid.axes == tuple(axes[name] for name in op.parallel_dims)


def _bare(expr: Expr) -> Expr:
    """An expression without what only rounds."""
    while isinstance(expr, Cast) and DTYPES[expr.dtype].kind == "float":
        expr = expr.arg
    return replace(expr, args=tuple(map(_bare, expr.args))) if isinstance(expr, Call) else expr


def _index(task: Evaluation) -> tuple[Affine, ...]:
    return tuple(Affine.dim(dim.name) for dim in task.op.dims)


def _bare_body(task: Evaluation) -> Expr:
    assert not isinstance(task.op.body, Block)
    return _bare(task.op.body)


def _softmax(most: Evaluation, total: Evaluation, weights: Evaluation) -> Expr | None:
    """The logits, over the dimensions of the first of three tasks, of which they make weights along the last axis."""
    for task, monoid in ((most, "max"), (total, "sum"), (weights, None)):
        reduced = () if monoid is None else (task.op.dims[-1].name,)
        if (task.op.monoid, task.op.reduce_dims, len(task.op.dims)) != (monoid, reduced, len(most.op.dims)):
            return None
    logits = _bare_body(most)

    def weight(task: Evaluation) -> Expr:
        index = _index(task)
        names = dict(zip((dim.name for dim in most.op.dims), index, strict=True))
        greatest = Read(most.op.output, index[:-1])
        return Call("exp", (Call("subtract", (substitute(logits, names), greatest)),))

    share = Call("divide", (weight(weights), Read(total.op.output, _index(weights)[:-1])))
    return logits if (_bare_body(total), _bare_body(weights)) == (weight(total), share) else None


def _logits(scores: Evaluation, task: Evaluation, body: Expr) -> tuple[float, Limit | None] | None:
    """The factor of scores, and how many of them are seen; None where a body makes something else of them.

    The body is over the dimensions of a task that reads what it does.
    """
    limit = None
    if isinstance(body, Call) and body.function == "where":
        condition, value, hidden = body.args
        limit = _limit(task, condition)
        if limit is None or hidden != Const(HIDDEN):
            return None
        body = value
    score = Read(scores.op.output, _index(task))
    if body == score:
        return 1.0, limit
    if not isinstance(body, Call) or body.function != "multiply" or score not in body.args:
        return None
    factors = [arg.value for arg in body.args if isinstance(arg, Const)]
    return (float(factors[0]), limit) if factors else None


def _limit(task: Evaluation, condition: Expr) -> Limit | None:
    """A condition that says of the last dimension that it goes up to an integer of the data."""
    op, dtypes = task.op, dtypes_of(task)
    key = op.dims[-1].name

    def whole(expr: Expr) -> bool:
        return DTYPES[result_dtype(expr, dtypes)].kind == "int"

    for dim, rest, least, most in bounds_of(condition, {key}, whole):
        if dim == key and least == -float("inf") and not rest.index.terms and len(rest.values) == 1:
            [(value, count)] = rest.values
            stored = task.reads.get(value.tensor) if isinstance(value, Read) and not value.guard else None
            if count == -1 and isinstance(value, Read) and stored is not None and isinstance(stored.array, DeviceArray):
                return _of(stored, value, int(most) - rest.index.const)
    return None


def _of(stored: Stored, read: Read, most: int) -> Limit | None:
    if any(row.terms for row in read.index):
        return None
    at = place(read.index, stored, Renaming("n", {}).ranges)
    return None if at.broken else Limit(stored.array, at.plain.const, most + 1)


def _product(task: Evaluation) -> Product | None:
    if isinstance(task.op.body, Block) or task.op.monoid is None or MONOIDS[task.op.monoid].function != "add":
        return None
    jobs = jobs_of(task)
    made = products_of(jobs[0]) if len(jobs) == 1 else None
    return made[0] if made is not None and len(made) == 1 else None


def _alike(chain: Chain, first: Product, second: Product) -> bool:
    """Whether the weights are, place for place, those of the scores."""
    scores, weights = chain.tasks[0].write, chain.tasks[-2].write
    between = [task.write.grid for task in chain.tasks[1:-4]]
    if any(grid != scores.grid for grid in (*between, weights.grid)) or second.left.array != weights.array:
        return False
    shape = first.batches, first.rows, first.columns
    if shape != (second.batches, second.rows, second.folded) or prod(shape) != scores.grid.size:
        return False
    steps = [
        (x.offset, x.batch if first.batches > 1 else 0, x.row if first.rows > 1 else 0, x.column)
        for x in (first.out, second.left)
    ]
    return steps[0] == steps[1]


def _attention(first: Product, second: Product, scale: float) -> Attention | None:
    """One row of queries, heads of which those of a batch of the products share keys and values."""
    q, k, v, out = first.left, first.right, second.right, second.out
    width, dtypes = first.folded, {name_of(x.array.dtype) for x in (q, k, v)}
    if (q.column, k.row, v.column, out.column) != (1, 1, 1, 1) or second.columns != width or width not in WIDTHS:
        return None
    if len(dtypes) != 1 or dtypes - {*KNOWN} or second.added is not None:
        return None
    heads = [_heads(x, first) for x in (q, out)]
    if None in heads:
        return None
    query, state = (x for x in heads if x is not None)
    key, value = Heads(k.array, k.offset, 0, k.column, k.batch), Heads(v.array, v.offset, 0, v.row, v.batch)
    seen = (Keys(0, first.columns, False),)
    count = first.batches * first.rows
    return Attention(query, key, value, state, 1, 1, count, first.batches, width, scale, seen, finished=True)


def _heads(x: Matrices, product: Product) -> Heads | None:
    """Rows of all batches as heads, if they are as far apart everywhere."""
    if product.rows == 1:
        return Heads(x.array, x.offset, 0, 0, x.batch)
    if product.batches > 1 and x.batch != product.rows * x.row:
        return None
    return Heads(x.array, x.offset, 0, 0, x.row)
