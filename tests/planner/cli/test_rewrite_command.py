"""`tapestry rewrite`: the rules that there are, and a program before and after."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Tapestry = Callable[..., Any]

NET = """
import tapestry as tp
from tapestry import Tensor, f32

@tp.program
def net(x: f32[Tensor, "n"]) -> Tensor:
    return tp.exp(x) * tp.exp(x)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NET, encoding="utf-8")
    return f"{tmp_path / 'net.py'}:net"


def test_the_rules_are_listed_with_their_algebra(tapestry: Tapestry) -> None:
    out = tapestry("rewrite", "--list").out
    assert out.startswith("cleaning\n  dead_values: Leave out an operation whose result nobody reads.\n")
    assert set(json.loads(tapestry("rewrite", "--list", "--json").out)) >= {"dead_values", "common_subexpressions"}


def test_a_program_is_shown_before_and_after(tapestry: Tapestry, net: str) -> None:
    ended = tapestry("rewrite", net, "--set", "n=3", "--rule", "common_subexpressions", "--rule", "dead_values")
    assert ended.code == 0
    before, _, rest = ended.out.partition("changes\n")
    changes, _, after = rest.partition("after\n")
    assert "out[n] = exp[n] * exp_1[n]" in before
    assert changes == "  common_subexpressions at exp_1: exp from exp, exp_1\n\n"
    assert "out[n] = exp[n] * exp[n]" in after


def test_the_same_as_one_object(tapestry: Tapestry, net: str) -> None:
    found = json.loads(tapestry("rewrite", net, "n=3", "--rule", "common_subexpressions", "--json").out)
    assert found["origins"] == {"exp": ["exp", "exp_1"], "multiply": ["multiply"]}
    assert found["steps"][0]["rule"] == "common_subexpressions"


def test_where_no_rule_applies_it_says_so(tapestry: Tapestry, net: str) -> None:
    assert "no rule applies" in tapestry("rewrite", net, "n=3", "--rule", "dead_values").out


def test_a_rule_takes_settings(tapestry: Tapestry, net: str) -> None:
    out = tapestry("rewrite", net, "n=6", "--rule", "split_dimension:parts=3,dim=n").out
    assert "exp[2*n0 + n1] = exp(x[2*n0 + n1])" in out


def test_with_a_machine_what_is_quicker_on_it_is_done(tapestry: Tapestry, net: str) -> None:
    names = [name for rule in ("unfuse", "fuse_pointwise", "common_subexpressions") for name in ("--rule", rule)]
    found = json.loads(tapestry("rewrite", net, "n=1000", *names, "--machine", "cpu-4", "--json").out)
    assert "common_subexpressions" in {step["rule"] for step in found["steps"]}
    assert len(found["origins"]) < 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rule", "dead_value"), "there is no rule 'dead_value'"),
        (("--rule", "dead_values", "--at", "exp"), "dead_values does not apply here"),
        (("--rule", "dead_values", "--at", "nothing"), "there is no operation 'nothing'"),
        ((), "a program and a rule are given"),
        (("--rule", "split_reduction:part=2"), "did you mean 'parts'"),
        (("--rule", "split_reduction:parts"), "'parts' is no setting"),
        (("--rule", "split_reduction:parts=x"), "of another type"),
        (("--rule", "fuse_pointwise", "--machine", "cpu-4", "--at", "exp"), "give one of them"),
    ],
)
def test_bad_input_is_refused(tapestry: Tapestry, net: str, arguments: tuple[str, ...], message: str) -> None:
    ended = tapestry("rewrite", net, "n=3", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
