"""How well a model does, for its page: scores beside other models, calibration, and where not to trust it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from restt_app.pages import charts
from restt_app.pages.learned import Drawing
from restt_app.pages.numbers import METRICS, percent, seconds, short, signed
from restt_app.pages.shell import Cell, DataTable

OURS = "restt"
LEAST_SURE = 5  # rows listed


@dataclass(frozen=True)
class Calibration:
    """A chart, and coverage by level and by fifth of the predictions where there are intervals."""

    drawing: Drawing
    coverage: DataTable | None = None
    fifths: DataTable | None = None


def scores(card: Mapping[str, Any]) -> DataTable | None:
    """Every model's metrics with their intervals and the time of a fit, best first."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for score in card.get("scores") or []:
        found.setdefault(str(score["model"]), {})[str(score["metric"])] = score
    if not found:
        return None
    metrics = list(dict.fromkeys(metric for kept in found.values() for metric in kept))
    first = metrics[0]
    more = METRICS.get(first, (first, True))[1]
    worst = -np.inf if more else np.inf
    ranked = sorted(found, key=lambda name: found[name].get(first, {"value": worst})["value"], reverse=more)
    times = (card.get("held_out") or {}).get("seconds") or {}
    rows = []
    for name in ranked:
        ours = "best" if is_ours(name) else ""
        cells = [Cell(name, kind=ours)]
        for metric in metrics:
            score = found[name].get(metric)
            cells.append(
                Cell("–") if score is None else Cell(short(score["value"]), score["value"], _ends(score), ours)
            )
        taken = times.get(name)
        cells.append(Cell("–") if taken is None else Cell(seconds(taken) if taken >= 0.01 else "< 0.01 s", taken))
        rows.append(tuple(cells))
    names = [
        f"{METRICS.get(metric, (metric, True))[0]} {'↑' if METRICS.get(metric, ('', True))[1] else '↓'}"
        for metric in metrics
    ]
    return DataTable(
        "Scores on held-out rows",
        ("model", *names, "a fit took"),
        tuple(rows),
        frozenset(range(1, len(names) + 2)),
        ("↑ more is better, ↓ less is better; below each score its 95 % interval.",),
    )


def _ends(score: Mapping[str, Any]) -> str:
    whole = score.get("low") is not None and score.get("high") is not None
    return f"{short(score['low'], 3)} to {short(score['high'], 3)}" if whole else ""


def is_ours(model: Any) -> bool:
    """Whether a model of a list of scores is the one the page is about."""
    return str(model).lower().startswith(OURS)


def headlines(card: Mapping[str, Any]) -> list[dict[str, str]]:
    """The model's first two scores, each beside that of the simplest baseline, as tiles."""
    found = [score for score in card.get("scores") or [] if is_ours(score["model"])][:2]
    tiles = []
    for score in found:
        name = METRICS.get(str(score["metric"]), (str(score["metric"]), True))[0]
        others = [one for one in card["scores"] if one["metric"] == score["metric"] and not is_ours(one["model"])]
        beside = f"; {others[-1]['model']}: {short(others[-1]['value'], 3)}" if others else ""
        tiles.append(
            {"name": f"{name} on held-out rows", "value": short(score["value"], 3), "remark": _ends(score) + beside}
        )
    return tiles


def calibration(card: Mapping[str, Any], target: str) -> Calibration | None:
    """Of held-out rows, as the card has them; None where it has none."""
    held = card.get("calibration") or {}
    if held.get("bins"):
        bins = [(b["predicted"], b["observed"], int(b["rows"])) for b in held["bins"] if b.get("rows")]
        return _reliability(bins, "the predicted class" if held.get("of") is None else f"{target} = {held['of']}")
    if held.get("rows"):
        rows = held["rows"]
        return Calibration(
            _predicted_observed(rows, target), _coverage(held.get("coverage") or []), _fifths(held.get("fifths") or [])
        )
    return None


def confusion_table(card: Mapping[str, Any]) -> DataTable | None:
    """Held-out rows by true and by predicted class, of more than two classes."""
    matrix = ((card.get("calibration") or {}).get("confusion") or {}).get("matrix")
    if not matrix:
        return None
    classes = [str(label) for label in card["classes"]]
    rows = []
    for name, counts in zip(classes, matrix, strict=True):
        right = counts[classes.index(name)]
        cells = [
            Cell(f"{count:,}", count, kind="best" if other == name else "")
            for other, count in zip(classes, counts, strict=True)
        ]
        rows.append(
            (Cell(f"is {name}"), *cells, Cell(percent(right / max(1, sum(counts))), right / max(1, sum(counts))))
        )
    headings = ("", *(f"predicted {name}" for name in classes), "right")
    return DataTable("Confusion matrix", headings, tuple(rows), frozenset(range(1, len(headings))))


