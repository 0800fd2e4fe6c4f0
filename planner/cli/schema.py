"""`tapestry schema`."""

from __future__ import annotations

from .guard import guarded
from .talk import put_json


@guarded
def schema() -> None:
    """Print the JSON schema of plan files.

    It says how a plan is written. Whether a plan is right only `tapestry check` says.
    """
    from ..format.schema import plan_schema

    put_json(plan_schema())
