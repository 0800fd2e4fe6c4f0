"""The page of a plan inside another: what a notebook shows."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from ...files import write_file

HEIGHT = 760  # pixels: a timeline of eight ranks and what stands beside it


@dataclass(frozen=True)
class Page:
    """A page that needs no other file and no network. Jupyter shows it, moving, in a frame of its own, so that neither
    its styles nor its scripts meet those of the notebook."""

    html: str

    def save(self, path: str | Path, *, replace: bool = True) -> None:
        """Write it, whole or not at all; UsageError where a file is there that is not to be replaced."""
        write_file(Path(path), self.html, replace=replace)

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{HEIGHT}px;border:0"
        return f'<iframe title="the plan" style="{style}" srcdoc="{escape(self.html)}"></iframe>'

    def __repr__(self) -> str:
        return f"<Page of {len(self.html.encode()) / 1024:.0f} KiB>"
