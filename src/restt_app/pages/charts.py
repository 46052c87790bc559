"""The charts of the pages, each from plain numbers to one SVG drawing.

Colours are classes of the style sheet, so they follow the theme. Text and attributes are escaped as they are added:
names of columns come from anybody's table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from restt_app.pages.numbers import percent, short, signed

WIDTH, SMALL = 440.0, 340.0
# Classes of the style sheet for lines of several outputs or models; more lines than these look alike.
SERIES = 6
# Shades of a surface on either side of zero.
SHADES = 5
HISTOGRAM = 26.0  # height of the rows under a curve
CHARACTER = 7.0  # width of a character, in units of the drawing
NAME_WIDTH, NAME_HEIGHT = 72, 35  # room of a name beside a surface


def round_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten between two ends.

    >>> round_ticks(0, 1, 5), round_ticks(-3, 12, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 5.0, 10.0])
    """
    if not high > low:
        return [low]
    rough = (high - low) / max(1, count)
    exponent = math.floor(math.log10(rough))
    unit = 10.0**exponent
    step = unit * min(factor for factor in (1, 2, 5, 10) if factor * unit >= rough * 0.7)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = (round(place * step, -exponent) for place in range(first, last + 1))
    return list(dict.fromkeys(ticks))  # floats may be farther apart than steps


class Chart:
    """A drawing that grows to its place on the page, with values of ``x`` and ``y`` (low, high) inside a frame.

    ``frame`` is (left, right, top, bottom) in units of the drawing; ``label`` is what a screen reader says.
    """

    def __init__(
        self,
        size: tuple[float, float],
        frame: tuple[float, float, float, float],
        label: str,
        x: tuple[float, float] = (0.0, 1.0),
        y: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        self.size, self.label, self._x, self._y = size, label, x, y
        self.left, self.right, self.top, self.bottom = frame
        self._parts: list[Markup] = []

    def x(self, value: float) -> float:
        """Place of a value across."""
        return float(np.interp(value, self._x, (self.left, self.right)))

    def y(self, value: float) -> float:
        """Place of a value upwards."""
        return float(np.interp(value, self._y, (self.bottom, self.top)))

    def add(self, tag: str, class_: str, text: str = "", tip: str | None = None, **attributes: float | str) -> None:
        """Add an element; ``tip`` is shown when it is pointed at."""
        written = Markup("").join(
            Markup(' {}="{}"').format(name.replace("_", "-"), f"{value:.1f}" if isinstance(value, float) else value)
            for name, value in {"class": class_, **attributes, **({} if tip is None else {"data-tip": tip})}.items()
        )
        self._parts.append(Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), written, text))

    def line(self, x1: float, y1: float, x2: float, y2: float, class_: str) -> None:
        """A straight line between two places."""
        self.add("line", class_, x1=x1, y1=y1, x2=x2, y2=y2)

    def text(self, x: float, y: float, text: str, class_: str = "label", anchor: str = "start") -> None:
        """A text at a place."""
        self.add("text", class_, text, x=x, y=y, text_anchor=anchor)

    def path(self, xs: Any, ys: Any, class_: str, *, closed: bool = False) -> None:
        """A line through values."""
        steps = "L".join(f"{self.x(x):.1f} {self.y(y):.1f}" for x, y in zip(xs, ys, strict=True))
        self.add("path", class_, d=f"M{steps}{'Z' if closed else ''}")

    def axes(self, x_name: str, y_name: str, texts: Callable[[Any], str] = short, floor: float = 0.0) -> None:
        """Ticks with faint lines, the name of x below and that of y above; ``floor`` moves the ticks of x down."""
        ticks = round_ticks(*self._x)
        wide = max(len(texts(tick)) for tick in ticks) * CHARACTER + 6
        step = math.ceil(wide / (self.x(ticks[1]) - self.x(ticks[0]))) if len(ticks) > 1 else 1
        for tick in ticks[::step]:
            self.line(self.x(tick), self.top, self.x(tick), self.bottom + floor, "grid")
            self.text(self.x(tick), self.bottom + floor + 16, texts(tick), "tick", "middle")
        for tick in round_ticks(*self._y, 4):
            self.line(self.left, self.y(tick), self.right, self.y(tick), "grid")
            self.text(self.left - 7, self.y(tick) + 4, short(tick), "tick", "end")
        if x_name:
            self.text((self.left + self.right) / 2, self.bottom + 34, cut(x_name, 44), "label", "middle")
        self.text(2, 12, cut(y_name, 44))

    def markup(self) -> Markup:
        """The drawing, to be put into a page."""
        head = '<svg class="chart" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">{}</svg>'
        return Markup(head).format(*self.size, self.label, Markup("").join(self._parts))


