"""Verdicts: claims of the paper, targets of the reproduction, and the one rule for ties.

A difference counts only where a test at :data:`CHANCE` tells it from chance. Which test depends on what was repeated:
independent seeds, splits of one table that share rows, or the spread of seeds itself.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from restt_paper.table import FAILED, NO_NUMBER, NOT_YET, Table, fixed

if TYPE_CHECKING:
    from restt_paper.experiments import Store

# A lead that chance gives with at least this probability is a tie.
CHANCE = 0.05
# Standard errors below this share of the numbers themselves are rounding.
ROUNDING = 1e-14
RULE = (
    f"A difference counts where a test tells it from chance at {100 * CHANCE:g} %, else it is a tie: Welch's t-test "
    "over the seeds, the t-test for splits that share rows (Nadeau and Bengio, 2003), the F-test for standard "
    "deviations; nothing is corrected for the number of comparisons. A claim holds only if it does in every "
    "comparison; a tie is enough for it not to hold, and what cannot be compared leaves it open."
)
CLAIM_COLUMNS = ("the paper's claim", "measured", "verdict")
TARGET_COLUMNS = ("target", "recipe", "paper", "bound", "measured", "verdict")
TARGETS_NOTE = (
    "Accuracies are of ResTT with r = 100 on the test images after the last epoch: the mean over ten seeds, or that of "
    "the ten models' mean output where it says average. The paper's are those of its best epochs on the test images."
)
BEST_NOTE = "Of several recipes the best stands here; those that missed are on the page of what was missed."
# Rounding of a mean of exact accuracies; further digits decide nothing.
NOISE_DIGITS = 9

Outcome = Literal["yes", "tie", "no", "not yet", "not comparable"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper beside our measurement.

    ``holds`` is None where results are missing, or where they do not decide it (``open``).

    >>> Claim("ResTT needs 20 epochs", "12 epochs", True).row()
    ('ResTT needs 20 epochs', '12 epochs', 'holds')
    >>> Claim("ResTT needs 20 epochs").row()
    ('ResTT needs 20 epochs', 'not yet', 'not yet')
    """

    text: str
    measured: str = NOT_YET
    holds: bool | None = None
    undecided: Literal["not yet", "open"] = "not yet"

    def row(self) -> tuple[str, str, str]:
        """Claim, measured, verdict."""
        return self.text, self.measured, {None: self.undecided, True: "holds", False: "does not hold"}[self.holds]


def claims_table(title: str, claims: Iterable[Claim], notes: tuple[str, ...] = ()) -> Table:
    """One row per claim."""
    return Table(f"{title}: the paper's claims", CLAIM_COLUMNS, tuple(c.row() for c in claims), notes, details=True)


@dataclass(frozen=True)
class Comparison:
    """Whether the first is ahead of the second in one place (``of``), and the numbers or the reason in words."""

    of: str
    outcome: Outcome
    reason: str = ""


def judged(text: str, comparisons: Iterable[Comparison]) -> Claim:
    """The claim that the first is ahead everywhere. One lost comparison refutes it, whatever is missing.

    >>> won, tied = Comparison("MNIST", "yes"), Comparison("digits", "tie", "98.1 against 98.0")
    >>> judged("a beats b", [won]).row()
    ('a beats b', 'in 1 of 1', 'holds')
    >>> judged("a beats b", [won, tied, Comparison("ALE", "not yet")]).row()[1:]
    ('in 1 of 2; tie: digits (98.1 against 98.0); 1 not yet compared', 'does not hold')
    >>> judged("a beats b", [won, Comparison("ALE", "not comparable", "b does not train")]).row()[1:]
    ('in 1 of 1; not comparable: ALE (b does not train)', 'open')
    """
    places: dict[Outcome, list[str]] = {"yes": [], "tie": [], "no": [], "not yet": [], "not comparable": []}
    for comparison in comparisons:
        reason = f" ({comparison.reason})" if comparison.reason else ""
        places[comparison.outcome].append(comparison.of + reason)
    compared = len(places["yes"]) + len(places["tie"]) + len(places["no"])
    if not compared and not places["not comparable"]:
        return Claim(text)
    parts = [f"in {len(places['yes'])} of {compared}"]
    words: tuple[tuple[Outcome, str], ...] = (("tie", "tie"), ("no", "not"), ("not comparable", "not comparable"))
    parts += [f"{word}: {', '.join(places[outcome])}" for outcome, word in words if places[outcome]]
    if places["not yet"]:
        parts.append(f"{len(places['not yet'])} not yet compared")
    measured = "; ".join(parts)
    if places["tie"] or places["no"]:
        return Claim(text, measured, False)
    if places["not yet"]:
        return Claim(text, measured)
    return Claim(text, measured, None, "open") if places["not comparable"] else Claim(text, measured, True)


