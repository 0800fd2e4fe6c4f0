"""The graph of a program as SVG, and a program as one HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..program import Program
from .folding import Run
from .graph import Edge, Graph, Node, Notes, graph_of
from .layers import Placed, Size, place
from .page import Section, page
from .svg import Drawing, clean, line, number, rect, tag, text, text_width, title

MARGIN, PAD, LINE = 28.0, 10.0, 15.0
MOST_LINES, WIDEST = 3, 300.0
Frame = tuple[float, float, float, float]


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
    parts = [_runs(graph, boxes), _groups(graph, boxes)]
    parts += [_edge(edge, boxes, placed) for edge in graph.edges]
    parts += [_shape(node, boxes[node.key]) for node in graph.nodes]
    parts += [_label(edge, boxes, placed) for edge in graph.edges if edge.note]
    loops = 30.0 if any(edge.again for edge in graph.edges) else 0.0
    body = tag("g", *parts, transform=f"translate({number(MARGIN)} {number(MARGIN)})")
    return Drawing(placed.width + 2 * MARGIN + loops, placed.height + 2 * MARGIN, body, f"graph of {program.name}")


def _lines(node: Node) -> list[tuple[str, str, float]]:
    """Text, class and size of each line in a node."""
    found = [(node.name, "strong", 12.0), (node.type, "soft small", 10.0)]
    shown = (
        node.params
        if len(node.params) <= MOST_LINES
        else (*node.params[: MOST_LINES - 1], f"and {len(node.params) - MOST_LINES + 1} more")
    )
    found += [(f"▪ {param}", "soft small", 10.0) for param in shown]
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
        fitting = (
            content if text_width(content, size) <= WIDEST - PAD else content[: int((WIDEST - PAD) / size / 0.56)] + "…"
        )
        parts.append(text(x + width / 2, y + PAD / 2 + LINE * k + 11, fitting, f"middle {class_}"))
    return tag("g", *parts)


def _route(edge: Edge, boxes: Mapping[str, Frame], placed: Placed) -> list[tuple[float, float]]:
    sx, sy, sw, sh = boxes[edge.source]
    tx, ty, tw, _ = boxes[edge.target]
    return [(sx + sw / 2, sy + sh), *placed.bends.get((edge.source, edge.target), ()), (tx + tw / 2, ty)]


def _edge(edge: Edge, boxes: Mapping[str, Frame], placed: Placed) -> str:
    class_ = "edge moved" if edge.note else "edge"
    hint = title(f"{edge.tensor}: {edge.note}" if edge.note else edge.tensor)
    if edge.again:
        return tag(
            "path",
            title(f"{edge.tensor}, to the next layer"),
            d=_around(edge, boxes),
            class_="edge",
            stroke_dasharray="3 4",
        )
    points = _route(edge, boxes, placed)
    path = _curve(points)
    x, y = points[-1]
    head = f"M{number(x - 3.5)} {number(y - 6)}L{number(x)} {number(y - 0.5)}L{number(x + 3.5)} {number(y - 6)}"
    return tag("g", hint, tag("path", d=path, class_=class_), tag("path", d=head, class_=class_))


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """Smooth through all points (cubic, tangents along the neighbours' chords), vertical at both ends."""
    slopes = [(0.0, points[1][1] - points[0][1])]
    slopes += [((c[0] - a[0]) / 2, (c[1] - a[1]) / 2) for a, c in zip(points, points[2:], strict=False)]
    slopes.append((0.0, points[-1][1] - points[-2][1]))
    path = [f"M{number(points[0][0])} {number(points[0][1])}"]
    for (x1, y1), (x2, y2), (a, b), (c, d) in zip(points, points[1:], slopes, slopes[1:], strict=False):
        bow = 2.2 if len(points) == 2 else 3
        path.append(
            f"C{number(x1 + a / bow)} {number(y1 + b / bow)} {number(x2 - c / bow)} {number(y2 - d / bow)} {number(x2)} {number(y2)}"
        )
    return "".join(path)


def _around(edge: Edge, boxes: Mapping[str, Frame]) -> str:
    """From the foot of a layer back to its head, outside on the right."""
    sx, sy, sw, sh = boxes[edge.source]
    tx, ty, tw, _ = boxes[edge.target]
    right = max(x + width for x, _, width, _ in boxes.values()) + 26
    down, up = sy + sh + 9, ty - 9
    start, end = (sx + sw / 2 + 8, sy + sh), (tx + tw / 2 + 8, ty)
    points = [start, (start[0], down), (right, down), (right, up), (end[0], up), end]
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def _label(edge: Edge, boxes: Mapping[str, Frame], placed: Placed) -> str:
    """How the tensor gets there, at the end of its way."""
    if edge.again:
        return ""
    points = _route(edge, boxes, placed)
    x, y = points[-1]
    before = points[-2]
    return text(x + (before[0] - x) * 0.12 + 6, y - 9, edge.note, "accent small halo")


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
            parts.append(_box(frame, name, "wash", "soft small", None))
    return "".join(parts)


def _runs(graph: Graph, boxes: Mapping[str, Frame]) -> str:
    runs: dict[Run, list[Frame]] = {}
    for node in graph.nodes:
        if node.run is not None:
            runs.setdefault(node.run, []).append(boxes[node.key])
    parts = []
    for run, frames in runs.items():
        x, y, width, height = _around_all(frames, 16)
        parts.append(rect(x, y, width, height, class_="frame", rx=8, stroke_dasharray="6 4"))
        parts.append(text(x + 8, y + height + 13, run.label, "strong small"))
    return "".join(parts)


def _box(frame: Frame, name: str, class_: str, label: str, dashes: str | None) -> str:
    x, y, width, height = frame
    shape = rect(x, y, width, height, title(name), class_=class_, rx=7, stroke_dasharray=dashes)
    return shape + line(x, y + 4, x, y + height - 4, "frame") + text(x + 5, y - 3, name, f"{label} halo")
