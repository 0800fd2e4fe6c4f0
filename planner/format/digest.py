"""Digests of a plan: what was changed after it was written, and whether two ranks were given the same.

A digest is the SHA-256 of the JSON text of a part, keys sorted, no blanks, every layer written out. It is no signature:
whoever changes a plan can write new digests. It tells accidents apart from what was planned.
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import msgspec

from .document import Document

KEY = "digests"


def digests(document: Document) -> dict[str, str]:
    """The digests of the plan's program and machine, and of all of it."""
    parts = {"program": document.program, "machine": document.machine, "plan": document}
    return {name: digest(part) for name, part in parts.items()}


def changed_parts(document: Document, stated: Any) -> tuple[str, ...]:
    """The parts of a document that the digests stated in it are not of."""
    found = digests(document)
    return tuple(part for part in found if not isinstance(stated, dict) or stated.get(part) != found[part])


def digest(part: Any) -> str:
    """The digest of any part."""
    try:
        text = msgspec.json.encode(part, order="deterministic")
    except UnicodeEncodeError:  # half of a pair of surrogates, which is no text, yet may stand in JSON
        text = json.dumps(msgspec.to_builtins(part), sort_keys=True).encode()
    return sha256(text).hexdigest()
