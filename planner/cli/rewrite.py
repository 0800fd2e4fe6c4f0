"""`tapestry rewrite`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import UsageError
from .guard import guarded
from .options import parse_settings
from .plan import split_programs
from .plan_file import Json
from .talk import put, put_json

if TYPE_CHECKING:
    from ...rewrites import Rewritten

Names = Annotated[list[str] | None, typer.Option("--rule", metavar="NAME", help="A rule; several in this order.")]


@guarded
def rewrite(
    program: Annotated[list[str] | None, typer.Argument(metavar="FILE.py:PROGRAM", help="The program.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE ...", help="Extents and settings of the program.")
    ] = None,
    rules: Names = None,
    at: Annotated[str | None, typer.Option(metavar="OP", help="Only at this operation.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="The rules that there are, with what they do.")] = False,
    json: Json = False,
) -> None:
    """Rewrite a program by rules, each until it applies no more, and show it before and after."""
    if listed:
        put_json(_rules_json()) if json else put(_rules_text())
        return
    if not program or not rules:
        raise UsageError("a program and a rule are given", hint="tapestry rewrite --list shows the rules")
    from ...rewrites import apply
    from .program_file import load_program

    spec, more = split_programs(program)
    found = apply(load_program(spec, parse_settings([*(settings or []), *more])), *rules, at=at)
    put_json(_json(found)) if json else put(_text(found))


def _text(found: Rewritten) -> str:
    steps = "\n".join(f"  {step}" for step in found.steps) or "  no rule applies"
    return f"before\n{found.before}\n\nchanges\n{steps}\n\nafter\n{found.program}"


def _json(found: Rewritten) -> dict[str, object]:
    steps = [{"rule": s.rule, "at": s.at, "made": list(s.made), "of": list(s.of)} for s in found.steps]
    origins = {name: list(old) for name, old in found.origins.items()}
    return {"before": str(found.before), "after": str(found.program), "steps": steps, "origins": origins}


def _rules_text() -> str:
    """The rules by family, with the algebra before and after."""
    from ...rewrites import RULES

    lines, family = [], ""
    for rule in RULES.values():
        if rule.family != family:
            family = rule.family
            lines.append(family)
        lines.append(f"  {rule.name}: {rule.summary}")
        lines += [f"      before  {line}" for line in rule.before] + [f"      after   {line}" for line in rule.after]
    return "\n".join(lines)


def _rules_json() -> dict[str, object]:
    from ...rewrites import RULES

    return {
        rule.name: {
            "family": rule.family,
            "summary": rule.summary,
            "before": list(rule.before),
            "after": list(rule.after),
        }
        for rule in RULES.values()
    }
