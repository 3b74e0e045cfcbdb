"""Draws SVG by hand: bars of what was measured, and lines over an axis; no library is needed."""

import html
import math

LEFT, WIDTH, ROW = 400, 520, 26
FEW = 12  # so many points of a line stand out, and are named on the axis
COLOURS = ("#2a6f97", "#c1121f", "#588157", "#e09f3e", "#6a4c93", "#606060")


def shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _page(width: int, height: int, parts: list[str]) -> str:
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="13">',
                      f'<rect width="{width}" height="{height}" fill="white"/>', *parts, "</svg>"]) + "\n"


def bars(title: str, rows: list[tuple[str, float, list[float]]]) -> str:
    """(name, median, all values): a bar, and a line across from the lowest to the highest."""
    scale = WIDTH / max((max(values) for *_, values in rows), default=1)
    parts = [f'<text x="10" y="20" font-weight="bold">{html.escape(title)}</text>']
    for number, (name, value, values) in enumerate(rows):
        y = 32 + ROW * number
        colour = COLOURS[0] if name.startswith("quorate") else "#a0a0a0"
        parts += [f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{html.escape(name)}</text>',
                  f'<rect x="{LEFT}" y="{y}" width="{value * scale:.1f}" height="{ROW - 6}" fill="{colour}"/>',
                  f'<line x1="{LEFT + min(values) * scale:.1f}" x2="{LEFT + max(values) * scale:.1f}" y1="{y + 10}" y2="{y + 10}" stroke="black"/>',
                  f'<text x="{LEFT + max(values) * scale + 6:.1f}" y="{y + 15}">{shown(value)}</text>']
    return _page(LEFT + WIDTH + 90, ROW * len(rows) + 40, parts)


def lines(title: str, axis: str, series: dict[str, list[tuple[float, float]]], logarithmic: bool = False) -> str:
    """A polyline for each series; logarithmic: in y."""
    points = [point for values in series.values() for point in values]
    if not points:
        return _page(WIDTH, ROW, [])
    rise = math.log10 if logarithmic else float
    right = max(x for x, _ in points) or 1
    low, high = (rise(min(y for _, y in points)), rise(max(y for _, y in points))) if logarithmic else (0.0, max(y for _, y in points) or 1)
    left, top, height = 70, 34, 300

    def place(x: float, y: float) -> tuple[float, float]:
        return left + x / right * WIDTH, top + height - (rise(y) - low) / ((high - low) or 1) * height

    parts = [f'<text x="10" y="20" font-weight="bold">{html.escape(title)}</text>',
             f'<path d="M{left} {top}V{top + height}H{left + WIDTH}" fill="none" stroke="black"/>',
             f'<text x="{left + WIDTH}" y="{top + height + 36}" text-anchor="end">{html.escape(axis)}</text>']
    measured = sorted({x for x, _ in points})
    few = len(measured) <= FEW
    for x in measured if few else (right * step / 4 for step in range(5)):
        parts.append(f'<text x="{place(x, 1)[0]:.1f}" y="{top + height + 18}" text-anchor="middle">{x:g}</text>')
    for step in range(5):
        level = low + (high - low) * step / 4
        value = 10**level if logarithmic else level
        y = place(0, value)[1]
        parts += [f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{shown(value)}</text>',
                  f'<line x1="{left}" x2="{left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e0e0e0"/>']
    for number, (name, values) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        if few:  # a single one would not be seen
            parts += ['<circle r="3" cx="{:.1f}" cy="{:.1f}" fill="{}"/>'.format(*place(x, y), colour) for x, y in values]
        parts += [f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
                  + " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in sorted(values)) + '"/>',
                  f'<text x="{left + WIDTH + 10}" y="{top + 14 + ROW * number}" fill="{colour}">{html.escape(name)}</text>']
    return _page(left + WIDTH + 290, top + height + 48, parts)
