"""Charts of the paper's page: numbers with their intervals, and sizes by their logarithms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from restt_app.pages.numbers import short
from restt_paper.page.svg import CHARACTER, LONGEST_LABEL, Canvas, Scale, cut, padded

WIDTH = 440.0
ROW = 26.0
LONG_NAME = 28  # names of programs are longer than those of columns


@dataclass(frozen=True)
class Interval:
    """A number with its interval, in a row of its own; ``ours`` stands out."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    ours: bool = False


def intervals(rows: Sequence[Interval], label: str, unit: str) -> Markup:
    """Numbers side by side, each a dot on its interval."""
    left, right, top = _room([row.name for row in rows]), WIDTH - 66, 6.0
    bottom = top + ROW * len(rows)
    canvas = Canvas(WIDTH, bottom + 42, label)
    ends = [end for row in rows for end in (row.value, row.low, row.high) if end is not None]
    x = Scale(*padded(ends, 0.08), left, right)
    canvas.x_axis(x, bottom, top, unit)
    for place, row in enumerate(rows):
        y = top + ROW * (place + 0.5)
        kind = "ours" if row.ours else "other"
        told = f"{row.name}: {short(row.value)}"
        if row.low is not None and row.high is not None:
            told += f" ({short(row.low)} to {short(row.high)})"
            canvas.line(x(row.low), y, x(row.high), y, f"whisker {kind}")
        canvas.text(left - 10, y + 4, cut(row.name), f"name {kind}", "end")
        canvas.add("circle", cx=x(row.value), cy=y, r=5.0, class_=f"dot {kind}", tip=told)
        canvas.text(right + 8, y + 4, short(row.value, 3), f"value {kind}")
    return canvas.markup()


@dataclass(frozen=True)
class Series:
    """Points of one name; ``kind`` is ours, other or limit."""

    name: str
    points: tuple[tuple[float, float], ...]
    kind: str = "other"


def log_lines(series: Sequence[Series], label: str, x_name: str, y_name: str) -> Markup:
    """Sizes against sizes, both by their logarithms; a straight line is a power."""
    left, right, top, bottom = 58.0, WIDTH - 14, 26.0, 262.0
    canvas = Canvas(WIDTH, 306, label)
    ups = [value for one in series for _, value in one.points]
    overs = [value for one in series for value, _ in one.points]
    x = Scale(min(overs) / 1.1, max(overs) * 1.1, left, right, log=True)
    y = Scale(min(ups) / 1.4, max(ups) * 1.4, bottom, top, log=True)
    for over in sorted(set(overs)):
        canvas.line(x(over), top, x(over), bottom, "grid")
    kept = -math.inf
    for over in sorted(set(overs)):
        if x(over) - kept > 34:
            canvas.text(x(over), bottom + 16, short(over), "tick", "middle")
            kept = x(over)
    canvas.text((left + right) / 2, bottom + 34, x_name, "label", "middle")
    canvas.y_axis(y, left, right, y_name)
    for one in sorted(series, key=lambda one: one.kind == "ours"):
        places = [(x(over), y(up)) for over, up in one.points]
        canvas.path(places, f"line {one.kind}")
        for (over, up), place in zip(one.points, places, strict=True):
            told = f"{one.name}: {short(up)} {y_name} at {x_name} {short(over)}"
            canvas.add("circle", cx=place[0], cy=place[1], r=4.0, class_=f"dot {one.kind}", tip=told)
    return canvas.markup()


def log_bars(rows: Sequence[tuple[str, float, str]], label: str, unit: str) -> Markup:
    """Sizes of very different scale as bars by their logarithm; (name, value, kind: ours, other or limit)."""
    left, right, top = _room([name for name, _, _ in rows], LONG_NAME), WIDTH - 66, 6.0
    bottom = top + ROW * len(rows)
    canvas = Canvas(WIDTH, bottom + 42, label)
    values = [value for _, value, _ in rows]
    x = Scale(10.0 ** math.floor(math.log10(min(values)) - 0.3), max(values), left, right, log=True)
    canvas.x_axis(x, bottom, top, unit)
    for place, (name, value, kind) in enumerate(rows):
        y = top + ROW * place + 4
        canvas.text(left - 10, y + 13, cut(name, LONG_NAME), f"name {kind}", "end")
        told = f"{name}: {short(value)} {unit}"
        canvas.add("rect", x=left, width=x(value) - left, y=y, height=ROW - 8, rx=3, class_=f"bar of-{kind}", tip=told)
        canvas.text(right + 8, y + 13, short(value, 3), f"value {kind}")
    return canvas.markup()


def _room(names: Sequence[str], longest: int = LONGEST_LABEL) -> float:
    """Space on the left for names."""
    return 16 + CHARACTER * max((len(cut(name, longest)) for name in names), default=4)
