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
    from collections.abc import Sequence

    from ...program import Program
    from ...rewrites import Rewritten, Rule

Names = Annotated[
    list[str] | None,
    typer.Option(
        "--rule", metavar="NAME[:SETTING=VALUE,...]", help="A rule, with settings if it has any; several in this order."
    ),
]


@guarded
def rewrite(
    program: Annotated[list[str] | None, typer.Argument(metavar="FILE.py:PROGRAM", help="The program.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE ...", help="Extents and settings of the program.")
    ] = None,
    rules: Names = None,
    at: Annotated[str | None, typer.Option(metavar="OP", help="Only at this operation.")] = None,
    machine: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="Only what makes it quicker on this machine, all its devices sharing."),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="The rules that there are, with what they do.")] = False,
    json: Json = False,
) -> None:
    """Rewrite a program by rules, each until it applies no more, and show it before and after.

    With a machine, rules are applied where the planner's model of it says that the program becomes quicker.
    """
    if listed:
        put_json(_rules_json()) if json else put(_rules_text())
        return
    if not program or not rules:
        raise UsageError("a program and a rule are given", hint="tapestry rewrite --list shows the rules")
    if machine is not None and at is not None:
        raise UsageError(
            "--at makes a change wherever it leads, --machine only what is quicker", hint="give one of them"
        )
    from .program_file import load_program

    spec, more = split_programs(program)
    bound = load_program(spec, parse_settings([*(settings or []), *more]))
    chosen = [_rule(text) for text in rules]
    found = _applied(bound, chosen, at) if machine is None else _quicker(bound, chosen, machine)
    put_json(_json(found)) if json else put(_text(found))


def _applied(program: Program, rules: Sequence[Rule], at: str | None) -> Rewritten:
    from ...rewrites import apply

    return apply(program, *rules, at=at)


def _quicker(program: Program, rules: Sequence[Rule], machine: str) -> Rewritten:
    from ...rewrites import improve
    from ..machine import load_machine
    from ..search.ready import operation_seconds

    described = load_machine(machine)
    seconds = operation_seconds(described, (described.device_count,))
    return improve(program, rules, seconds)


def _rule(text: str) -> Rule:
    """A rule of the registry with settings: split_reduction:dim=k,parts=4. Values that are numbers are numbers."""
    from ...rewrites.rule import rule_named

    name, _, given = text.partition(":")
    options: dict[str, int | str] = {}
    for part in filter(None, given.split(",")):
        setting, equals, value = part.partition("=")
        if not equals:
            raise UsageError(f"{part!r} is no setting", where=f"--rule {text}", hint="NAME:SETTING=VALUE,...")
        options[setting] = int(value) if value.isdecimal() else value
    return rule_named(name).with_options(**options)


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
