"""How well a model does, for its page: scores beside other models, and whether its uncertainty can be believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from restt_app.pages import charts
from restt_app.pages.explorer import Predictions
from restt_app.pages.learned import Drawing
from restt_app.pages.numbers import percent, short
from restt_app.pages.shell import Cell, DataTable

# Metric -> its name for people, and whether more of it is better.
METRICS = {
    "r2": ("R²", True),
    "rmse": ("RMSE", False),
    "mae": ("mean absolute error", False),
    "log_loss": ("log-loss", False),
    "accuracy": ("accuracy", True),
    "roc_auc": ("area under the ROC curve", True),
    "brier": ("Brier score", False),
}
OURS = "restt"
BINS = 10
# Rows drawn as dots; more would hide each other.
DOTS = 400


@dataclass(frozen=True)
class Calibration:
    """A chart, the sentences beside it, and coverage by level where there are intervals."""

    drawing: Drawing
    coverage: DataTable | None = None


def scores(card: Mapping[str, Any]) -> list[Drawing]:
    """One chart per metric: every model's score with its interval, best first."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for score in card.get("scores") or []:
        if score.get("value") is not None:
            found.setdefault(str(score["metric"]), []).append(score)
    drawings = []
    for metric, entries in found.items():
        name, more = METRICS.get(metric, (metric, True))
        ranked = sorted(entries, key=lambda score: score["value"], reverse=more)
        rows = [
            charts.Interval(str(s["model"]), s["value"], s.get("low"), s.get("high"), is_ours(s["model"]))
            for s in ranked
        ]
        told = "; ".join(f"{row.name} {short(row.value)}" for row in rows)
        better = "more is better" if more else "less is better"
        drawings.append(
            Drawing(
                name,
                charts.intervals(rows, f"{name} by model, {better}: {told}", f"{name} ({better})"),
                numbers=_score_table(name, rows),
            )
        )
    return drawings


def is_ours(model: Any) -> bool:
    """Whether a model of a list of scores is the one the page is about."""
    return str(model).lower().startswith(OURS)


def headline(card: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]] | None:
    """The first metric's name and the model's score, if there is one."""
    for score in card.get("scores") or []:
        if is_ours(score.get("model", "")) and score.get("value") is not None:
            return METRICS.get(str(score["metric"]), (str(score["metric"]), True))[0], score
    return None


def calibration(card: Mapping[str, Any], target: str) -> Calibration | None:
    """Of held-out rows, as the card has them; None where it has none."""
    held = card.get("calibration") or {}
    if held.get("bins"):
        bins = [(b["predicted"], b["observed"], int(b["rows"])) for b in held["bins"] if b.get("rows")]
        of = held.get("of")
        return _reliability(bins, "the predicted class" if of is None else f"{target} = {of}", "held-out rows")
    if held.get("rows"):
        rows = held["rows"]
        drawing = _predicted_observed(
            [row["observed"] for row in rows],
            [row["predicted"] for row in rows],
            [(row.get("low"), row.get("high")) for row in rows],
            target,
            "held-out rows",
        )
        return Calibration(drawing, _coverage(held.get("coverage") or []))
    return None


def calibration_of(
    said: Predictions, y: Any, classes: Sequence[Any] | None, target: str, coverage: float
) -> Calibration | None:
    """The same of the rows the page was given, where y is known; the fit may have seen them."""
    seen = np.asarray(y, dtype=object)
    if seen.ndim != 1 or len(seen) != len(said.values):
        return None
    where = "rows of this page, which the model may have been fitted on"
    if classes is not None:
        right, probability, of = _binary(said.values, seen, classes)
        return _reliability(_bins(probability, right), of if of is None else f"{target} = {of}", where)
    observed = seen.astype(np.float64)
    known = np.flatnonzero(np.isfinite(observed))
    if not len(known):
        return None
    ends = None if said.intervals is None else said.intervals[known]
    table = None
    if ends is not None:
        inside = float(((observed[known] >= ends[:, 0]) & (observed[known] <= ends[:, 1])).mean())
        width = float((ends[:, 1] - ends[:, 0]).mean())
        table = _coverage([{"expected": coverage, "observed": inside, "width": width}])
    kept = np.unique(np.linspace(0, len(known) - 1, min(DOTS, len(known))).round().astype(int))
    drawing = _predicted_observed(
        observed[known][kept].tolist(),
        said.values[known, 0][kept].tolist(),
        [(None, None)] * len(kept) if ends is None else [(low, high) for low, high in ends[kept].tolist()],
        target,
        where,
    )
    return Calibration(drawing, table)


