"""The paper's claims that one model beats others on images, checked seed by seed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from restt_paper.cells import Cell
from restt_paper.claims import RULE, Claim
from restt_paper.image_reading import final_accuracies
from restt_paper.store import Store

# A lead that chance gives with at least this probability is a tie.
CHANCE = 0.05
# So are standard deviations within this factor of each other: ten seeds tell no more.
FACTOR = 2.0
NOTE = (
    f"By the final epoch. Accuracies are a tie unless Welch's t-test over the seeds tells them apart at "
    f"{100 * CHANCE:g} %, with no correction for the number of comparisons; standard deviations are one within a "
    f"factor of {FACTOR:g}. {RULE}"
)

Outcome = Literal["yes", "tie", "no"]


@dataclass(frozen=True)
class Duel:
    """Where (``of``) the first model meets the second; ``second`` is None for a model that cannot be built yet."""

    of: str
    first: Cell
    second: Cell | None


def more_accurate(store: Store, text: str, duels: Iterable[Duel]) -> Claim:
    """The first is clearly more accurate in every duel."""
    return _claim(store, text, duels, _lead, lambda values: f"{statistics.fmean(values):.2f}")


def steadier(store: Store, text: str, duels: Iterable[Duel]) -> Claim:
    """The first's seeds differ less in every duel."""
    return _claim(store, text, duels, _spread, lambda values: f"± {statistics.stdev(values):.2f}")


def _claim(
    store: Store,
    text: str,
    duels: Iterable[Duel],
    judge: Callable[[Sequence[float], Sequence[float]], Outcome],
    shown: Callable[[Sequence[float]], str],
) -> Claim:
    """A duel that was lost refutes the claim at once; what is missing leaves it open otherwise."""
    parts: dict[str, list[str]] = {"yes": [], "tie": [], "no": []}
    missing = 0
    for duel in duels:
        first = final_accuracies(store, duel.first)
        second = None if duel.second is None else final_accuracies(store, duel.second)
        if first is None or second is None:
            missing += 1
            continue
        parts[judge(first, second)].append(f"{duel.of} ({shown(first)} against {shown(second)})")
    fought = sum(map(len, parts.values()))
    if not fought:
        return Claim(text)
    told = [f"in {len(parts['yes'])} of {fought}"]
    told += [f"{word} {', '.join(parts[kind])}" for kind, word in (("tie", "tie:"), ("no", "not:")) if parts[kind]]
    if missing:
        told.append(f"{missing} not yet compared")
    refuted = bool(parts["tie"] or parts["no"])
    return Claim(text, "; ".join(told), False if refuted else None if missing else True)


def _lead(first: Sequence[float], second: Sequence[float]) -> Outcome:
    """
    >>> _lead([98.0], [90.0, 90.1])
    'tie'
    >>> _lead([98.0, 98.1], [90.0, 90.1]), _lead([98.0, 98.2], [98.0, 98.1]), _lead([90.0, 90.1], [98.0, 98.1])
    ('yes', 'tie', 'no')
    """
    from scipy.stats import ttest_ind

    lead = statistics.fmean(first) - statistics.fmean(second)
    if lead == 0 or min(len(first), len(second)) < 2:  # one seed tells nothing of chance
        return "tie"
    if statistics.pvariance(first) == 0 and statistics.pvariance(second) == 0:  # nothing to test: seeds do not differ
        return "yes" if lead > 0 else "no"
    if ttest_ind(first, second, equal_var=False).pvalue >= CHANCE:
        return "tie"
    return "yes" if lead > 0 else "no"


def _spread(first: Sequence[float], second: Sequence[float]) -> Outcome:
    """
    >>> _spread([98.0, 98.1], [90.0, 95.0]), _spread([98.0, 98.2], [97.8, 98.0]), _spread([90.0, 95.0], [98.0, 98.1])
    ('yes', 'tie', 'no')
    """
    ours, theirs = statistics.stdev(first), statistics.stdev(second)
    if max(ours, theirs) <= FACTOR * min(ours, theirs):
        return "tie"
    return "yes" if ours < theirs else "no"
