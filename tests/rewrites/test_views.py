"""Views that undo one another, and views before and after functions: proved, and what is no view."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tapestry as tp
from tapestry import Tensor, f32
from tapestry.expr import Affine, Read
from tapestry.program import Operation, Program
from tapestry.rewrites import RULES, Change, apply, matches
from tapestry.testing import check_rule
from tapestry.testing.rules import Proof

from .wrong import Wrong, cases, spoiled, with_leaves


@pytest.mark.parametrize("name", [rule.name for rule in RULES.values() if rule.family == "views"])
def test_each_rule_is_proved_three_ways(name: str) -> None:
    assert check_rule(RULES[name], examples=16) > 3


def equations(program: Program) -> list[str]:
    return [line.strip() for line in str(program).splitlines() if "] = " in line]


def test_padding_that_is_cut_off_again_was_none() -> None:
    @tp.program
    def net(x: f32[Tensor, "n m"]) -> Tensor:
        padded = tp.pad(x, ((2, 1), (0, 0)), value=7).named("padded")
        return tp.exp(padded[2:-1].named("cut"))

    found = apply(net.bind(n=3, m=4), "cancel_views", "dead_values").program
    assert equations(found) == ["out[n, m] = exp(x[n, m])"]


def test_a_reshape_and_its_undoing_cancel_and_another_shape_does_not() -> None:
    @tp.program
    def net(x: f32[Tensor, "n m"]) -> dict[str, Tensor]:
        flat = tp.reshape(x, (12,)).named("flat")
        return {
            "same": tp.exp(tp.reshape(flat, (3, 4)).named("back")),
            "other": tp.exp(tp.reshape(flat, (4, 3)).named("shape")),
        }

    program = net.bind(n=3, m=4)
    assert [match.op.name for match in matches("cancel_views", program)] == ["back"]


def test_what_is_cut_off_does_not_come_back() -> None:
    @tp.program
    def net(x: f32[Tensor, "n"]) -> Tensor:
        return tp.exp(tp.pad(x[1:].named("cut"), ((1, 0),)).named("padded"))

    assert matches("cancel_views", net.bind(n=3)) == ()


def test_a_function_of_a_repeated_element_is_computed_once() -> None:
    @tp.program
    def net(x: f32[Tensor, "m"]) -> Tensor:
        return tp.exp(tp.broadcast_to(x, (1000, x.shape[0])).named("many"))

    found = apply(net.bind(m=4), "view_last").program
    assert [list(op.extents.values()) for op in found.operations] == [[4], [1000, 4]]


def test_a_convolution_of_images_with_channels_last_leaves_its_result_so() -> None:
    @tp.program
    def net(x: f32[Tensor, "n y x c"], w: f32[Tensor, "k r s c"]) -> Tensor:
        y = tp.conv2d(x.transpose(0, 3, 1, 2), w.transpose(0, 3, 1, 2), padding=1)
        return y.transpose(0, 2, 3, 1)

    found = apply(net.bind(n=2, y=5, x=4, c=3, k=2, r=3, s=3), "compose_views", "fold_into_view").program
    assert [(op.name, list(op.extents)[:4]) for op in found.operations] == [("conv2d", ["n", "p", "q", "k"])]


@pytest.mark.parametrize("how", ["read twice", "an output", "a part", "another type"])
def test_a_fold_is_turned_only_where_its_view_shows_all_of_it_to_all(how: str) -> None:
    @tp.program
    def net(x: f32[Tensor, "n m k"], *, how: str) -> dict[str, Tensor]:
        folded = tp.sum(x, "k")
        turned = tp.transpose(folded).named("turned")
        shown = turned[1:] if how == "a part" else turned.astype("f64") if how == "another type" else turned
        more = {"y": tp.exp(folded)} if how == "read twice" else {"y": folded} if how == "an output" else {}
        return {"shown": shown, **more}

    program = apply(net.bind(n=3, m=4, k=2, how=how), "compose_views").program
    assert matches("fold_into_view", program) == ()


# -- wrong on purpose --------------------------------------------------------------------------------------------------


def turned_once(*, n: int = 3) -> tp.Tensor:
    turned = tp.transpose(tp.input("x", "int32", (n, n), axes=("n", "m"))).named("turned")
    return tp.abs(turned).named("y")


def one_turn_cancelled(program: Program, op: Operation) -> Iterator[Change]:
    """Read a tensor in place of any view of its shape."""
    if op.name == "turned":
        yield Change((op.name,), instead=(("turned", "x"),), made_of=(op.name,))


def turned_as_it_lies(program: Program, op: Operation) -> Iterator[Change]:
    """Compute a function before a view, and view as it lies.

    before:
        turned[m, n] = x[n, m]
        y[m, n] = abs(turned[m, n])
    after:
        y.before[n, m] = abs(x[n, m])
        y[m, n] = y.before[n, m]
    """

    def fault(made: Operation) -> Operation:
        places = tuple(map(Affine.dim, made.extents))
        seen = Read("y.before", places)
        return with_leaves(made, lambda node: seen if isinstance(node, Read) and node.tensor == "y.before" else node)

    yield from spoiled("view_last", program, op, fault) if op.name == "turned" else ()


def one_that_is_cut(*, n: int = 4) -> tp.Tensor:
    x = tp.input("x", "int32", (n, 2), axes=("n", "m"))
    return tp.abs(tp.pad(x[1:].named("cut"), ((1, 0), (0, 0))).named("padded")).named("y")


def guards_forgotten(program: Program, op: Operation) -> Iterator[Change]:
    """Cancel views by where they read, whatever their guards leave out."""
    if op.name == "padded":
        yield Change((op.name,), instead=(("padded", "x"),), made_of=("cut", "padded"))


WRONG = [
    Wrong(one_turn_cancelled, turned_once, ("sets", "values")),
    Wrong(turned_as_it_lies, turned_once, ("sets", "values", "text")),
    Wrong(guards_forgotten, one_that_is_cut, ("sets", "values")),
]


@pytest.mark.parametrize(("wrong", "proof"), cases(WRONG))
def test_each_proof_that_can_see_the_fault_does(wrong: Wrong, proof: Proof) -> None:
    wrong.prove_seen_by(proof)