def larger(first: Sequence[float], second: Sequence[float] | float) -> Outcome:
    """Whether the seeds of ``first`` have the larger mean, by Welch's t-test.

    ``second`` is one number where nothing random is in it. One seed of something random says nothing.

    >>> larger([98.0], [90.0, 90.1]), larger([98.0, 98.1], 90.0)
    ('tie', 'yes')
    >>> larger([98.0, 98.1], [90.0, 90.1]), larger([98.0, 98.2], [98.0, 98.1]), larger([90.0, 90.1], [98.0, 98.1])
    ('yes', 'tie', 'no')
    """
    others = [float(second)] * 2 if isinstance(second, (int, float)) else list(second)
    if min(len(first), len(others)) < 2:
        return "tie"
    lead = statistics.fmean(first) - statistics.fmean(others)
    spread = max(statistics.pstdev(first), statistics.pstdev(others))
    if spread <= ROUNDING * max(map(abs, (*first, *others))):  # nothing to test
        return _sign(lead)
    from scipy.stats import ttest_ind_from_stats

    of_each = [(statistics.fmean(values), statistics.stdev(values), len(values)) for values in (first, others)]
    return _unless_chance(lead, float(ttest_ind_from_stats(*of_each[0], *of_each[1], equal_var=False).pvalue))


def larger_on_splits(first: Sequence[float], second: Sequence[float], test_share: float) -> Outcome:
    """Whether ``first`` scores higher on the same random splits, whose parts overlap from split to split.

    The variance of the mean difference is taken (1/J + test/training) times that of a difference, not 1/J times: C.
    Nadeau, Y. Bengio, "Inference for the generalization error" (2003).

    >>> ahead = [0.80, 0.84, 0.86, 0.82]
    >>> larger_on_splits(ahead, [0.70, 0.75, 0.76, 0.71], test_share=0.3)
    'yes'
    >>> larger_on_splits(ahead, [0.79, 0.86, 0.83, 0.82], test_share=0.3)
    'tie'
    """
    differences = [ours - theirs for ours, theirs in zip(first, second, strict=True)]
    count = len(differences)
    if count < 2:
        return "tie"
    lead = statistics.fmean(differences)
    variance = statistics.variance(differences) * (1 / count + test_share / (1 - test_share))
    if variance <= (ROUNDING * max(map(abs, (*first, *second)))) ** 2:  # the same difference on every split
        return _sign(round(lead, 12))
    return _t_test(lead, variance, count - 1)


