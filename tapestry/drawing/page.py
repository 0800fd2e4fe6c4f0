"""One HTML file, whole in itself: its style and its pictures are inside, nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .svg import RULES, THEME, clean

PAGE_RULES = """
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif}
main,header{max-width:1180px;margin:0 auto;padding:0 28px}header{padding-top:36px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px;font-weight:650;overflow-wrap:anywhere}h2{font-size:18px;margin:44px 0 12px;padding-top:14px;border-top:1px solid var(--line);font-weight:650}
h3{font-size:14px;margin:0 0 2px;font-weight:650;overflow-wrap:anywhere}p{margin:4px 0 10px;max-width:76ch}.soft{color:var(--soft)}.accent{color:var(--accent)}
nav{margin:14px 0 0;font-size:13px}nav a{color:var(--soft);text-decoration:none;margin-right:16px}nav a:hover{color:var(--ink);text-decoration:underline}
pre{background:var(--wash);border-radius:6px;padding:12px 14px;overflow-x:auto;font:12.5px/1.5 ui-monospace,'SF Mono',Menlo,Consolas,'DejaVu Sans Mono',monospace}
table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}th{text-align:left;font-weight:600;color:var(--soft)}
th,td{padding:3px 16px 3px 0;border-bottom:1px solid var(--line);vertical-align:top}td.n,th.n{text-align:right}td code,li code,p code{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace}
.wide{overflow-x:auto}.wide svg{display:block}.tiles{display:flex;flex-wrap:wrap;gap:14px 40px;margin:22px 0 6px}
.tile b{display:block;font-size:22px;font-weight:600;line-height:1.25;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px;display:block;max-width:30ch}
.cards{display:grid;gap:30px 34px;grid-template-columns:repeat(auto-fill,minmax(min(100%,540px),1fr))}.card{min-width:0}.card svg{max-width:100%;height:auto}
details{margin:6px 0}summary{cursor:pointer;color:var(--soft);font-size:13px}footer{margin:50px 0 30px;color:var(--soft);font-size:12px}
@media print{nav{display:none}}
"""


@dataclass(frozen=True)
class Section:
    """A heading and its markup."""

    heading: str
    body: str

    @property
    def anchor(self) -> str:
        return "".join(c if c.isalnum() else "-" for c in self.heading.lower())


def page(heading: str, subtitle: str, sections: Sequence[Section], head: str = "") -> str:
    """The file's text. ``head`` is markup under the title, before the sections."""
    links = "".join(f'<a href="#{section.anchor}">{clean(section.heading)}</a>' for section in sections)
    body = "".join(f'<section id="{s.anchor}"><h2>{clean(s.heading)}</h2>{s.body}</section>' for s in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<title>{clean(heading)}</title><style>{THEME}{RULES}{PAGE_RULES}</style></head>"
        f'<body><header><h1>{clean(heading)}</h1><div class="soft">{subtitle}</div>{head}<nav>{links}</nav></header>'
        f"<main>{body}<footer>Made by tapestry show.</footer></main></body></html>\n"
    )
