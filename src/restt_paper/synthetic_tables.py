"""The synthetic figure as tables, and whether the paper's sentences about it hold."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise

from restt_paper.claims import Claim, claims_table
from restt_paper.synthetic_reading import TIE, Case
from restt_paper.tables import NOT_YET, Table, mean_std, number

NAMES = {"restt": "ResTT", "tt": "TT", "lr": "LR"}
WHERE = ("N(0, ·) gives the", "training rows", "d")
# Training errors this many times below the test error are overfitting, not lack of capacity.
OVERFIT = 2.0


def errors(cases: Sequence[Case]) -> Table:
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
    for case in cases:
        selected = [_over_repeats(case, model, "selected") for model in NAMES]
        final = [_over_repeats(case, model, "final") for model in ("restt", "tt")]
        rates = " / ".join(_rate(case, model) for model in ("restt", "tt"))
        unit = case.target_std
        rows.append((*_where(case), NOT_YET if unit is None else number(unit, 4), *selected, *final, rates))
    notes = (
        "A tenth of the training rows is held out: the rate is the one of the paper's three with the lowest error on "
        "them, the selected epoch likewise; final is the last epoch at that rate.",
        "Repeats are initialisations on the same data; LR is least squares and has none.",
    )
    return Table("Synthetic figure: test RMSE", columns, tuple(rows), notes)


def in_target_units(cases: Sequence[Case]) -> Table:
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
    for case in cases:
        measured = [_in_units(case, model) for model in NAMES]
        least = [_least(case, model) for model in NAMES]
        verdicts = [case.verdict(*pair) for pair in (("restt", "tt"), ("tt", "lr"), ("restt", "lr"))]
        rows.append((*_where(case), _shares(case), *measured, *least, *(NOT_YET if v == "?" else v for v in verdicts)))
    notes = (
        "1 is what a model that always answers 0 has. The least possible error follows from the true weights and is a "
        "mean over all rows there could be, so a test set may be a little below it: LR lacks orders 2 and 3, TT orders "
        "1 and 2, and r may be too small for the order-3 tensor (for ResTT a bound that need not be reached).",
        f"A difference below {TIE:g} is a tie.",
        *_why(cases),
    )
    return Table("Synthetic figure: selected RMSE / std of y", columns, tuple(rows), notes)


def claims(cases: Sequence[Case]) -> Table:
    """The paper's three sentences (Sec. V-A), each over all data sets."""
    sentences = (
        ("TT performs better than LR", "tt", "lr"),
        ("ResTT performs better than TT", "restt", "tt"),
    )
    checked = [_order_claim(text, better, worse, cases) for text, better, worse in sentences]
    for worse in ("tt", "lr"):
        checked.append(_growth_claim(worse, cases))
    return claims_table("Synthetic figure: the paper's claims", checked, ("By the selected errors.",))


def _order_claim(text: str, better: str, worse: str, cases: Sequence[Case]) -> Claim:
    verdicts = [case.verdict(better, worse) for case in cases]
    if "?" in verdicts:
        return Claim(text)
    parts = [f"in {verdicts.count('yes')} of {len(cases)} data sets"]
    for verdict, word in (("tie", "ties at"), ("no", "not at")):
        which = [case for case, found in zip(cases, verdicts, strict=True) if found == verdict]
        if which:
            parts.append(f"{word} {_listed(which)}")
    return Claim(text, "; ".join(parts), all(verdict == "yes" for verdict in verdicts))


def _growth_claim(worse: str, cases: Sequence[Case]) -> Claim:
    text = f"the lead of ResTT over {NAMES[worse]} grows with d"
    parts, holds = [], True
    for (reading, rows), group in groupby(cases, key=lambda case: (case.reading, case.rows)):
        curve = list(group)
        means = [(case.mean("restt"), case.mean(worse)) for case in curve]
        leads = [theirs - ours for ours, theirs in means if ours is not None and theirs is not None]
        if len(leads) < len(curve):
            return Claim(text)
        parts.append(f"{reading}, {rows} rows: " + " ".join(f"{lead:.3g}" for lead in leads))
        holds &= all(after > before for before, after in pairwise(leads))
    return Claim(
        text, f"lead in units of y at d = {', '.join(str(d) for d in _widths(cases))}: {'; '.join(parts)}", holds
    )


def _why(cases: Iterable[Case]) -> list[str]:
    """What keeps ResTT from fitting, as far as the results show it."""
    known = [case for case in cases if case.results["restt"] is not None]
    notes = []
    overfit = [case for case in known if _overfit(case) > OVERFIT]
    if overfit:
        worst = max(overfit, key=_overfit)
        result, unit = worst["restt"], worst.target_std or 1.0
        notes.append(
            f"Too few rows: after the last epoch ResTT's error on new rows is more than {OVERFIT:g} times that on its "
            f"training rows at {_listed(overfit)}; most at {_listed([worst])}, "
            f"{statistics.fmean(result['final']) / unit:.2f} against "
            f"{statistics.fmean(result['training_rmse']) / unit:.2f} of the target's spread."
        )
    small = [case for case in known if case.least("restt") > TIE]
    if small:
        widest = max(small, key=lambda case: case.d)
        notes.append(
            f"Too small a bond: for d = {', '.join(str(d) for d in _widths(small))} no number of rows would be enough, "
            f"since the d × d × d weights have full rank; at d = {widest.d} at least {widest.least('restt'):.2f} of "
            "the spread remains."
        )
    return notes


def _overfit(case: Case) -> float:
    """ResTT's final error on new rows over that on its training rows; 0 where a repeat failed or both are rounding."""
    new, old, unit = case.mean("restt", "final"), case.mean("restt", "training_rmse"), case.target_std
    if new is None or old is None or unit is None or new < TIE * unit:
        return 0.0
    return new / old


def _where(case: Case) -> tuple[str, str, str]:
    return case.reading, str(case.rows), str(case.d)


def _listed(cases: Iterable[Case]) -> str:
    """Data sets by reading and rows, with their widths together."""
    parts = []
    for (reading, rows), group in groupby(cases, key=lambda case: (case.reading, case.rows)):
        parts.append(f"d = {', '.join(str(case.d) for case in group)} ({reading}, {rows} rows)")
    return "; ".join(parts)


def _widths(cases: Iterable[Case]) -> list[int]:
    return sorted({case.d for case in cases})


def _over_repeats(case: Case, model: str, kind: str) -> str:
    result = case.results[model]
    return NOT_YET if result is None else mean_std(result[kind], 4)


def _rate(case: Case, model: str) -> str:
    result = case.results[model]
    return NOT_YET if result is None else f"{result['lr']:g}"


def _in_units(case: Case, model: str) -> str:
    unit = case.target_std
    if case.results[model] is None or unit is None:
        return NOT_YET
    error = case.mean(model)
    return number(None if error is None else error / unit, 3)


def _least(case: Case, model: str) -> str:
    return NOT_YET if case.results[model] is None else number(case.least(model), 3)


def _shares(case: Case) -> str:
    found = next((result for result in case.results.values() if result is not None), None)
    if found is None:
        return NOT_YET
    total = sum(found["order_variances"])
    return ", ".join(f"{100 * part / total:.0f} %" for part in found["order_variances"])
