"""Places in documents where benchmarks put their tables, between marks that a rendered page does not show."""

from __future__ import annotations

from pathlib import Path


def marked(name: str, text: str) -> str:
    """The text between its marks."""
    return f"<!-- {name}: begin -->\n{text}\n<!-- {name}: end -->"


def into(document: Path, name: str, text: str) -> None:
    """Replace what stands between the marks of the document."""
    before, found, rest = document.read_text(encoding="utf-8").partition(f"<!-- {name}: begin -->")
    _, ended, after = rest.partition(f"<!-- {name}: end -->")
    if not (found and ended):
        raise SystemExit(f"{document} has no marks of {name}: put {marked(name, '')!r} where the table belongs")
    document.write_text(before + marked(name, text) + after, encoding="utf-8")