def weak_table(card: Mapping[str, Any]) -> DataTable | None:
    """Groups of held-out rows on which the model does worse than on the others."""
    found = (card.get("calibration") or {}).get("groups")
    if not found:
        return None
    squares = card.get("task") == "regression"
    rows = []
    for one in found:
        loss, others = (float(np.sqrt(max(0.0, one[name]))) if squares else one[name] for name in ("loss", "others"))
        cells = [Cell(f"{one['column']} is {one['values']}"), Cell(f"{one['rows']:,}", one["rows"])]
        cells += [Cell(short(loss, 3), loss), Cell(short(others, 3), others)]
        rows.append((*cells, *([Cell(signed(one["bias"]), one["bias"])] if "bias" in one else [])))
    name = "RMSE" if squares else "log-loss"
    headings = ("rows where", "rows", f"{name} there", "elsewhere", *(("observed − predicted",) if squares else ()))
    return DataTable("Groups with larger errors", headings, tuple(rows), frozenset(range(1, len(headings))))


def least_sure(values: np.ndarray, intervals: np.ndarray | None, outputs: Sequence[str]) -> DataTable:
    """Rows of the page with the widest intervals, or the least clear class."""
    if intervals is not None:
        width = intervals[:, 1] - intervals[:, 0]
        heading, texts = "interval", [f"{short(low)} to {short(high)}" for low, high in intervals]
        first = [short(value) for value in values[:, 0]]
    else:
        shares = np.concatenate([1 - values, values], axis=1) if values.shape[1] == 1 else values
        width = -shares.max(axis=1)
        heading, texts = "probability", [percent(share) for share in shares.max(axis=1)]
        names = ["no", "yes"] if values.shape[1] == 1 else list(outputs)
        first = [names[place] for place in shares.argmax(axis=1)]
        if values.shape[1] == 1:
            first = [f"{'not ' if word == 'no' else ''}{outputs[0]}" for word in first]
    rows = tuple(
        (Cell(f"row {place + 1:,}", int(place)), Cell(first[place]), Cell(texts[place]))
        for place in np.argsort(-width, kind="stable")[:LEAST_SURE]
    )
    return DataTable("Rows the model is least sure of", ("row", "predicted", heading), rows)


def _reliability(bins: list[tuple[float, float, int]], what: str) -> Calibration:
    rows = sum(count for _, _, count in bins)
    gap = sum(count * abs(said - true) for said, true, count in bins) / max(1, rows)
    label = f"Predicted probabilities of {what} beside observed shares of held-out rows; average gap {percent(gap)}"
    counted = f"{rows:,} held-out rows in {len(bins)} bin{'s' * (len(bins) != 1)}"
    caption = (
        f"Probabilities of {what} on {counted}; a larger dot has more rows. On the dashed line they are observed "
        f"shares; the average gap is {percent(gap)}."
    )
    chart = charts.reliability(bins, label, "predicted probability", "observed share")
    return Calibration(Drawing("Can the probabilities be believed?", chart, caption))


def _predicted_observed(rows: Sequence[Mapping[str, Any]], target: str) -> Drawing:
    whole = [(row["low"], row["high"]) for row in rows if row.get("low") is not None and row.get("high") is not None]
    ends = whole if len(whole) == len(rows) else None
    observed = [row["observed"] for row in rows]
    caption = f"{len(rows):,} held-out rows. On the dashed line a prediction is right."
    if ends is not None:
        outside = sum(not low <= seen <= high for seen, (low, high) in zip(observed, ends, strict=True))
        caption += f" Thin lines are 90 % intervals; {outside} observed values lie outside theirs (dots with a rim)."
    told = f"Predicted and observed {target} of {len(rows)} held-out rows"
    chart = charts.predicted_observed(observed, [row["predicted"] for row in rows], ends, told, target)
    return Drawing("Predicted and observed", chart, caption)


def _coverage(levels: Sequence[Mapping[str, Any]]) -> DataTable | None:
    rows = tuple((Cell(percent(level["expected"]), level["expected"]), *_held(level)) for level in levels)
    columns = ("interval", "holds", "average width")
    return DataTable("Coverage of intervals", columns, rows, frozenset({1, 2})) if rows else None


def _fifths(parts: Sequence[Mapping[str, Any]]) -> DataTable | None:
    rows = tuple((Cell(f"{short(part['low'], 3)} to {short(part['high'], 3)}"), *_held(part)) for part in parts)
    columns = ("where it predicts", "a 90 % interval holds", "average width")
    return DataTable("Coverage by fifth of the predictions", columns, rows, frozenset({1, 2})) if rows else None


def _held(level: Mapping[str, Any]) -> tuple[Cell, Cell]:
    """What an interval holds, with a remark where that is clearly more or less than it should."""
    gap = round(100 * (level["observed"] - level["expected"]))
    remark = f"{abs(gap)} point{'s' * (abs(gap) != 1)} {'more' if gap > 0 else 'fewer'}" if gap else "as it should"
    width = level.get("width")
    return Cell(percent(level["observed"]), level["observed"], remark), Cell(
        "–" if width is None else short(width), width
    )
