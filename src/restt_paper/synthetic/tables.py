"""The synthetic figure as tables, and whether the paper's sentences about it hold."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from restt_paper.engine.table import NOT_YET, Table, fixed, mean_std, number
from restt_paper.engine.verdict import RULE, Claim, Comparison, Outcome, claims_table, judged, larger

NAMES = {"restt": "ResTT", "tt": "TT", "lr": "LR"}
# Least squares has no initialisation to repeat: its error is one number.
EXACT = "lr"
REVERSED: Mapping[Outcome, Outcome] = {"yes": "no", "no": "yes", "tie": "tie"}
WHERE = ("N(0, ·) gives the", "training rows", "d")
# Repeats share one data set, so their spread leaves out that of its rows: differences below this share of the target's
# standard deviation decide nothing, and errors below it are none.
NEGLIGIBLE = 0.01
# Training errors this many times below the test error are overfitting, not lack of capacity.
OVERFIT = 2.0


@dataclass(frozen=True)
class Errors:
    """Results of all models on one data set.

    N(0, ·) read as ``reading``, training rows, d, and each model's result, None where it is absent.
    """

    reading: str
    rows: int
    d: int
    results: Mapping[str, Mapping[str, Any] | None]

    @property
    def complete(self) -> bool:
        """Whether every model's results are there."""
        return all(result is not None for result in self.results.values())

    def __getitem__(self, model: str) -> Mapping[str, Any]:
        """The model's result, which must be there."""
        found = self.results[model]
        assert found is not None
        return found

    @property
    def target_std(self) -> float | None:
        """Of the test rows: the error of a model that answers 0. None while nothing is there."""
        stds = [float(result["target_std"]) for result in self.results.values() if result is not None]
        return stds[0] if stds else None

    def mean(self, model: str, kind: str = "selected") -> float | None:
        """Mean error over repeats, in units of y; None where one of them failed or all are still missing."""
        result = self.results[model]
        if result is None or None in result[kind]:
            return None
        return statistics.fmean(result[kind])

    def least(self, model: str) -> float:
        """The smallest error the model can have, in units of the target's standard deviation over all rows."""
        result = self[model]
        return float(result["least_rmse"]) / math.sqrt(sum(result["order_variances"]))

    def verdict(self, better: str, worse: str) -> Outcome:
        """Whether ``better`` has the smaller selected error.

        >>> measured = {"restt": [0.5, 0.6], "lr": [0.51]}
        >>> results = {name: {"selected": errors, "target_std": 1.0} for name, errors in measured.items()}
        >>> Errors("std", 100, 1, results).verdict("restt", "lr")
        'tie'
        """
        if self.mean(better) is None or self.mean(worse) is None:
            return "not yet"
        ours, theirs = self[better]["selected"], self[worse]["selected"]
        unit = self.target_std
        if unit and abs(statistics.fmean(ours) - statistics.fmean(theirs)) < NEGLIGIBLE * unit:
            return "tie"
        if worse == EXACT:
            return REVERSED[larger(ours, theirs[0])]
        return larger(theirs, ours[0] if better == EXACT else ours)

    def leads(self, better: str, worse: str) -> list[float] | None:
        """By how much ``better`` is in front in units of y, repeat by repeat, which begin alike; None where unknown."""
        if self.mean(better) is None or self.mean(worse) is None:
            return None
        ours, theirs = self[better]["selected"], self[worse]["selected"]
        return [them - us for us, them in zip(ours, theirs * len(ours) if worse == EXACT else theirs, strict=True)]


def errors(found: Sequence[Errors]) -> Table:
    """RMSE in units of y, mean ± std over repeats: after the last epoch, and at the epoch chosen on held-out rows."""
    columns = (
        *WHERE,
        "std of y",
        "ResTT, selected",
        "TT, selected",
        "LR",
        "ResTT, final",
        "TT, final",
        "rate ResTT / TT",
    )
    rows = []
    for one in found:
        selected = [_over_repeats(one, model, "selected") for model in NAMES]
        final = [_over_repeats(one, model, "final") for model in ("restt", "tt")]
        rates = " / ".join(_rate(one, model) for model in ("restt", "tt"))
        unit = one.target_std
        rows.append((*_where(one), NOT_YET if unit is None else number(unit, 4), *selected, *final, rates))
    notes = (
        "A tenth of the training rows is held out: the rate is the one of the paper's three with the lowest error on "
        "them, the selected epoch likewise; final is the last epoch at that rate.",
        "Repeats are initialisations on the same data; LR is least squares and has none.",
    )
    return Table("Synthetic figure: test RMSE", columns, tuple(rows), notes, details=True)


def in_target_units(found: Sequence[Errors]) -> Table:
    """The selected errors in units of the target's spread, the smallest possible ones, and the paper's order."""
    columns = (
        *WHERE,
        "share of orders 1, 2, 3",
        *NAMES.values(),
        *(f"least possible {name}" for name in NAMES.values()),
        "ResTT < TT",
        "TT < LR",
        "ResTT < LR",
    )
    rows = []
    for one in found:
        measured = [_in_units(one, model) for model in NAMES]
        least = [_least(one, model) for model in NAMES]
        verdicts = [one.verdict(*pair) for pair in (("restt", "tt"), ("tt", "lr"), ("restt", "lr"))]
        rows.append((*_where(one), _shares(one), *measured, *least, *verdicts))
    notes = (
        "1 is what a model that always answers 0 has. The least possible error follows from the true weights and is a "
        "mean over all rows there could be, so a test set may be a little below it: LR lacks orders 2 and 3, TT orders "
        "1 and 2, and r may be too small for the order-3 tensor (for ResTT a bound that need not be reached).",
        f"{RULE} The repeats share one data set, so here a difference below {NEGLIGIBLE:g} is a tie too.",
        *_why(found),
    )
    return Table("Synthetic figure: selected RMSE / std of y", columns, tuple(rows), notes, details=True)