@dataclass(frozen=True)
class Line:
    """One line of a chart. ``spread`` is half the width of the band around it."""

    name: str
    y: np.ndarray
    spread: np.ndarray


def curves(
    x: np.ndarray,
    lines: Sequence[Line],
    label: str,
    y_name: str,
    *,
    counts: Sequence[int],
    missing: float | None,
    texts: Callable[[Any], str],
) -> Markup:
    """Effects along a column of numbers over a histogram of its rows; ``missing`` is the effect of a missing value.

    ``texts`` writes values of the column, such as dates.
    """
    ends = [end for line in lines for side in (-1, 1) for end in (line.y + side * line.spread).tolist()]
    extent = padded([*ends, 0.0, *([] if missing is None else [missing])])
    chart = Chart((SMALL, 210), (48.0, SMALL - 10, 24.0, 158.0), label, (float(x.min()), float(x.max())), extent)
    chart.axes("", y_name, texts, HISTOGRAM)
    chart.line(chart.left, chart.y(0.0), chart.right, chart.y(0.0), "axis")
    wide = (chart.right - chart.left) / max(1, len(counts))
    for place, count in enumerate(counts):
        high = (HISTOGRAM - 4) * count / max(*counts, 1)
        bottom = chart.bottom + HISTOGRAM
        chart.add("rect", "rows", x=chart.left + wide * place, y=bottom - high, width=wide - 0.6, height=high)
    if missing is not None:
        chart.line(chart.left, chart.y(missing), chart.right, chart.y(missing), "dashed")
        chart.text(chart.right, chart.y(missing) - 4, "missing", "tick", "end")
    for place, line in enumerate(lines[:SERIES]):
        if (line.spread > 0).any():
            band = np.concatenate([line.y + line.spread, (line.y - line.spread)[::-1]])
            chart.path([*x, *x[::-1]], band.tolist(), f"band s{place}", closed=True)
        chart.path(x.tolist(), line.y.tolist(), f"line s{place}")
    # Invisible strips that say the values where one points, at most a few dozen.
    step = max(1, len(x) // 40)
    places = [chart.x(at) for at in x[::step]]
    edges = [places[0], *((np.array(places[:-1]) + places[1:]) / 2).tolist(), places[-1]]
    for turn, place in enumerate(range(0, len(x), step)):
        values = ", ".join(f"{line.name if len(lines) > 1 else ''} {signed(float(line.y[place]))}" for line in lines)
        wide = max(0.5, edges[turn + 1] - edges[turn])
        tip = f"{texts(x[place])}: {values.strip()}"
        chart.add("rect", "hover", tip=tip, x=edges[turn], y=chart.top, width=wide, height=chart.bottom - chart.top)
    return chart.markup()


def surface(
    names: tuple[str, str],
    grids: tuple[Sequence[str], Sequence[str]],
    values: np.ndarray,  # (G, H)
    limit: float,
    label: str,
    output: str,
) -> Markup:
    """Draw the joint effect of two columns as shades; the darkest is ``limit``, equal for all surfaces of a page."""
    chart = Chart((WIDTH, 306), (76.0, WIDTH - 12, 26.0, 232.0), label, (0, len(grids[0])), (0, len(grids[1])))
    wide, high = chart.x(1) - chart.left, chart.bottom - chart.y(1)
    for (i, j), value in np.ndenumerate(values):
        tip = f"{names[0]} = {grids[0][i]}, {names[1]} = {grids[1][j]}: {signed(float(value))}"
        shade, x, y = _shade(float(value) / limit), chart.x(i), chart.y(j + 1)
        chart.add("rect", shade, tip=tip, x=x, y=y, width=wide + 0.3, height=high + 0.3)
    for i in range(0, len(grids[0]), math.ceil(NAME_WIDTH / wide)):
        chart.text(chart.x(i + 0.5), chart.bottom + 16, cut(grids[0][i], 10), "tick", "middle")
    for j in range(0, len(grids[1]), math.ceil(NAME_HEIGHT / high)):
        chart.text(chart.left - 7, chart.y(j + 0.5) + 4, cut(grids[1][j], 10), "tick", "end")
    chart.text((chart.left + chart.right) / 2, chart.bottom + 34, cut(names[0], 40), "label", "middle")
    chart.text(2, 14, cut(names[1], 44))
    wide, top = (chart.right - chart.left) / (2 * SHADES + 1), chart.bottom + 50
    for place, step in enumerate(range(-SHADES, SHADES + 1)):
        chart.add("rect", _shade(step / SHADES), x=chart.left + wide * place, y=top, width=wide + 0.3, height=8)
    chart.text(chart.left, top + 22, signed(-limit), "tick")
    chart.text((chart.left + chart.right) / 2, top + 22, cut(f"added to {output}", 36), "tick", "middle")
    chart.text(chart.right, top + 22, signed(limit), "tick", "end")
    return chart.markup()


def predicted_observed(rows: Sequence[dict[str, Any]], name: str) -> Markup:
    """Rows as dots, predicted against observed, their intervals as lines; on the diagonal a prediction is right."""
    extent = padded([row[end] for row in rows for end in ("predicted", "observed")], 0.04)
    label = f"Predicted and observed {name} of {len(rows)} held-out rows"
    chart = Chart((WIDTH, 342), (58.0, WIDTH - 12, 26.0, 300.0), label, extent, extent)
    chart.axes(f"predicted {name}", f"observed {name}")
    chart.line(chart.left, chart.bottom, chart.right, chart.top, "dashed")
    for row in rows:
        across, low, high = chart.x(row["predicted"]), row.get("low"), row.get("high")
        tip, kind = f"predicted {short(row['predicted'])}, observed {short(row['observed'])}", "point"
        if low is not None and high is not None:
            outside = not low <= row["observed"] <= high
            kind += " out" if outside else ""
            tip += f", interval {short(low)} to {short(high)}{': outside' if outside else ''}"
            chart.line(across, chart.y(low), across, chart.y(high), "whisker faint")
        chart.add("circle", kind, tip=tip, cx=across, cy=chart.y(row["observed"]), r=3.2)
    return chart.markup()


def reliability(bins: Sequence[dict[str, Any]], label: str) -> Markup:
    """Reliability diagram: predicted against observed frequency, dot area = rows."""
    # Rare classes have small probabilities only.
    largest = max(bin_[end] for bin_ in bins for end in ("predicted", "observed"))
    end = 1.1 * largest if 0 < largest < 0.5 else 1.0
    chart = Chart((WIDTH, 342), (50.0, WIDTH - 16, 26.0, 300.0), label, (0.0, end), (0.0, end))
    chart.axes("predicted probability", "observed share")
    chart.line(chart.left, chart.bottom, chart.right, chart.top, "dashed")
    predicted, observed, rows = (np.array([bin_[key] for bin_ in bins]) for key in ("predicted", "observed", "rows"))
    chart.path(predicted, observed, "line s0")
    for said, true, count in zip(predicted, observed, rows, strict=True):
        tip = f"predicted {percent(said)}, observed {percent(true)} ({count:,} rows)"
        chart.add(
            "circle", "point", tip=tip, cx=chart.x(said), cy=chart.y(true), r=4 + 7 * math.sqrt(count / rows.max())
        )
    return chart.markup()


def _shade(share: float) -> str:
    """Class of the style sheet for a value between −1 and 1.

    >>> _shade(1.0), _shade(-0.5), _shade(0.02)
    ('d5', 'd-3', 'd0')
    """
    step = min(SHADES, math.floor(abs(share) * SHADES + 0.5))
    return f"d{'-' if share < 0 and step else ''}{step}"


def padded(values: Sequence[float], share: float = 0.05) -> tuple[float, float]:
    """The ends of some values with a little room, never the same.

    >>> padded([0.0, 10.0]), padded([2.0])
    ((-0.5, 10.5), (1.0, 3.0))
    """
    low, high = min(values), max(values)
    room = (high - low) * share or abs(high) / 2 or 1.0
    return low - room, high + room


def cut(text: str, length: int) -> str:
    """Text that fits a label.

    >>> cut("a name that is much too long", 12)
    'a name that…'
    """
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
