"""The charts of the pages, each from plain numbers to one SVG drawing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from restt_app.pages.numbers import percent, short, signed
from restt_app.pages.svg import Canvas, Scale, cut, padded

WIDTH, SMALL = 440.0, 340.0
# Classes of the style sheet for lines of several outputs or models; beyond them nothing can be told apart.
SERIES = 6
# Shades of a surface on either side of zero.
SHADES = 5
HISTOGRAM = 26.0  # height of the rows under a curve


@dataclass(frozen=True)
class Line:
    """One line of a chart. ``spread`` is half the width of the band around it."""

    name: str
    y: Sequence[float]
    spread: Sequence[float] | None = None


def curves(
    x: Sequence[float],
    lines: Sequence[Line],
    label: str,
    y_name: str,
    *,
    counts: Sequence[int] = (),
    note: tuple[str, float] | None = None,
    texts: Callable[[Any], str] = short,
) -> Markup:
    """Effects along a column of numbers over a histogram of its rows; ``note`` is a level with a name (missing).

    ``texts`` writes values of the column, such as dates.
    """
    left, right, top, bottom = 48.0, SMALL - 10, 24.0, 158.0
    floor = bottom + HISTOGRAM
    canvas = Canvas(SMALL, floor + 26, label)
    ends = [value + side * band for line in lines for value, band in _banded(line) for side in (-1, 1)]
    y = Scale(*padded([*ends, 0.0, *([note[1]] if note else [])]), bottom, top)
    across = Scale(min(x), max(x), left, right)
    canvas.x_axis(across, floor, top, texts=texts)
    canvas.y_axis(y, left, right, cut(y_name, 44))
    canvas.line(left, y(0.0), right, y(0.0), "axis")
    wide = (right - left) / max(1, len(counts))
    for place, count in enumerate(counts):
        high = (HISTOGRAM - 4) * count / max(max(counts), 1)
        canvas.add("rect", x=left + wide * place, y=floor - high, width=wide - 0.6, height=high, class_="rows")
    if note:
        canvas.line(left, y(note[1]), right, y(note[1]), "dashed")
        canvas.text(right, y(note[1]) - 4, note[0], "tick", "end")
    for place, line in enumerate(lines[:SERIES]):
        pairs = list(_banded(line))
        if any(band > 0 for _, band in pairs):
            upper = [(across(at), y(value + band)) for at, (value, band) in zip(x, pairs, strict=True)]
            lower = [(across(at), y(value - band)) for at, (value, band) in zip(x, pairs, strict=True)]
            canvas.path([*upper, *reversed(lower)], f"band s{place}", closed=True)
        canvas.path([(across(at), y(value)) for at, value in zip(x, line.y, strict=True)], f"line s{place}")
    _hover_columns(canvas, x, lines[:SERIES], across, y, texts)
    return canvas.markup()


def surface(
    names: tuple[str, str],
    grids: tuple[Sequence[str], Sequence[str]],
    values: np.ndarray,  # (G, H)
    limit: float,
    label: str,
    output: str,
) -> Markup:
    """What two columns add together, as shades; the darkest is ``limit``, the same for all surfaces of a page."""
    left, right, top, bottom = 76.0, WIDTH - 12, 26.0, 232.0
    canvas = Canvas(WIDTH, 306, label)
    wide, high = (right - left) / len(grids[0]), (bottom - top) / len(grids[1])
    for i, at in enumerate(grids[0]):
        for j, other in enumerate(grids[1]):
            value = float(values[i, j])
            canvas.add(
                "rect",
                x=left + wide * i,
                y=bottom - high * (j + 1),
                width=wide + 0.3,
                height=high + 0.3,
                class_=_shade(value / limit),
                tip=f"{names[0]} = {at}, {names[1]} = {other}: {signed(value)}",
            )
    for place in _shown(len(grids[0]), (right - left) / 72):
        canvas.text(left + wide * (place + 0.5), bottom + 16, cut(grids[0][place], 10), "tick", "middle")
    for place in _shown(len(grids[1]), 6):
        canvas.text(left - 7, bottom - high * (place + 0.5) + 4, cut(grids[1][place], 10), "tick", "end")
    canvas.text((left + right) / 2, bottom + 34, cut(names[0], 40), "label", "middle")
    canvas.text(2, 14, cut(names[1], 44), "label")
    _key(canvas, limit, left, right, bottom + 50, output)
    return canvas.markup()


def predicted_observed(
    observed: Sequence[float],
    predicted: Sequence[float],
    ends: Sequence[tuple[float, float]] | None,
    label: str,
    name: str,
) -> Markup:
    """Each row as a dot, its interval as a line; on the diagonal a prediction is right."""
    left, right, top, bottom = 58.0, WIDTH - 12, 26.0, 300.0
    canvas = Canvas(WIDTH, 342, label)
    extent = padded([*observed, *predicted], 0.04)
    x, y = Scale(*extent, left, right), Scale(*extent, bottom, top)
    canvas.x_axis(x, bottom, top, cut(f"predicted {name}", 44))
    canvas.y_axis(y, left, right, cut(f"observed {name}", 44))
    canvas.line(x(extent[0]), y(extent[0]), x(extent[1]), y(extent[1]), "dashed")
    for place, (seen, said) in enumerate(zip(observed, predicted, strict=True)):
        told, inside = f"predicted {short(said)}, observed {short(seen)}", True
        if ends is not None:
            low, high = ends[place]
            inside = low <= seen <= high
            told += f", interval {short(low)} to {short(high)}" + ("" if inside else ": outside")
            low, high = max(low, extent[0]), min(high, extent[1])
            canvas.line(x(said), y(low), x(said), y(high), "whisker faint")
        canvas.add("circle", cx=x(said), cy=y(seen), r=3.2, class_="point" if inside else "point out", tip=told)
    return canvas.markup()


def reliability(bins: Sequence[tuple[float, float, int]], label: str, x_name: str, y_name: str) -> Markup:
    """Reliability diagram: predicted against observed frequency, dot area = rows."""
    left, right, top, bottom = 50.0, WIDTH - 16, 26.0, 300.0
    canvas = Canvas(WIDTH, 342, label)
    # Rare classes have small probabilities only.
    largest = max((share for said, true, _ in bins for share in (said, true)), default=1.0)
    end = min(1.0, 1.1 * largest) if 0 < largest < 0.5 else 1.0
    x, y = Scale(0.0, end, left, right), Scale(0.0, end, bottom, top)
    canvas.x_axis(x, bottom, top, x_name)
    canvas.y_axis(y, left, right, y_name)
    canvas.line(left, bottom, right, top, "dashed")
    canvas.path([(x(said), y(true)) for said, true, _ in bins], "line s0")
    most = max((count for _, _, count in bins), default=1)
    for said, true, count in bins:
        told = f"predicted {percent(said)}, observed {percent(true)} ({count:,} rows)"
        radius = 4.0 + 7.0 * math.sqrt(count / most)
        canvas.add("circle", cx=x(said), cy=y(true), r=radius, class_="point", tip=told)
    return canvas.markup()


def _banded(line: Line) -> list[tuple[float, float]]:
    spread = line.spread if line.spread is not None else [0.0] * len(line.y)
    return list(zip(line.y, spread, strict=True))


def _hover_columns(
    canvas: Canvas, x: Sequence[float], lines: Sequence[Line], across: Scale, y: Scale, texts: Callable[[Any], str]
) -> None:
    """Invisible strips that say the values where one points, at most a few dozen."""
    step = max(1, len(x) // 40)
    places = [across(at) for at in x[::step]]
    edges = [places[0], *((a + b) / 2 for a, b in itertools.pairwise(places)), places[-1]]
    for turn, place in enumerate(range(0, len(x), step)):
        said = ", ".join(
            signed(line.y[place]) if len(lines) == 1 else f"{line.name} {signed(line.y[place])}" for line in lines
        )
        canvas.add(
            "rect",
            x=edges[turn],
            y=y.end,
            width=max(0.5, edges[turn + 1] - edges[turn]),
            height=y.start - y.end,
            class_="hover",
            tip=f"{texts(x[place])}: {said}",
        )


def _shade(share: float) -> str:
    """Class of the style sheet for a value between −1 and 1.

    >>> _shade(1.0), _shade(-0.5), _shade(0.02)
    ('d5', 'd-3', 'd0')
    """
    step = min(SHADES, math.floor(abs(share) * SHADES + 0.5))
    return f"d{'-' if share < 0 and step else ''}{step}"


def _shown(count: int, room: float) -> range:
    return range(0, count, max(1, math.ceil(count / max(1.0, room))))


def _key(canvas: Canvas, limit: float, left: float, right: float, top: float, output: str) -> None:
    """The shades of a surface from the lowest to the highest, and what they mean."""
    steps = range(-SHADES, SHADES + 1)
    wide = (right - left) / len(steps)
    for place, step in enumerate(steps):
        canvas.add("rect", x=left + wide * place, y=top, width=wide + 0.3, height=8, class_=_shade(step / SHADES))
    canvas.text(left, top + 22, signed(-limit), "tick")
    canvas.text((left + right) / 2, top + 22, cut(f"added to {output}", 36), "tick", "middle")
    canvas.text(right, top + 22, signed(limit), "tick", "end")
