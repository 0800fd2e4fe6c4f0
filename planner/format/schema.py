"""The JSON schema of plan files, made from the records of the document (JSON Schema, draft 2020-12)."""

from __future__ import annotations

from typing import Any

import msgspec

from .codec import FOLDED, FOLDED_OF_PROGRAM
from .digest import KEY
from .document import FORMAT, Document

_PROGRAM = {
    "type": "object",
    "description": "The bound program, as `tapestry.serialize` writes it.",
    "required": ["format", "name", "tensors", "operations", "outputs"],
    "properties": {
        "format": {"type": "string"},
        "name": {"type": "string"},
        **{part: {"$ref": "#/$defs/Folded"} for part in FOLDED_OF_PROGRAM},
    },
}
_STRETCH = {
    "type": "object",
    "description": "A stretch of a list that repeats: its items once, and by how much each number in the text of each "
    "item grows from one time to the next.",
    "required": ["repeat", "items", "step"],
    "additionalProperties": False,
    "properties": {
        "repeat": {"type": "integer", "minimum": 1},
        "items": {"type": "array", "minItems": 1},
        "step": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
    },
}


def plan_schema() -> dict[str, Any]:
    """What a plan file looks like. Whether the plan in a file of this form is right, `check` says."""
    parts = msgspec.json.schema_components([Document], ref_template="#/$defs/{name}")[1]
    document: dict[str, Any] = parts.pop("Document")
    fields = document["properties"]
    fields["format"] = {"const": FORMAT}
    fields[KEY] = {"type": "object", "additionalProperties": {"type": "string"}}
    fields["program"] = _PROGRAM
    for part in FOLDED:
        fields[part] = _or_stretch(fields[part])
    document["required"] = [*document["required"], "format"]
    parts["Stretch"] = _STRETCH
    parts["Folded"] = _or_stretch({"type": "array"})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"a plan, {FORMAT}",
        **{key: value for key, value in document.items() if key != "title"},
        "$defs": parts,
    }


def _or_stretch(lists: dict[str, Any]) -> dict[str, Any]:
    """A list whose repeated stretches may be folded."""
    stretch = {"$ref": "#/$defs/Stretch"}
    items = lists.get("items")
    return {**lists, "items": {"anyOf": [stretch, items if items is not None else {"not": stretch}]}}
