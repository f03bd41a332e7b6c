"""How time grows with size: an exponent fitted to a few sizes, and a plot of all of them, both axes logarithmic.

In: points (size, seconds). Out: the exponent; an SVG, drawn here so that the bench needs no browser for it.
"""

import math
from collections.abc import Mapping, Sequence

Points = Sequence[Sequence[float]]
"""(size, seconds), by size."""

WIDTH, HEIGHT, LEFT, TOP, BOTTOM, RIGHT = 860, 420, 60, 20, 45, 330
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")
DASHES = ("", "6 3", "2 3", "8 3 2 3")


def exponent(points: Points) -> float:
    """b of seconds = a * size ** b, by least squares of the logarithms. (1, 3), (10, 30), (100, 300): 1."""
    x, y = ([math.log(point[axis]) for point in points] for axis in (0, 1))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    moved = [one - mean_x for one in x]
    return sum(a * (b - mean_y) for a, b in zip(moved, y, strict=True)) / sum(a * a for a in moved)


def n_log_n(points: Points) -> float:
    """The exponent that n log n itself has over these sizes: a little more than 1."""
    return exponent([(size, size * math.log(max(size, 2))) for size, _ in points])


def growth_row(points: Points) -> dict:
    """The words of a row of the table for these points."""
    sizes = f"{points[0][0]:,.0f} to {points[-1][0]:,.0f}"
    times = " · ".join(f"{seconds:.3g}" for _, seconds in points)
    return {
        "ours": f"{times} s for {sizes}", "ratio": f"n^{exponent(points):.2f}",
        "goal": f"no worse than n log n (n^{n_log_n(points):.2f} here)", "points": tuple(map(tuple, points)),
    }  # fmt: skip


def plot(lines: Mapping[str, Points]) -> str:
    """Each line from its own first point: multiples of its least size and of its time there, so all begin at 1, 1."""
    scaled = {name: [(n / points[0][0], s / points[0][1]) for n, s in points] for name, points in lines.items()}
    far = max(n for points in scaled.values() for n, _ in points)
    high = max(far, *(s for points in scaled.values() for _, s in points))
    low = min(0.5, *(s for points in scaled.values() for _, s in points))

    def at(n: float, s: float) -> tuple[float, float]:
        across, up = math.log(n) / math.log(far), math.log(s / low) / math.log(high / low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    parts = [_axes(at, far, low, high), _line([at(1, 1), at(far, far)], "#999999", "1 3", 1)]
    for number, (name, points) in enumerate(scaled.items()):
        colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
        y = TOP + 14 + 22 * number
        parts += [
            _line([at(*point) for point in points], colour, dash, 2),
            _line([(WIDTH - RIGHT + 15, y), (WIDTH - RIGHT + 45, y)], colour, dash, 2),
            _text(WIDTH - RIGHT + 52, y + 4, name, "start"),
        ]
    style = 'style="background:#fff" font-family="sans-serif" font-size="12"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {style}>\n{body}\n</svg>\n'


def _axes(at, far: float, low: float, high: float) -> str:
    parts = []
    for power in range(math.floor(math.log10(far)) + 1):
        x, y = at(10**power, low)
        parts.append(_text(x, y + 16, f"{10**power:,}", "middle"))
    for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        x, y = at(1, 10.0**power)
        parts += [
            _text(x - 6, y + 4, f"{10**power:,g}", "end"),
            _line([(x, y), (WIDTH - RIGHT, y)], "#e5e5e5", "", 1),
        ]
    parts.append(
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "size and time as multiples of the least; dots: n", "middle")
    )
    return "\n".join(parts)


def _line(points: Sequence[tuple[float, float]], colour: str, dash: str, width: float) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dash}"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    safe = words.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{safe}</text>'
