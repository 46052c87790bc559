"""What the paper says in words, whether the measurements bear it out, and the one rule for ties.

A difference counts only where a test at :data:`CHANCE` tells it from chance. Which test depends on what was repeated:
independent seeds, splits of one table that share rows, or the spread of seeds itself.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from restt_paper.engine.table import NOT_YET, Table, fixed

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

Outcome = Literal["yes", "tie", "no", "not yet", "not comparable"]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper beside what was measured.

    ``holds`` is None where that is not there yet, or where what was measured does not decide it.

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


@dataclass(frozen=True)
class Comparison:
    """Whether the first is ahead of the second in one place (``of``), and the numbers or the reason in words."""

    of: str
    outcome: Outcome
    told: str = ""


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
    found: dict[Outcome, list[str]] = {"yes": [], "tie": [], "no": [], "not yet": [], "not comparable": []}
    for one in comparisons:
        found[one.outcome].append(f"{one.of} ({one.told})" if one.told else one.of)
    compared = len(found["yes"]) + len(found["tie"]) + len(found["no"])
    if not compared and not found["not comparable"]:
        return Claim(text)
    told = [f"in {len(found['yes'])} of {compared}"]
    words: tuple[tuple[Outcome, str], ...] = (("tie", "tie"), ("no", "not"), ("not comparable", "not comparable"))
    told += [f"{word}: {', '.join(found[outcome])}" for outcome, word in words if found[outcome]]
    if found["not yet"]:
        told.append(f"{len(found['not yet'])} not yet compared")
    measured = "; ".join(told)
    if found["tie"] or found["no"]:
        return Claim(text, measured, False)
    if found["not yet"]:
        return Claim(text, measured)
    return Claim(text, measured, None, "open") if found["not comparable"] else Claim(text, measured, True)


def larger(first: Sequence[float], second: Sequence[float] | float) -> Outcome:
    """Whether the seeds of ``first`` have the larger mean, by Welch's t-test.

    ``second`` is one number where nothing random is in it. One seed of something random tells nothing.

    >>> larger([98.0], [90.0, 90.1]), larger([98.0, 98.1], 90.0)
    ('tie', 'yes')
    >>> larger([98.0, 98.1], [90.0, 90.1]), larger([98.0, 98.2], [98.0, 98.1]), larger([90.0, 90.1], [98.0, 98.1])
    ('yes', 'tie', 'no')
    """
    exact = isinstance(second, (int, float))
    others = [float(second)] if isinstance(second, (int, float)) else list(second)
    lead = statistics.fmean(first) - statistics.fmean(others)
    if len(first) < 2 or (len(others) < 2 and not exact):
        return "tie"
    # Of each mean, its variance and what that is known by.
    known = [(statistics.variance(values) / len(values), len(values) - 1) for values in (first, others) if values[1:]]
    variance = sum(of_mean for of_mean, _ in known)
    if variance <= (ROUNDING * max(map(abs, (*first, *others)))) ** 2:  # nothing to test
        return _sign(lead)
    freedom = variance**2 / sum(of_mean**2 / degrees for of_mean, degrees in known)
    return _t_test(lead, variance, freedom)


def larger_on_splits(first: Sequence[float], second: Sequence[float], test_share: float) -> Outcome:
    """The same of scores on the same random splits, whose training and test parts overlap from split to split.

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


def narrower(first: Sequence[float], second: Sequence[float]) -> Outcome:
    """Whether the seeds of ``first`` spread less, by the F-test; with ten seeds each a factor of two is clear.

    >>> calm, wild = [98.0, 98.1, 98.2, 98.3, 98.4], [90.0, 95.0, 92.0, 97.0, 93.0]
    >>> narrower(calm, wild), narrower(calm, [value - 1 for value in calm]), narrower(wild, calm)
    ('yes', 'tie', 'no')
    """
    from scipy.stats import f

    if min(len(first), len(second)) < 2:
        return "tie"
    ours, theirs = statistics.variance(first), statistics.variance(second)
    if ours == theirs:
        return "tie"
    wider, calmer = max(ours, theirs), min(ours, theirs)
    counts = (len(second), len(first)) if theirs > ours else (len(first), len(second))
    chance = 0.0 if calmer == 0 else 2 * float(f.sf(wider / calmer, counts[0] - 1, counts[1] - 1))
    return _unless_chance(theirs - ours, chance)


def compare_spreads(of: str, first: Sequence[float], second: Sequence[float], untrained: float) -> Comparison:
    """Whether the first seeds' accuracies differ less, which says nothing where a mean is below ``untrained``.

    >>> compare_spreads("here", [98.0, 98.1], [9.0, 10.0], untrained=20.0)
    Comparison(of='here', outcome='not comparable', told='a mean of 9.50 % is no training')
    """
    lowest = min(statistics.fmean(first), statistics.fmean(second))
    if lowest < untrained:
        return Comparison(of, "not comparable", f"a mean of {fixed(lowest, 2)} % is no training")
    if min(len(first), len(second)) < 2:
        return Comparison(of, "tie", "one seed")
    outcome = narrower(first, second)
    spreads = f"± {fixed(statistics.stdev(first), 2)} against ± {fixed(statistics.stdev(second), 2)}"
    return Comparison(of, outcome, "" if outcome == "yes" else spreads)


def claims_table(title: str, claims: Iterable[Claim], notes: tuple[str, ...] = ()) -> Table:
    """One row per claim."""
    return Table(title, ("the paper's claim", "measured", "verdict"), tuple(claim.row() for claim in claims), notes)


def _t_test(lead: float, variance: float, freedom: float) -> Outcome:
    from scipy.stats import t as student

    return _unless_chance(lead, 2 * float(student.sf(abs(lead) / math.sqrt(variance), freedom)))


def _unless_chance(lead: float, chance: float) -> Outcome:
    return "tie" if chance >= CHANCE else _sign(lead)


def _sign(lead: float) -> Outcome:
    return "tie" if lead == 0 else "yes" if lead > 0 else "no"