def compare_spreads(of: str, first: Sequence[float], second: Sequence[float], untrained: float) -> Comparison:
    """Whether the first seeds spread less, by the F-test; says nothing where a mean is below ``untrained``.

    >>> compare_spreads("here", [98.0, 98.1], [9.0, 10.0], untrained=20.0)
    Comparison(of='here', outcome='not comparable', reason='a mean of 9.50 % is no training')
    >>> calm, wild = [98.0, 98.1, 98.2, 98.3, 98.4], [90.0, 95.0, 92.0, 97.0, 93.0]
    >>> [compare_spreads("", *pair, 0.0).outcome for pair in ((calm, wild), (calm, calm), (wild, calm))]
    ['yes', 'tie', 'no']
    """
    lowest = min(statistics.fmean(first), statistics.fmean(second))
    if lowest < untrained:
        return Comparison(of, "not comparable", f"a mean of {fixed(lowest)} % is no training")
    if min(len(first), len(second)) < 2:
        return Comparison(of, "tie", "one seed")
    from scipy.stats import f

    ours, theirs = statistics.variance(first), statistics.variance(second)
    wider, narrower = (first, second) if ours > theirs else (second, first)
    low, high = sorted((ours, theirs))
    chance = 2 * float(f.sf(high / low, len(wider) - 1, len(narrower) - 1)) if low else 0.0
    outcome = _unless_chance(theirs - ours, chance)
    spreads = f"± {fixed(statistics.stdev(first))} against ± {fixed(statistics.stdev(second))}"
    return Comparison(of, outcome, "" if outcome == "yes" else spreads)


def _t_test(lead: float, variance: float, freedom: float) -> Outcome:
    from scipy.stats import t as student

    return _unless_chance(lead, 2 * float(student.sf(abs(lead) / math.sqrt(variance), freedom)))


def _unless_chance(lead: float, chance: float) -> Outcome:
    return "tie" if chance >= CHANCE else _sign(lead)


def _sign(lead: float) -> Outcome:
    return "tie" if lead == 0 else "yes" if lead > 0 else "no"


@dataclass(frozen=True)
class Target:
    """A bound on one number of the paper profile's results. Experiments list theirs.

    ``name`` is the bounded number with its conditions; targets of one name stand together, several recipes for one
    bound. ``read`` gives the measured number from a store: None where its results are missing, NaN or an infinity where
    they hold no such number, which misses the target.

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
    recipe: str = NO_NUMBER
    unit: str = "%"
    digits: int = 2

    def verdict(self, measured: float | None) -> Literal["met", "missed", "not yet"]:
        """Whether ``measured`` meets the bound."""
        if measured is None:
            return "not yet"
        measured = round(measured, NOISE_DIGITS)
        met = measured <= self.bound if self.kind == "at most" else measured >= self.bound
        return "met" if met and math.isfinite(measured) else "missed"

    def row(self, store: Store) -> tuple[str, ...]:
        """Name, recipe, paper, bound, measured, verdict."""
        measured, digits = self.read(store), self.digits
        verdict = self.verdict(measured)
        if measured is None:
            shown = NOT_YET
        elif math.isfinite(measured):
            # A number that narrowly misses the bound must not look like it.
            while verdict == "missed" and float(fixed(measured, digits)) == self.bound:
                digits += 1
            shown = f"{fixed(measured, digits)} {self.unit}"
        else:
            shown = FAILED
        sign = "≤" if self.kind == "at most" else "≥"
        return (
            self.name,
            self.recipe,
            self.paper,
            f"{sign} {fixed(self.bound, self.digits)} {self.unit}",
            shown,
            verdict,
        )


def targets_table(rows: Iterable[tuple[str, ...]]) -> Table:
    """Rows of targets as a table; those of one name stand together."""
    by_name: dict[str, list[tuple[str, ...]]] = {}
    for row in rows:
        by_name.setdefault(row[0], []).append(row)
    grouped = tuple(row for same in by_name.values() for row in same)
    return Table("Targets", TARGET_COLUMNS, grouped, (TARGETS_NOTE,))


def best_per_target(table: Table) -> Table:
    """One row per target: a recipe that met it, else the one that came last."""
    best: dict[str, tuple[str, ...]] = {}
    for row in table.rows:
        if row[0] not in best or best[row[0]][-1] != "met":
            best[row[0]] = row
    return replace(table, rows=tuple(best.values()), notes=(*table.notes, BEST_NOTE))
