"""What no program means is refused with one error that names the user's line, and never computed wrongly."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.testing import program_of

ARRAY = np.ones((3, 3), np.float32)


def refused(use: Callable[[Tensor], Any]) -> str:
    with pytest.raises(tp.TapestryError) as caught:
        program_of(use, x=ARRAY)
    return str(caught.value)


# Python and NumPy ask a handle for what it does not have.
ASKED: dict[str, Callable[[Tensor], Any]] = {
    "x @ array": lambda x: x @ ARRAY,
    "array @ x": lambda x: ARRAY @ x,
    "array + x": lambda x: ARRAY + x,
    "x + array": lambda x: x + ARRAY,
    "np.spacing(x)": lambda x: np.spacing(x),
    "np.add.reduce(x)": lambda x: np.add.reduce(x),
    "np.add(x, 1, out)": lambda x: np.add(x, 1, out=ARRAY),
    "np.sum(x)": lambda x: np.sum(x),
    "np.concatenate": lambda x: np.concatenate([x, x]),
    "np.asarray(x)": lambda x: np.asarray(x),
    "np.array([x])": lambda x: np.array([x]),
    "bool(x)": lambda x: bool(x),
    "if x > 0": lambda x: x if x > 0 else -x,
    "x and x": lambda x: x and x,
    "0 < x < 1": lambda x: 0 < x < 1,
    "not x": lambda x: not x,
    "iteration": lambda x: list(x),
    "unpacking": lambda x: (lambda a, b, c: a)(*x),
    "3 in x": lambda x: 3 in x,
    "int(x)": lambda x: int(x),
    "float(x)": lambda x: float(x),
    "complex(x)": lambda x: complex(x),
    "range(x)": lambda x: range(x),  # type: ignore[call-overload]
    "[1, 2][x]": lambda x: [1, 2][x],  # type: ignore[call-overload]
    "round(x)": lambda x: round(x),  # type: ignore[call-overload]
    "math.sqrt(x)": lambda x: math.sqrt(x),
    "{x}": lambda x: {x},
    "x[0] = 1": lambda x: operator.setitem(x, 0, 1),  # type: ignore[call-overload]
    "del x[0]": lambda x: operator.delitem(x, 0),  # type: ignore[arg-type]
    "x.sum()": lambda x: x.sum(),  # type: ignore[attr-defined]
    "x.foo": lambda x: x.foo,  # type: ignore[attr-defined]
    "x ^ x": lambda x: x ^ x,  # type: ignore[operator]
    "x << 1": lambda x: x << 1,  # type: ignore[operator]
    "divmod": lambda x: divmod(x, 2),  # type: ignore[operator]
    "x + 's'": lambda x: x + "s",
    "None - x": lambda x: None - x,
    "x * [1, 2]": lambda x: x * [1, 2],
    "x + 1j": lambda x: x + 1j,
    "x @ 3": lambda x: x @ 3,  # type: ignore[operator]
    "x.T()": lambda x: x.T(),  # type: ignore[operator]
    "x.shape()": lambda x: x.shape(),  # type: ignore[operator]
    "x()": lambda x: x(),  # type: ignore[operator]
    "x.get + 1": lambda x: x.get + 1,  # type: ignore[operator]
    "f32(x)": lambda x: f32(x),  # type: ignore[operator]
    "tp.mean[k]": lambda x: tp.mean[tp.indices("k")](x),  # type: ignore[index]
    "tp.relu[0]": lambda x: tp.relu[0](x),  # type: ignore[index]
    "tp.foo(x)": lambda x: tp.foo(x),  # type: ignore[attr-defined]
    "tp.sum.foo": lambda x: tp.sum.foo,  # type: ignore[attr-defined]
    "an f-string": lambda x: tp.name(f"layer.{x}"),
    "an f-string with a format": lambda x: f"{x:.2f}",
    "math.trunc(x)": lambda x: math.trunc(x),  # type: ignore[arg-type]
    "reversed(x)": lambda x: list(reversed(x)),  # type: ignore[call-overload]
    "next(x)": lambda x: next(x),  # type: ignore[call-overload]
    "pow(x, 2, 3)": lambda x: pow(x, 2, 3),  # type: ignore[misc]
    "np.vectorize": lambda x: np.vectorize(lambda v: v)(x),
    "np.linspace": lambda x: np.linspace(0, 1, x),  # type: ignore[call-overload]
    "np.full": lambda x: np.full((2,), x),
    "len(None)": lambda x: len(None),  # type: ignore[arg-type]
    "len of no axes": lambda x: len(x[0, 0]),
}


@pytest.mark.parametrize("what", ASKED)
def test_a_handle_has_no_value(what: str) -> None:
    text = refused(ASKED[what])
    assert "test_refusals.py:" in text.splitlines()[0]
    assert "Traceback" not in text


def test_numpys_functions_of_the_same_name_are_those_of_the_language() -> None:
    built = program_of(lambda x: np.add(x, 1) * np.float32(2) + np.exp(x), x=ARRAY)
    assert [op.name for op in built.operations] == ["add", "multiply", "exp", "add_1"]


@pytest.mark.parametrize("what", ["relu", "add", "cat", "linear", "softmax", "einsum", "module", "sum"])
def test_torchs_functions_are_those_of_tensors_with_values(what: str) -> None:
    torch = pytest.importorskip("torch")
    asked: dict[str, Callable[[Tensor], Any]] = {
        "relu": lambda x: torch.relu(x),
        "add": lambda x: torch.add(x, 1),
        "cat": lambda x: torch.cat([x, x]),
        "linear": lambda x: torch.nn.functional.linear(x, x),
        "softmax": lambda x: torch.nn.functional.softmax(x, dim=0),
        "einsum": lambda x: torch.einsum("ij,jk->ik", x, x),
        "module": lambda x: torch.nn.ReLU()(x),
        "sum": lambda x: torch.ones(3, 3) + x,
    }
    text = refused(asked[what])
    assert "test_refusals.py:" in text.splitlines()[0]
    assert "torch" in text


def test_a_misspelt_name_of_the_language_is_given_its_neighbours() -> None:
    with pytest.raises(AttributeError, match=r"tapestry has no attribute 'rleu'\n  hint   did you mean tp.relu"):
        tp.rleu  # type: ignore[attr-defined] # noqa: B018
    assert not hasattr(tp, "rleu")
    with pytest.raises(ImportError):
        exec("from tapestry import rleu")


def test_what_python_refuses_in_the_users_line_shows_the_expression() -> None:
    assert "tp.mean[0]" in refused(lambda x: tp.mean[0](x)).splitlines()[0]  # type: ignore[index]
    assert "without parentheses" in refused(lambda x: x.ndim())  # type: ignore[operator]


def test_errors_that_the_user_raises_stay_what_they_are() -> None:
    def raises(x: Tensor) -> Tensor:
        raise TypeError("my own")

    with pytest.raises(TypeError, match="my own"):
        program_of(raises, x=ARRAY)


def test_a_handle_is_shown_when_it_is_printed() -> None:
    program_of(lambda x: (x + 1, print(x, str(x), f"{x!r}"))[0], x=ARRAY)


def test_hasattr_answers() -> None:
    program_of(lambda x: [x + 1, hasattr(x, "sum"), hasattr(x, "__fspath__")][0], x=ARRAY)


# Python and NumPy ask an index.
INDEXED: dict[str, Callable[[Any], Any]] = {
    "float(i)": lambda i: float(i),
    "int(i)": lambda i: int(i),
    "range(i)": lambda i: range(i),
    "[1, 2][i]": lambda i: [1, 2][i],
    "{i: 1}": lambda i: {i: 1},
    "i.foo": lambda i: i.foo,
    "i << 1": lambda i: i << 1,
    "i & i": lambda i: i & i,
    "i @ i": lambda i: i @ i,
    "if i > 0": lambda i: 1 if i > 0 else 0,
    "i + array": lambda i: i + ARRAY,
    "i + 's'": lambda i: i + "s",
    "np.spacing(i)": lambda i: np.spacing(i),
    "np.array([i])": lambda i: np.array([i]),
    "np.asarray(i)": lambda i: np.asarray(i),
    "array[i]": lambda i: ARRAY[i],
    "array * i": lambda i: ARRAY * i,
    "len(i)": lambda i: len(i),
    "list(i)": lambda i: list(i),
    "3 in i": lambda i: 3 in i,
    "i[0]": lambda i: i[0],
    "i()": lambda i: i(),
    "~i": lambda i: ~i,
    "an f-string": lambda i: f"layer.{i}",
    "an f-string with a format": lambda i: f"{i:d}",
    "tp.mean[i]": lambda i: tp.mean[i](i),  # type: ignore[index]
}


def test_numpys_functions_of_an_index_are_those_of_the_language() -> None:
    @tp.op
    def values(x: f32[Tensor, "a"]) -> f32[Tensor, "a"]:
        a = tp.indices("a")
        return x[np.int64(2) * a // 2] + np.exp(a) + np.add(np.float32(0.5), a)

    @tp.op
    def plain(x: f32[Tensor, "a"]) -> f32[Tensor, "a"]:
        a = tp.indices("a")
        return x[a] + tp.exp(a) + (0.5 + a)

    row = np.ones(4, np.float32)
    bodies = [program_of(lambda x, use=use: use(x), x=row).operations[0].body for use in (values, plain)]
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("what", INDEXED)
def test_an_index_has_no_value(what: str) -> None:
    @tp.op
    def asked(x: f32[Tensor, "a b"]) -> f32[Tensor, "a b"]:
        a, b = tp.indices("a b")
        return x[a, b] + (INDEXED[what](a), 0)[1]

    assert "test_refusals.py:" in refused(lambda x: asked(x)).splitlines()[0]


# Arguments of public functions.
ARGUMENTS: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "relu of an array": (lambda x: tp.relu(ARRAY), "a NumPy array (3, 3) of float32"),
    "relu of a list": (lambda x: tp.relu([1, 2]), "relu needs a tensor"),
    "relu of nothing": (lambda x: tp.relu(), "relu takes 1 argument, 0 are given"),
    "add of one": (lambda x: tp.add(x), "add takes 2 arguments, 1 are given"),
    "where of two": (lambda x: tp.where(x > 0, x), "where takes 3 arguments"),
    "where of numbers": (lambda x: tp.where(x, x, 0), "the condition must be bool"),
    "sum of a number": (lambda x: tp.sum(3), "x is 3, not a tensor"),
    "sum of an array": (lambda x: tp.sum(ARRAY), "tp.constant"),
    "sum over axis 2.5": (lambda x: tp.sum(x, axis=2.5), "axis is 2.5, not an integer or a string"),
    "sum over axis 7": (lambda x: tp.sum(x, axis=7), "there is no axis 7"),
    "sum over axis n": (lambda x: tp.sum(x, axis="n"), "there is no axis 'n'"),
    "sum over 0 twice": (lambda x: tp.sum(x, axis=(0, -2)), "named twice"),
    "sum of a misspelt option": (lambda x: tp.sum(x, axs=0), "unexpected keyword argument 'axs'"),
    "sum keepdims 1": (lambda x: tp.sum(x, keepdims=2), "keepdims is 2, not True or False"),
    "sum dtype": (lambda x: tp.sum(x, dtype="float32"), "unknown dtype 'float32'"),
    "mean of a string": (lambda x: tp.mean("x"), "x is 'x', not a tensor"),
    "cast to a dtype object": (lambda x: x.astype(np.float32), "dtype"),
    "cast of nothing": (lambda x: tp.cast(3, "f32"), "cast needs a tensor"),
    "matmul dtype": (lambda x: tp.matmul(x, x, dtype="int32"), "int32"),
    "einsum without a string": (lambda x: tp.einsum(x, x), "spec is"),
    "einsum of an array": (lambda x: tp.einsum("ij,jk->ik", x, ARRAY), "tp.constant"),
    "einsum of too few": (lambda x: tp.einsum("ij,jk->ik", x), "names 2 operands"),
    "einsum of nothing": (lambda x: tp.einsum(""), "einsum"),
    "einsum with two dots": (lambda x: tp.einsum("..i->i", x), "is not a letter"),
    "transpose of a string": (lambda x: tp.transpose("x"), "not a tensor"),
    "transpose by one": (lambda x: tp.transpose(x, [0]), "is not an order of the axes"),
    "transpose by a number": (lambda x: tp.transpose(x, 0), "order is 0, not a list"),
    "reshape by a float": (lambda x: x.reshape(4.5, 2), "shape"),
    "reshape to another size": (lambda x: x.reshape(2, 2), "changes the number of elements"),
    "reshape with two unknown": (lambda x: x.reshape(-1, -1), "reshape"),
    "reshape to negative": (lambda x: x.reshape(-3, -3), "reshape"),
    "reshape with a rest": (lambda x: x.reshape(-1, 4), "changes the number of elements"),
    "reshape by a name": (lambda x: tp.reshape(x, (9,), axes=("a b",)), "identifier"),
    "reshape with twice a name": (lambda x: tp.reshape(x, (3, 3), axes=("a",)), "names 1 axes for 2"),
    "slice beyond": (lambda x: x[5], "5 is not an index of axis d0"),
    "slice by a float": (lambda x: x[0.5], "0.5 is not an index"),
    "slice by a list": (lambda x: x[[0, 1]], "is not an index"),
    "slice by a mask": (lambda x: x[x > 0], "is not an index"),
    "slice by a tensor": (lambda x: x[x], "is not an index"),
    "slice with step 0": (lambda x: x[::0], "step"),
    "slice by floats": (lambda x: x[0.5:2], "slice"),
    "slice of too many": (lambda x: x[0, 0, 0], "3 keys"),
    "reverse": (lambda x: tp.reverse(x, "q"), "there is no axis 'q'"),
    "squeeze": (lambda x: tp.squeeze(x, 0), "has extent 3, not 1"),
    "expand_dims far": (lambda x: tp.expand_dims(x, [9]), "position"),
    "expand_dims twice": (lambda x: tp.expand_dims(x, [0, 0]), "position"),
    "expand_dims of a number": (lambda x: tp.expand_dims(x, 0), "not a list"),
    "expand_dims with few names": (lambda x: tp.expand_dims(x, [0, 1], names=["a"]), "names"),
    "broadcast_to": (lambda x: tp.broadcast_to(x, (2, 2)), "does not broadcast"),
    "broadcast_to fewer": (lambda x: tp.broadcast_to(x, (3,)), "does not broadcast"),
    "broadcast_to negative": (lambda x: tp.broadcast_to(x, (-1, 3, 3)), "extents"),
    "broadcast_to names": (lambda x: tp.broadcast_to(x, (2, 3, 3), axes=("a",)), "names 1 axes for 3"),
    "pad by a float": (lambda x: tp.pad(x, 0.5), "width"),
    "pad too few": (lambda x: tp.pad(x, (1,)), "pad has 1 widths for 2 axes"),
    "pad triples": (lambda x: tp.pad(x, [(1, 2, 3), 0]), "pad widths"),
    "pad away": (lambda x: tp.pad(x, -2), "pad leaves"),
    "pad an axis": (lambda x: tp.pad(x, q=1), "there is no axis 'q'"),
    "concat of a tensor": (lambda x: tp.concat(x), "not a list whose items are a tensor each"),
    "concat of nothing": (lambda x: tp.concat([]), "at least one tensor"),
    "concat of arrays": (lambda x: tp.concat([x, ARRAY]), "not a list whose items"),
    "concat of dtypes": (lambda x: tp.concat([x, x.astype("f16")]), "the operands differ"),
    "concat along": (lambda x: tp.concat([x, x], axis=4), "there is no axis 4"),
    "stack of nothing": (lambda x: tp.stack([]), "at least one tensor"),
    "stack of shapes": (lambda x: tp.stack([x, x[0]]), "stack"),
    "full without shape": (lambda x: tp.full(3, 0.0, "f32"), "shape is 3, not a list"),
    "full of negative": (lambda x: tp.full((-1,), 0.0, "f32"), "extents"),
    "gelu": (lambda x: tp.gelu(x, approximate="erf"), "gelu"),
    "softmax of ints": (lambda x: tp.softmax(x.astype("int32")), "softmax takes floats"),
    "softmax of an array": (lambda x: tp.softmax(ARRAY), "tp.constant"),
    "softmax over nothing": (lambda x: tp.softmax(x, axis=()), "softmax needs an axis"),
    "layer_norm weight": (lambda x: tp.layer_norm(x, x), "extents of the normalised axes"),
    "rms_norm eps": (lambda x: tp.rms_norm(x, eps="a"), "eps is 'a', not a number"),
    "rotary": (lambda x: tp.rotary(x), "rotary"),
    "rotary base": (lambda x: tp.rotary(tp.stack([x[:, :2]] * 2), base=-1.0), "base"),
    "attention": (lambda x: tp.attention(x, x, x), "attention takes"),
    "attention scale": (lambda x: tp.attention(x, x, x, scale="a"), "scale is 'a', not a number"),
    "attention without heads": (lambda x: tp.attention(x[None], x[None][:, :0], x[None][:, :0]), "needs a key head"),
    "attention without width": (lambda x: tp.attention(*[x[None][:, :, :0]] * 3), "needs a key head and a width"),
    "conv2d": (lambda x: tp.conv2d(x, x), "takes tensors of 4 axes"),
    "conv1d groups": (lambda x: tp.conv1d(x[None], x[None], groups=2), "contradict"),
    "conv1d groups 0.5": (lambda x: tp.conv1d(x[None], x[None], groups=0.5), "groups is 0.5, not an integer"),
    "conv1d stride": (lambda x: tp.conv1d(x[None], x[None], stride=0), "stride=0"),
    "conv1d padding": (lambda x: tp.conv1d(x[None], x[None], padding="all"), "padding='all'"),
    "conv1d wide": (lambda x: tp.conv1d(x[None], x[None], dilation=9), "outside its shape"),
    "pool window": (lambda x: tp.max_pool1d(x[None], 0), "window=0"),
    "pool axes": (lambda x: tp.avg_pool2d(x, 2), "takes a tensor of 4 axes"),
    "shard by a number": (lambda x: tp.shard(x, data=0), "data is 0, not a string"),
    "shard kind": (lambda x: tp.shard(x, kind="diagonal", data="d0"), "kind is 'diagonal', not 'block' or 'zigzag'"),
    "shard of a number": (lambda x: tp.shard(3, data="n"), "x is 3, not a tensor"),
    "replicate along a number": (lambda x: tp.replicate(x, 0), "not a string"),
    "update of a number": (lambda x: tp.update(tp.state("s", "f32", ()), 3), "new is 3, not a tensor"),
    "update of an input": (lambda x: tp.update(x, x), "is not a state"),
    "param name": (lambda x: tp.param("a b", "f32", (3,)), "cannot be the name of a tensor"),
    "param number": (lambda x: tp.param(3, "f32", (3,)), "name is 3, not a string"),
    "param dtype": (lambda x: tp.param("w", np.float32, (3,)), "dtype is"),
    "param shape": (lambda x: tp.param("w", "f32", 3), "shape is 3, not a list"),
    "param negative": (lambda x: tp.param("w", "f32", (-3,)), "extents"),
    "input axes": (lambda x: tp.input("w", "f32", (3,), axes=("a b",)), "identifier"),
    "constant name": (lambda x: tp.constant([1], name="a b"), "cannot be the name of a tensor"),
    "constant axes": (lambda x: tp.constant([1], axes=("a", "b")), "identifier"),
    "constant dtype": (lambda x: tp.constant([1], dtype="uint64"), "unknown dtype 'uint64'"),
    "constant of a handle": (lambda x: tp.constant(x), "constant"),
    "constant of handles": (lambda x: tp.constant([x, x]), "constant"),
    "named badly": (lambda x: x.named("a b"), "cannot be a name"),
    "named an input": (lambda x: x.named("y"), "keeps its name"),
    "name scope": (lambda x: tp.name(3).__enter__(), "cannot be a name"),
    "name of an op": (lambda x: tp.exp(x, name="a b"), "cannot be a name"),
    "name of a sum": (lambda x: tp.sum(x, name=3), "name is 3, not a string"),
    "indices of nothing": (lambda x: tp.indices(""), "at least one name"),
    "indices of a number": (lambda x: tp.indices(3), "indices"),
    "indices of a keyword": (lambda x: tp.indices("2n"), "is not an index name"),
    "fold over a tensor": (lambda x: tp.sum[x](x), "not an index"),
    "fold over a name": (lambda x: tp.sum["c"], "not an index"),
    "index of a tensor outside": (lambda x: x[tp.indices("a"), 0], ""),
    "string outputs": (lambda x: {"a b": x}, "'a b' cannot be the name of an output"),
    "number outputs": (lambda x: {0: x}, "0 cannot be the name of an output"),
    "no outputs": (lambda x: (), "returns no tensor"),
    "an array as output": (lambda x: ARRAY, "the program returns a NumPy array (3, 3) of float32"),
    "None as output": (lambda x: None, "the program returns None"),
    "None among outputs": (lambda x: (x, None), "None, not a tensor"),
    "nested outputs": (lambda x: (x, (x, x)), "not a tensor"),
}


@pytest.mark.parametrize("what", ARGUMENTS)
def test_arguments_are_refused_at_the_door(what: str) -> None:
    use, said = ARGUMENTS[what]
    text = refused(use)
    assert said in text
    assert ".py:" in text.splitlines()[0]
    for internal in ("np.", "Affine(", "Const(", "%", "NoneType"):
        assert internal not in text.replace("100%", "")


def test_the_line_is_that_of_the_expression_three_helpers_deep() -> None:
    def first(x: Tensor) -> Tensor:
        return second(x)

    def second(x: Tensor) -> Tensor:
        return third(x)

    def third(x: Tensor) -> Tensor:
        return x.reshape(2, 2)

    line = inspect.getsourcelines(third)[1] + 1
    assert refused(first).startswith(f"test_refusals.py:{line}: reshape")


def test_the_line_is_that_of_the_expression_in_an_operation() -> None:
    @tp.op
    def broken(x: f32[Tensor, "a b"]) -> f32[Tensor, "a b"]:
        a, b = tp.indices("a b")
        y = x[a, b] * 2
        return y + x[a]

    line = inspect.getsourcelines(broken.function)[1] + 4
    assert f"test_refusals.py:{line}" in refused(lambda x: broken(x))


def test_functions_outside_of_a_program_say_so() -> None:
    for call in (lambda: tp.full((2,), 0, "f32"), lambda: tp.constant([1]), lambda: tp.param("w", "f32", (2,))):
        with pytest.raises(tp.UsageError, match=r"test_refusals.py:\d+: .* is called outside of a program"):
            call()


@pytest.mark.parametrize("what", ["3", "f32[Tensor, 3]", "a class"])
def test_what_cannot_be_declared_is_refused(what: str) -> None:
    declare: dict[str, Callable[[], Any]] = {
        "3": lambda: tp.program(3),  # type: ignore[arg-type]
        "f32[Tensor, 3]": lambda: f32[Tensor, 3],
        "a class": lambda: tp.op(dict),  # type: ignore[arg-type]
    }
    with pytest.raises(tp.UsageError):
        declare[what]()