def summary(measured: Sequence[Errors]) -> Table:
    """Selected errors in units of the target's spread, one row per reading of N(0, ·) and number of rows."""
    rows = []
    for (reading, count), group in groupby(measured, key=lambda errors: (errors.reading, errors.rows)):
        entries = [" / ".join(_in_units(errors, model) for model in NAMES) for errors in group]
        rows.append((reading, str(count), *entries))
    columns = (*WHERE[:2], *(f"d = {d}" for d in _widths(measured)))
    note = "ResTT / TT / LR; 1 is the error of a model that always answers 0."
    return Table("Synthetic figure: RMSE / std of y", columns, tuple(rows), (note,))


def claims(found: Sequence[Errors]) -> Table:
    """The paper's three sentences (Sec. V-A), each over all data sets."""
    sentences = (
        ("TT performs better than LR", "tt", "lr"),
        ("ResTT performs better than TT", "restt", "tt"),
    )
    checked = [_order_claim(text, better, worse, found) for text, better, worse in sentences]
    for worse in ("tt", "lr"):
        checked.append(_growth_claim(worse, found))
    return claims_table("Synthetic figure: the paper's claims", checked, ("By the selected errors.", RULE))


def _order_claim(text: str, better: str, worse: str, found: Sequence[Errors]) -> Claim:
    return judged(text, [Comparison(_listed([one]), one.verdict(better, worse)) for one in found])


def _growth_claim(worse: str, found: Sequence[Errors]) -> Claim:
    text = f"the lead of ResTT over {NAMES[worse]} grows with d"
    parts, steps = [], []
    for (reading, rows), group in groupby(found, key=lambda one: (one.reading, one.rows)):
        curve = [(one.d, one.leads("restt", worse)) for one in group]
        known = [(d, leads) for d, leads in curve if leads is not None]
        if len(known) < len(curve):
            return Claim(text)
        parts.append(f"{reading}, {rows} rows: " + " ".join(f"{statistics.fmean(leads):.3g}" for _, leads in known))
        steps += [larger(after, before) for (_, before), (_, after) in pairwise(known)]
    widths = ", ".join(str(d) for d in _widths(found))
    told = f"in {steps.count('yes')} of {len(steps)} steps; lead in units of y at d = {widths}: {'; '.join(parts)}"
    return Claim(text, told, all(step == "yes" for step in steps))


def _why(found: Iterable[Errors]) -> list[str]:
    """What keeps ResTT from fitting, as far as the results show it."""
    known = [one for one in found if one.results["restt"] is not None]
    notes = []
    overfit = [one for one in known if _overfit(one) > OVERFIT]
    if overfit:
        worst = max(overfit, key=_overfit)
        result, unit = worst["restt"], worst.target_std or 1.0
        notes.append(
            f"Too few rows: after the last epoch ResTT's error on new rows is more than {OVERFIT:g} times that on its "
            f"training rows at {_listed(overfit)}; most at {_listed([worst])}, "
            f"{fixed(statistics.fmean(result['final']) / unit, 2)} against "
            f"{fixed(statistics.fmean(result['training_rmse']) / unit, 2)} of the target's spread."
        )
    small = [one for one in known if one.least("restt") > NEGLIGIBLE]
    if small:
        widest = max(small, key=lambda one: one.d)
        notes.append(
            f"Too small a bond: for d = {', '.join(str(d) for d in _widths(small))} no number of rows would be enough, "
            f"since the d × d × d weights have full rank; at d = {widest.d} at least {fixed(widest.least('restt'), 2)} "
            "of the spread remains."
        )
    return notes


def _overfit(one: Errors) -> float:
    """ResTT's final error on new rows over that on its training rows; 0 where a repeat failed or both are rounding."""
    new, old, unit = one.mean("restt", "final"), one.mean("restt", "training_rmse"), one.target_std
    if new is None or old is None or unit is None or new < NEGLIGIBLE * unit:
        return 0.0
    return new / old


def _where(one: Errors) -> tuple[str, str, str]:
    return one.reading, str(one.rows), str(one.d)


def _listed(found: Iterable[Errors]) -> str:
    """Data sets by reading and rows, with their widths together."""
    parts = []
    for (reading, rows), group in groupby(found, key=lambda one: (one.reading, one.rows)):
        parts.append(f"d = {', '.join(str(one.d) for one in group)} ({reading}, {rows} rows)")
    return "; ".join(parts)


def _widths(found: Iterable[Errors]) -> list[int]:
    return sorted({one.d for one in found})


def _over_repeats(one: Errors, model: str, kind: str) -> str:
    result = one.results[model]
    return NOT_YET if result is None else mean_std(result[kind], 4)


def _rate(one: Errors, model: str) -> str:
    result = one.results[model]
    return NOT_YET if result is None else f"{result['lr']:g}"


def _in_units(one: Errors, model: str) -> str:
    unit = one.target_std
    if one.results[model] is None or unit is None:
        return NOT_YET
    error = one.mean(model)
    return number(None if error is None else error / unit, 3)


def _least(one: Errors, model: str) -> str:
    return NOT_YET if one.results[model] is None else number(one.least(model), 3)


def _shares(one: Errors) -> str:
    found = next((result for result in one.results.values() if result is not None), None)
    if found is None:
        return NOT_YET
    total = sum(found["order_variances"])
    return ", ".join(f"{fixed(100 * part / total, 0)} %" for part in found["order_variances"])
