"""The shell of every page: one HTML file with its style and scripts inside, which asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from restt._common.version import __version__
from restt_app.pages.numbers import percent, seconds, short, signed

STYLE = "style.css"
SCRIPT = "page.js"


@dataclass(frozen=True)
class Cell:
    """An entry of a table: what is read, what it is sorted by, a remark beside it, and a class for its looks.

    ``better``, ``worse`` and ``same`` are marks that the style sheet draws as a sign beside the colour.
    """

    text: str
    value: float | str | None = None
    remark: str = ""
    kind: str = ""


@dataclass(frozen=True)
class DataTable:
    """A table that can be sorted by any column and scrolls inside its own frame."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bar:
    """A bar between two values, with a whisker and a remark."""

    name: str
    text: str
    start: float
    end: float
    ends: tuple[float, float] | None = None
    remark: str = ""


@dataclass(frozen=True)
class Bars:
    """Bars in the rows of a table, on one scale: names stay text at any width, and a screen reader reads a table."""

    caption: str
    rows: tuple[Bar, ...]

    @property
    def signed(self) -> bool:
        """Whether some bars go down."""
        return any(row.end < row.start for row in self.rows)

    def place(self, value: float) -> float:
        """Where a value lies, in hundredths of the width."""
        values = [end for row in self.rows for end in (row.start, row.end, *(row.ends or ()))]
        low, high = min(0.0, *values), max(0.0, *values)
        return round(100 * (value - low) / (high - low), 2) if high > low else 0.0


@dataclass(frozen=True)
class Drawing:
    """A chart or bars, the sentence below, and the numbers as a table."""

    title: str
    chart: Markup | Bars
    caption: str = ""
    numbers: DataTable | None = None


def environment(*packages: str) -> jinja2.Environment:
    """Templates of these packages before those of this one; everything that is put into them is escaped."""
    templates = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(name) for name in (*packages, "restt_app.pages")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.policies["json.dumps_kwargs"] = {"allow_nan": False, "ensure_ascii": False, "separators": (",", ":")}
    templates.filters.update(short=short, signed=signed, percent=percent, seconds=seconds)
    return templates


def render(template: str, context: dict[str, Any], *, packages: Sequence[str] = (), scripts: Sequence[str] = ()) -> str:
    """A whole page. ``scripts`` are further files of this package, run after the one of every page."""
    script = "\n".join(asset(name) for name in (SCRIPT, *scripts))
    shell = {
        "style": Markup(asset(STYLE)),
        "script": Markup(script),
        # Only this script may run, whatever else found its way into the page.
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "restt_version": __version__,
    }
    return environment(*packages).get_template(template).render(**context, **shell)


@cache
def asset(name: str) -> str:
    """A file of the templates' folder as it is."""
    return files("restt_app.pages").joinpath("templates", name).read_text(encoding="utf-8").strip()
