"""The graph of a program as SVG, and a program as one HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from ..program import Program
from .edges import Frame, Routes
from .folding import Run
from .graph import Graph, Node, Notes, graph_of
from .layers import Size, place
from .page import Section, page
from .svg import Drawing, clean, line, number, rect, tag, text, text_width, title

MARGIN, PAD, LINE = 28.0, 10.0, 15.0
MOST_LINES, WIDEST = 3, 320.0


def program_svg(program: Program, notes: Notes | None = None) -> str:
    """The graph as an SVG file: operations in layers, composites boxed, repeated layers once, parameters inside."""
    return program_drawing(program, notes).alone()


def program_html(program: Program) -> str:
    """One page: the graph and the text of the program. Nothing is loaded from elsewhere."""
    count = f"{len(program.operations)} operations, {len(program.tensors)} tensors"
    body = f"<pre>{clean(str(program))}</pre>"
    sections = [
        Section("Graph", f'<div class="wide">{program_drawing(program).inline()}</div>'),
        Section("Program", body),
    ]
    return page(program.name, count, sections)


def program_drawing(program: Program, notes: Notes | None = None) -> Drawing:
    """The graph as a drawing, for pages of several."""
    graph = graph_of(program, notes)
    sizes = {node.key: _size(node) for node in graph.nodes}
    placed = place(sizes, [(edge.source, edge.target) for edge in graph.edges if not edge.again])
    boxes = {key: _frame(placed.centres[key], size) for key, size in sizes.items()}
    routes = Routes(graph, boxes, placed)
    parts = [_groups(graph, boxes), _runs(graph, routes)]
    parts += [routes.draw(edge) for edge in graph.edges]
    parts += [_shape(node, boxes[node.key]) for node in graph.nodes]
    parts += [routes.label(edge) for edge in graph.edges]
    loops = 30.0 if any(edge.again for edge in graph.edges) else 0.0
    body = tag("g", *parts, transform=f"translate({number(MARGIN)} {number(MARGIN)})")
    return Drawing(placed.width + 2 * MARGIN + loops, placed.height + 2 * MARGIN, body, f"graph of {program.name}")


def _lines(node: Node) -> list[tuple[str, str, float]]:
    """Text, class and size of each line in a node."""
    found = [(node.name, "strong", 12.0), (node.type, "soft small", 10.0)]
    held, room = node.params, MOST_LINES if len(node.params) <= MOST_LINES else MOST_LINES - 1
    found += [(f"▪ {param.text}", "accent small" if param.moved else "soft small", 10.0) for param in held[:room]]
    if len(held) > room:
        found.append((f"and {len(held) - room} more", "soft small", 10.0))
    return found + ([(node.note, "accent small strong", 10.5)] if node.note else [])


def _size(node: Node) -> Size:
    lines = _lines(node)
    width = max(text_width(content, size) for content, _, size in lines) + 2 * PAD
    return Size(min(max(width, 56), WIDEST), LINE * len(lines) + PAD, node.group, late=node.kind in ("input", "state"))


def _frame(centre: tuple[float, float], size: Size) -> Frame:
    return centre[0] - size.width / 2, centre[1] - size.height / 2, size.width, size.height


def _shape(node: Node, frame: Frame) -> str:
    x, y, width, height = frame
    round_ = 5.0 if node.kind == "op" else height / 2
    dashes = "4 3" if node.kind == "output" else None
    parts = [
        title(node.hint or node.name),
        rect(x, y, width, height, class_="card", rx=round_, stroke_dasharray=dashes),
    ]
    for k, (content, class_, size) in enumerate(_lines(node)):
        fits = text_width(content, size) <= WIDEST - PAD
        shown = content if fits else content[: int((WIDEST - PAD) / size / 0.56)] + "…"
        parts.append(text(x + width / 2, y + PAD / 2 + LINE * k + 11, shown, f"middle {class_}"))
    return tag("g", *parts, data_names=quote(node.key.lstrip("<>")))


def _around_all(frames: Iterable[Frame], by: float) -> Frame:
    found = list(frames)
    left, top = min(f[0] for f in found) - by, min(f[1] for f in found) - by
    return left, top, max(f[0] + f[2] for f in found) + by - left, max(f[1] + f[3] for f in found) + by - top


def _meet(a: Frame, b: Frame) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


def _groups(graph: Graph, boxes: Mapping[str, Frame]) -> str:
    """A box around every composite of several operations, where nothing else stands between them."""
    members: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.group:
            members.setdefault(node.group, []).append(node)
    parts = []
    for group, nodes in members.items():
        frame = _around_all((boxes[node.key] for node in nodes), 9)
        inside = {node.key for node in nodes}
        if len(nodes) > 1 and not any(_meet(frame, box) for key, box in boxes.items() if key not in inside):
            run = nodes[0].run
            name = group[len(f"{run.scope}{run.first}.") :] if run else group
            parts.append(_box(frame, name))
    return "".join(parts)


def _runs(graph: Graph, routes: Routes) -> str:
    runs: dict[Run, set[str]] = {}
    for node in graph.nodes:
        if node.run is not None:
            runs.setdefault(node.run, set()).add(node.key)
    parts = []
    for run, keys in runs.items():
        x, y, width, height = _around_all(routes.extent(keys), 16)
        parts.append(rect(x, y, width, height, class_="frame", rx=8, stroke_dasharray="6 4"))
        parts.append(text(x + 2, y - 5, run.label, "strong small halo"))
    return "".join(parts)


def _box(frame: Frame, name: str) -> str:
    x, y, width, height = frame
    shape = rect(x, y, width, height, title(name), class_="wash", rx=7)
    return shape + line(x, y + 4, x, y + height - 4, "frame") + text(x + 5, y - 3, name, "soft small halo")