def _binary(values: np.ndarray, seen: np.ndarray, classes: Sequence[Any]) -> tuple[np.ndarray, np.ndarray, Any]:
    """Whether it came true, the probability said, and of which class; None for whichever was predicted."""
    names = [str(value) for value in classes]
    places = np.array([names.index(str(value)) if str(value) in names else -1 for value in seen.tolist()])
    if values.shape[1] == 1:
        return places == 1, values[:, 0], classes[1]
    best = values.argmax(axis=1)
    return places == best, values.max(axis=1), None


def _bins(probability: np.ndarray, right: np.ndarray) -> list[tuple[float, float, int]]:
    which = np.minimum((probability * BINS).astype(int), BINS - 1)
    return [
        (float(probability[which == place].mean()), float(right[which == place].mean()), int((which == place).sum()))
        for place in range(BINS)
        if (which == place).any()
    ]


def _reliability(bins: list[tuple[float, float, int]], of: str | None, where: str) -> Calibration:
    rows = sum(count for _, _, count in bins)
    gap = sum(count * abs(said - true) for said, true, count in bins) / max(1, rows)
    what = of or "the predicted class"
    drawing = Drawing(
        "Reliability",
        charts.reliability(
            bins,
            f"Probabilities said of {what} beside the shares that came true on {where}; average gap {percent(gap)}",
            "probability said",
            "share that came true",
        ),
        f"Probabilities of {what} on {where}, in {len(bins)} bins of {rows:,} rows; a larger dot has more rows. On the "
        f"dashed line what is said is what happens; the average gap is {percent(gap)}.",
    )
    return Calibration(drawing)


def _predicted_observed(
    observed: Sequence[float],
    predicted: Sequence[float],
    ends: Sequence[tuple[float | None, float | None]],
    target: str,
    where: str,
) -> Drawing:
    whole = [(low, high) for low, high in ends if low is not None and high is not None]
    complete = len(whole) == len(observed) > 0
    told = f"Predicted and observed {target} of {len(observed)} {where}"
    caption = f"{len(observed):,} {where}. On the dashed line a prediction is right."
    if complete:
        outside = sum(not low <= seen <= high for seen, (low, high) in zip(observed, whole, strict=True))
        caption += f" Thin lines are intervals; {outside} observed values lie outside theirs (dots with a rim)."
    return Drawing(
        "Predicted and observed",
        charts.predicted_observed(observed, predicted, whole if complete else None, told, target),
        caption,
    )


def _coverage(levels: Sequence[Mapping[str, Any]]) -> DataTable | None:
    if not levels:
        return None
    rows = tuple(
        (
            Cell(percent(level["expected"]), level["expected"]),
            Cell(percent(level["observed"]), level["observed"], *_off(level["expected"], level["observed"])),
            Cell("–" if level.get("width") is None else short(level["width"]), level.get("width")),
        )
        for level in levels
    )
    columns = ("an interval should hold", "it holds", "its average width")
    return DataTable("Coverage of intervals", columns, rows, frozenset({0, 1, 2}))


def _off(expected: float, observed: float) -> tuple[str, str]:
    """A remark where an interval holds clearly more or fewer rows than it says."""
    gap = 100 * (observed - expected)
    if abs(gap) < 1:
        return "as it says", ""
    points = round(abs(gap))
    return f"{points} point{'s' * (points != 1)} {'more' if gap > 0 else 'fewer'}", ""


def _score_table(name: str, rows: Sequence[charts.Interval]) -> DataTable:
    return DataTable(
        f"{name} by model",
        ("model", name, "low", "high"),
        tuple(
            (
                Cell(row.name, kind="best" if row.ours else ""),
                Cell(short(row.value), row.value),
                Cell("–" if row.low is None else short(row.low), row.low),
                Cell("–" if row.high is None else short(row.high), row.high),
            )
            for row in rows
        ),
        frozenset({1, 2, 3}),
    )
