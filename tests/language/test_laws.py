"""Laws of monoids, tried by one call: what holds passes, and each law that fails is named with a witness."""

import pytest

from tapestry.expr import MONOIDS, Call, Component, Const, Monoid, Read
from tapestry.testing import check_monoid

A, B, R = Read("a.value", ()), Read("b.value", ()), Read("r.value", ())


def of(combine, identity=0.0, laws=frozenset({"associative", "commutative"})):
    return Monoid("mine", (Component("value", "accumulator", identity, combine),), R, laws)


@pytest.mark.parametrize("name", [name for name, monoid in MONOIDS.items() if not monoid.packed])
def test_every_monoid_of_the_table_keeps_its_laws(name):
    check_monoid(name)


@pytest.mark.parametrize(
    ("monoid", "law"),
    [
        (of(Call("subtract", (A, B))), "(a b) c = a (b c)"),
        (of(Call("multiply", (A, B))), "a identity = a"),
        (of(A, laws=frozenset({"associative"})), "identity a = a"),
        (of(Call("where", (Call("equal", (A, Const(0.0))), B, A))), "a b = b a"),
        (of(Call("add", (A, B)), laws=frozenset({"associative", "commutative", "idempotent"})), "a a = a"),
        (of(Call("multiply", (Call("add", (A, B)), Const(0.5)))), "(a b) c = a (b c)"),
    ],
    ids=["difference", "wrong identity", "first, identity", "first of two", "sum twice", "mean of two"],
)
def test_a_law_that_fails_is_named_with_a_witness(monoid, law):
    with pytest.raises(AssertionError) as caught:
        check_monoid(monoid)
    assert f"mine: {law} fails at a=" in str(caught.value)
    assert " and " in str(caught.value)
