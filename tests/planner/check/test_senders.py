"""Plans saved before there was more than one rule of who sends mean what they meant, and prove it."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

import tapestry as tp
from tapestry import Tensor, bf16, param
from tapestry.planner import Plan, plan
from tapestry.planner.check import check
from tapestry.planner.format.codec import encode, read
from tapestry.planner.format.document import Document, Transfer
from tapestry.planner.format.messages import moves
from tapestry.planner.format.resolve import Resolved
from tapestry.program import Pin

from .traffic import restated


@tp.program
def product(x: bf16[Tensor, "n c"], w: param[bf16[Tensor, "c k"]]) -> Tensor:
    return tp.relu(tp.einsum("nc,ck->nk", x, w))


@pytest.fixture(scope="module")
def made() -> Plan:
    """Over two hosts: w is gathered over the ranks of each host and folded, and the sum is needed by all."""
    pins = (Pin("op", "einsum", (("mesh1", "c"),)), Pin("op", "relu", ()), Pin("tensor", "x", (("mesh1", "n"),)))
    return plan(product.bind(n=64, c=64, k=64), "h200x8-2node", mesh=(2, 4), pins=pins, time_limit=600)


@pytest.fixture(scope="module")
def saved(made: Plan) -> Document:
    """The same tasks in a plan that does not say who sends."""
    old = restated(replace(made.document, senders=msgspec.UNSET, bound=None), made.program)
    return replace(old, shardings=made.document.shardings)


def test_plans_say_who_sends(made: Plan) -> None:
    assert made.document.senders == "by_host"
    assert made.check().ok, str(made.check())


def test_a_plan_from_before_is_proved_and_keeps_its_digests(saved: Document) -> None:
    """The digest is of the document as it was, without a word on who sends."""
    text = encode(saved)
    assert "senders" not in json.loads(text)
    document, changed = read(text)
    assert (encode(document), changed) == (text, ())
    assert check(document).ok, str(check(document))


def test_its_messages_are_of_the_first_rule(saved: Document) -> None:
    resolved = Resolved(saved)
    for task in saved.tasks:
        if isinstance(task, Transfer):
            held, needed = resolved.regions(task.have), resolved.regions(task.need)
            parts = resolved.layout(task.have).parts
            told = [m for m in moves(held, needed, parts) if m.remote]
            assert [m for m in resolved.messages(task) if m.remote] == told
