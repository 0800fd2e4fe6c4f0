"""The edges of a graph's drawing: where they leave and arrive, how they bend, what is written on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from .graph import Edge, Graph
from .layers import Placed
from .svg import number, tag, text, title

Frame = tuple[float, float, float, float]  # left, top, width, height
Point = tuple[float, float]
PORT = 22.0  # distance of arrivals at one node


@dataclass(frozen=True)
class Routes:
    """Ways of all edges between the boxes of a laid out graph."""

    graph: Graph
    boxes: Mapping[str, Frame]
    placed: Placed

    @cached_property
    def arrivals(self) -> dict[tuple[str, str], float]:
        """Edge -> where along the top of its target it ends: side by side, in the order in which the edges come in."""
        incoming: dict[str, list[tuple[float, str]]] = {}
        for edge in self.graph.edges:
            if not edge.again:
                last = [self._foot(edge.source), *self.placed.bends.get((edge.source, edge.target), ())][-1]
                incoming.setdefault(edge.target, []).append((last[0], edge.source))
        found = {}
        for target, sources in incoming.items():
            x, _, width, _ = self.boxes[target]
            step = min(PORT, (width - 16) / len(sources))
            for k, (_, source) in enumerate(sorted(sources)):
                found[source, target] = x + width / 2 + (k - (len(sources) - 1) / 2) * step
        return found

    def _foot(self, key: str) -> Point:
        x, y, width, height = self.boxes[key]
        return x + width / 2, y + height

    def route(self, edge: Edge) -> list[Point]:
        """All points that the edge passes."""
        key = edge.source, edge.target
        return [
            self._foot(edge.source),
            *self.placed.bends.get(key, ()),
            (self.arrivals[key], self.boxes[edge.target][1]),
        ]

    def extent(self, keys: set[str]) -> list[Frame]:
        """Boxes of the nodes, and the bends of the edges that end in one of them, as boxes of no size."""
        found = [self.boxes[key] for key in keys]
        for (_, target), points in self.placed.bends.items():
            if target in keys:
                top = min(self.boxes[key][1] for key in keys)
                found += [(x, y, 0.0, 0.0) for x, y in points if y > top]
        return found

    def draw(self, edge: Edge) -> str:
        """The line and its head."""
        class_ = "edge moved" if edge.note else "edge"
        if edge.again:
            hint = title(f"{edge.tensor}, to the next layer")
            return tag("path", hint, d=self._around(edge), class_="edge", stroke_dasharray="3 4")
        points = self.route(edge)
        x, y = points[-1]
        head = f"M{number(x - 3.5)} {number(y - 6)}L{number(x)} {number(y - 0.5)}L{number(x + 3.5)} {number(y - 6)}"
        hint = title(f"{edge.tensor}: {edge.note}" if edge.note else edge.tensor)
        return tag("g", hint, tag("path", d=curve(points), class_=class_), tag("path", d=head, class_=class_))

    def label(self, edge: Edge) -> str:
        """How the tensor gets there, where it arrives: the first of several on the left, the others on the right."""
        if not edge.note or edge.again:
            return ""
        beside = self.noted[edge.target]
        place = beside.index(edge.source)
        before, (x, y) = self.route(edge)[-2:]
        leftward = place == 0 if len(beside) > 1 else before[0] > x + 4
        lift = 11 * max(place - 1, 0)
        return text(
            x + (-6 if leftward else 6), y - 8 - lift, edge.note, "accent small halo" + (" end" if leftward else "")
        )

    @cached_property
    def noted(self) -> dict[str, list[str]]:
        """By target the sources of edges with notes, from left to right."""
        found: dict[str, list[str]] = {}
        for edge in self.graph.edges:
            if edge.note and not edge.again:
                found.setdefault(edge.target, []).append(edge.source)
        return {target: sorted(sources, key=lambda s: self.arrivals[s, target]) for target, sources in found.items()}

    def _around(self, edge: Edge) -> str:
        """From the foot of a layer back to its head, outside on the right."""
        (sx, sy), (tx, ty, tw, _) = self._foot(edge.source), self.boxes[edge.target]
        right = self.placed.width + 26
        start, end = (sx + 8, sy), (tx + tw / 2 + 8, ty)
        points = [start, (start[0], sy + 9), (right, sy + 9), (right, ty - 9), (end[0], ty - 9), end]
        return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def curve(points: Sequence[Point]) -> str:
    """Smooth through all points (cubic), vertical at both ends and wherever it turns or goes straight down."""
    slopes = [(0.0, points[1][1] - points[0][1])]
    for (x1, y1), (x2, _), (x3, y3) in zip(points, points[1:], points[2:], strict=False):
        onward = (x2 - x1) * (x3 - x2) > 0
        slopes.append(((x3 - x1) / 2 if onward else 0.0, (y3 - y1) / 2))
    slopes.append((0.0, points[-1][1] - points[-2][1]))
    bow = 2.2 if len(points) == 2 else 3.0
    path = [f"M{number(points[0][0])} {number(points[0][1])}"]
    for (start, end), ((a, b), (c, d)) in zip(pairwise(points), pairwise(slopes), strict=True):
        bends = (start[0] + a / bow, start[1] + b / bow, end[0] - c / bow, end[1] - d / bow)
        path.append("C" + " ".join(number(value) for value in (*bends, *end)))
    return "".join(path)
