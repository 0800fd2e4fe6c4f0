"""Charts as SVG text, light or dark as the page is: a few series over one axis, and bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 300, 60, 44, 44, 120
COLOURS = ("#3b78c4", "#d9822b", "#4a9c5d", "#8a5bb0")
BARS = ("#9aa3ad", "#86b0e0", "#2f6fbf")

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #444 }
  .title { font-weight: 600; font-size: 14px }
  .grid { stroke: #8884; stroke-width: 1 }
  .line { fill: none; stroke-width: 2.5 }
  @media (prefers-color-scheme: dark) { text { fill: #ccc } }
"""


def line_chart(title: str, x_label: str, xs: Sequence[float], series: Mapping[str, Sequence[float]]) -> str:
    """Lines through (xs[k], series[name][k]); both axes start at zero. Every series has its name at its end."""
    top = nice(max(value for values in series.values() for value in values))
    right = max(xs)

    def x_of(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * x / right

    def y_of(y: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * y / top

    parts = [f'<text class="title" x="{LEFT}" y="24">{title}</text>']
    for k in range(5):
        y = top * k / 4
        parts.append(f'<path class="grid" d="M{LEFT} {y_of(y):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y_of(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in xs:
        parts.append(f'<text x="{x_of(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">{x_label}</text>')
    heights = apart([y_of(values[-1]) for values in series.values()])
    for (name, values), colour, height in zip(series.items(), COLOURS, heights, strict=False):
        points = [(x_of(x), y_of(y)) for x, y in zip(xs, values, strict=True)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        parts.append(f'<path class="line" stroke="{colour}" d="M{path}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>' for x, y in points]
        parts.append(f'<text x="{points[-1][0] + 10:.1f}" y="{height + 4:.1f}" style="fill:{colour}">{name}</text>')
    body = "\n".join(parts)
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<style>{STYLE}</style>\n{body}\n</svg>\n'


def apart(heights: Sequence[float], least: float = 15) -> list[float]:
    """Heights of names, in the order given, moved down where two would lie over one another (`least` in pixels)."""
    placed, below = list(heights), float("-inf")
    for k in sorted(range(len(heights)), key=lambda k: heights[k]):
        placed[k] = below = max(heights[k], below + least)
    return placed


def nice(value: float) -> float:
    """The least of 1, 2, 4, 6, 8, 10 times a power of ten that is not below the value."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(power * k for k in (1, 2, 4, 6, 8, 10) if power * k >= value)


def bar_chart(title: str, shares: Mapping[str, Mapping[str, float]], said: Mapping[str, str]) -> str:
    """Bars from the left, of each name one a series, each a share of the whole width; and behind them what is said."""
    series = list(next(iter(shares.values())))
    left, right, bar, gap, top = 210, 130, 9, 12, 64
    width, step = 720, len(series) * bar + gap
    parts = [f'<text class="title" x="{left}" y="24">{title}</text>']
    x = left
    for k, name in enumerate(series):
        parts.append(f'<rect x="{x}" y="36" width="10" height="10" fill="{BARS[k]}"/>')
        parts.append(f'<text x="{x + 16}" y="46">{name}</text>')
        x += 40 + 8 * len(name)
    for row, (name, values) in enumerate(shares.items()):
        y, middle = top + row * step, top + row * step + len(series) * bar / 2 + 5
        parts.append(f'<text x="{left - 10}" y="{middle:.1f}" text-anchor="end">{name}</text>')
        for k, share in enumerate(values.values()):
            long = (width - left - right) * share
            parts.append(f'<rect x="{left}" y="{y + k * bar}" width="{long:.1f}" height="{bar - 1}" fill="{BARS[k]}"/>')
        parts.append(f'<text x="{width - right + 10}" y="{middle:.1f}">{said[name]}</text>')
    body, height = "\n".join(parts), top + len(shares) * step
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<style>{STYLE}</style>\n{body}\n</svg>\n'
