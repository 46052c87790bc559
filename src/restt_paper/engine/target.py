"""What the reproduction set out to reach, and whether it has."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from restt_paper.engine.cell import Cell
from restt_paper.engine.store import Store
from restt_paper.engine.table import FAILED, NOT_YET, Table, fixed

NOTE = (
    "Accuracies are of ResTT with r = 100 on the test images after the last epoch: the mean over ten seeds, or that of "
    "the ten models' mean output where it says average. The paper's are those of its best epochs on the test images. "
    "Where a target has several rows, each is one way to train that was tried; on which images it was chosen, and "
    "after which others had failed, stands with the improved recipes."
)
# A mean of exact accuracies is a binary fraction's hair off; further digits decide nothing.
NOISE_DIGITS = 9
Verdict = Literal["met", "missed", "not yet"]


@dataclass(frozen=True)
class Target:
    """A bound on one number of the paper profile's results. Experiments list theirs.

    Parameters
    ----------
    name : str
        What is bounded, and under which conditions. Targets of one name stand together: ways to reach the same.
    paper : str
        What the paper has there.
    kind : {"at least", "at most"}
    bound : float
    read : callable
        From a store the measured number; None where its results are not there yet, NaN or an infinity where they are
        and hold no such number (which misses the target).
    recipe : str
        The way that was tried, where there are several.
    unit : str
    digits : int
        Shown after the point.

    Examples
    --------
    >>> fast = Target("a step", "2 s", "at most", 1.0, lambda store: 1.25, unit="s")
    >>> fast.verdict(1.25), fast.verdict(0.5), fast.verdict(None), fast.verdict(math.inf)
    ('missed', 'met', 'not yet', 'missed')
    >>> Target("a step", "2 s", "at most", 1.0, lambda store: 1.001, unit="s").row(None)[-2:]
    ('1.001 s', 'missed')
    """

    name: str
    paper: str
    kind: Literal["at least", "at most"]
    bound: float
    read: Callable[[Store], float | None]
    recipe: str = "–"
    unit: str = "%"
    digits: int = 2

    def verdict(self, measured: float | None) -> Verdict:
        """Whether ``measured`` meets the bound."""
        if measured is None:
            return "not yet"
        measured = round(measured, NOISE_DIGITS)
        met = measured <= self.bound if self.kind == "at most" else measured >= self.bound
        return "met" if met and math.isfinite(measured) else "missed"

    def row(self, store: Store) -> tuple[str, ...]:
        """Name, recipe, paper, bound, measured, verdict."""
        measured = self.read(store)
        if measured is None:
            shown = NOT_YET
        elif math.isfinite(measured):
            shown = self._beside_the_bound(measured)
        else:
            shown = FAILED
        sign = "≤" if self.kind == "at most" else "≥"
        bound = f"{sign} {self._with_unit(self.bound)}"
        return self.name, self.recipe, self.paper, bound, shown, self.verdict(measured)

    def _beside_the_bound(self, measured: float) -> str:
        """With as many digits as it takes not to look like a bound that was missed by a hair."""
        digits = self.digits
        while self.verdict(measured) == "missed" and float(fixed(measured, digits)) == self.bound:
            digits += 1
        return self._with_unit(measured, digits)

    def _with_unit(self, value: float, digits: int | None = None) -> str:
        return f"{fixed(value, self.digits if digits is None else digits)} {self.unit}".rstrip()


def targets_table(targets: Iterable[tuple[Target, Store]]) -> Table:
    """All targets with their verdicts, a missed one as missed; those of one name stand together."""
    together: dict[str, list[tuple[str, ...]]] = {}
    for target, store in targets:
        together.setdefault(target.name, []).append(target.row(store))
    rows = tuple(row for same in together.values() for row in same)
    return Table("Targets", ("target", "recipe", "paper", "bound", "measured", "verdict"), rows, (NOTE,))


def total_wall_seconds(store: Store, cells: Iterable[Cell]) -> float | None:
    """Seconds that all ``cells`` took together; None while one is missing.

    >>> total_wall_seconds(Store(getfixture("tmp_path")), [Cell("table4", "mnist", {})]) is None
    True
    """
    files = [store.load(cell) for cell in cells]
    return None if None in files else sum(found["wall_seconds"] for found in files if found is not None)
