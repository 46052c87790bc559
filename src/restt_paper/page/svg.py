"""Drawing in SVG: scales, ticks, a canvas with axes. Colours are classes of the style sheet, so they follow the theme.

Text and attributes are escaped as they are added: names of columns come from anybody's table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from markupsafe import Markup

from restt_app.pages.numbers import short

# Characters are about this wide, in units of the drawing, at the style sheet's 12 units a line.
CHARACTER = 7.0
LONGEST_LABEL = 22


@dataclass(frozen=True)
class Scale:
    """From values to places between ``start`` and ``end``; with ``log`` by the values' logarithms.

    >>> Scale(0, 10, 100, 200)(5), Scale(1, 100, 0, 80, log=True)(10)
    (150.0, 40.0)
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Place of a value."""
        low, high, at = (math.log(part) if self.log else part for part in (self.low, self.high, value))
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values inside, about ``count`` of them."""
        if self.log:
            powers = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            return [10.0**power for power in powers]
        return round_ticks(self.low, self.high, count)


def round_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten between two ends.

    >>> round_ticks(0, 1, 5), round_ticks(-3, 12, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 5.0, 10.0])
    """
    if not high > low:
        return [low]
    rough = (high - low) / max(1, count)
    unit = 10.0 ** math.floor(math.log10(rough))
    step = unit * min((factor for factor in (1, 2, 5, 10) if factor * unit >= rough * 0.7), default=10)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def padded(values: Sequence[float], share: float = 0.05) -> tuple[float, float]:
    """The ends of some values with a little room, never the same.

    >>> padded([0.0, 10.0]), padded([2.0])
    ((-0.5, 10.5), (1.0, 3.0))
    """
    low, high = min(values), max(values)
    room = (high - low) * share or abs(high) / 2 or 1.0
    return low - room, high + room


def cut(text: str, length: int = LONGEST_LABEL) -> str:
    """Text that fits a label.

    >>> cut("a name that is much too long", 12)
    'a name that…'
    """
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


@dataclass
class Canvas:
    """A drawing of fixed size that grows to its place on the page. ``label`` is what a screen reader says of it."""

    width: float
    height: float
    label: str
    parts: list[Markup] = field(default_factory=list)

    def add(self, tag: str, text: str | None = None, tip: str | None = None, **attributes: Any) -> None:
        """One element. ``tip`` is shown when it is pointed at; ``class_`` is its class."""
        written = [
            Markup(' {}="{}"').format(name.rstrip("_").replace("_", "-"), _number(value))
            for name, value in attributes.items()
            if value is not None
        ]
        if tip is not None:
            written.append(Markup(' data-tip="{}"').format(tip))
        inside = Markup("") if text is None else Markup("{}").format(text)
        self.parts.append(Markup("<{0}{1}>{2}</{0}>").format(Markup(tag), Markup("").join(written), inside))

    def line(self, x1: float, y1: float, x2: float, y2: float, class_: str) -> None:
        """A straight line between two points."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)

    def text(self, x: float, y: float, text: str, class_: str = "label", anchor: str | None = None) -> None:
        """A text at a point."""
        self.add("text", text, x=x, y=y, class_=class_, text_anchor=anchor)

    def path(self, points: Sequence[tuple[float, float]], class_: str, *, closed: bool = False) -> None:
        """A line through points."""
        if points:
            steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            self.add("path", d=f"M{steps}{'Z' if closed else ''}", class_=class_)

    def x_axis(self, scale: Scale, bottom: float, top: float, label: str = "", texts: Any = short) -> None:
        """Ticks below, a faint line upward from each, and the name of what is shown."""
        ticks = _apart(scale.ticks(), scale, texts)
        for tick in ticks:
            self.line(scale(tick), top, scale(tick), bottom, "grid")
            self.text(scale(tick), bottom + 16, texts(tick), "tick", "middle")
        if label:
            self.text((scale.start + scale.end) / 2, bottom + 34, label, "label", "middle")

    def y_axis(self, scale: Scale, left: float, right: float, label: str = "", texts: Any = short) -> None:
        """Ticks on the left, a faint line from each, and the name above them, where it can be read straight."""
        for tick in scale.ticks(4):
            self.line(left, scale(tick), right, scale(tick), "grid")
            self.text(left - 7, scale(tick) + 4, texts(tick), "tick", "end")
        if label:
            self.text(2, 12, label, "label")

    def markup(self) -> Markup:
        """The drawing, to be put into a page."""
        return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            _number(self.width), _number(self.height), self.label, Markup("").join(self.parts)
        )


def _apart(ticks: list[float], scale: Scale, texts: Any) -> list[float]:
    """Every tick, or every second and so on, until their texts do not touch."""
    step = 1
    while step < len(ticks):
        kept = ticks[::step]
        wide = max(len(texts(tick)) for tick in kept) * CHARACTER + 6
        if all(abs(scale(b) - scale(a)) >= wide for a, b in pairwise(kept)):
            break
        step += 1
    return ticks[::step]


def _number(value: Any) -> Any:
    """Places to a tenth of a unit: enough to draw, and short."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
