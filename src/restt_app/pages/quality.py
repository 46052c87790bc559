"""How well a model does, for its page: scores beside other models, calibration, and where not to trust it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from restt_app.pages import charts
from restt_app.pages.numbers import METRICS, percent, seconds, short, signed
from restt_app.pages.shell import Cell, DataTable, Drawing

OURS = "restt"


def scores(card: Mapping[str, Any]) -> DataTable | None:
    """Every model's metrics with their intervals and the time of a fit, best first."""
    models: dict[str, dict[str, Mapping[str, Any]]] = {}
    for score in card.get("scores") or []:
        models.setdefault(str(score["model"]), {})[str(score["metric"])] = score
    if not models:
        return None
    metrics = list(dict.fromkeys(metric for entries in models.values() for metric in entries))
    more = _words(metrics[0])[1]
    worst = {"value": -np.inf if more else np.inf}
    ranked = sorted(models, key=lambda name: models[name].get(metrics[0], worst)["value"], reverse=more)
    times = (card.get("held_out") or {}).get("seconds") or {}
    rows = []
    for name in ranked:
        kind, cells = "best" if is_ours(name) else "", []
        for metric in metrics:
            score = models[name].get(metric)
            cells.append(
                Cell("–") if score is None else Cell(short(score["value"]), score["value"], _ends(score), kind)
            )
        taken = times.get(name)
        cells.append(Cell("–") if taken is None else Cell(seconds(taken) if taken >= 0.01 else "< 0.01 s", taken))
        rows.append((Cell(name, kind=kind), *cells))
    names = [f"{_words(metric)[0]} {'↑' if _words(metric)[1] else '↓'}" for metric in metrics]
    note = "↑ more is better, ↓ less is better; below each score its 95 % interval."
    return _table("Scores on held-out rows", ("model", *names, "a fit took"), rows, note)


def _table(caption: str, columns: tuple[str, ...], rows: Sequence[tuple[Cell, ...]], *notes: str) -> DataTable:
    """A table of names and numbers."""
    return DataTable(caption, columns, tuple(rows), frozenset(range(1, len(columns))), notes)


def _words(metric: Any) -> tuple[str, bool]:
    return METRICS.get(str(metric), (str(metric), True))


def _ends(score: Mapping[str, Any]) -> str:
    whole = score.get("low") is not None and score.get("high") is not None
    return f"{short(score['low'], 3)} to {short(score['high'], 3)}" if whole else ""


def is_ours(model: Any) -> bool:
    """Whether a model of a list of scores is the one the page is about."""
    return str(model).lower().startswith(OURS)


def headlines(card: Mapping[str, Any]) -> list[dict[str, str]]:
    """The model's first two scores, each beside that of the simplest baseline, as tiles."""
    tiles = []
    for score in [score for score in card.get("scores") or [] if is_ours(score["model"])][:2]:
        others = [one for one in card["scores"] if one["metric"] == score["metric"] and not is_ours(one["model"])]
        beside = f"; {others[-1]['model']}: {short(others[-1]['value'], 3)}" if others else ""
        name = f"{_words(score['metric'])[0]} on held-out rows"
        tiles.append({"name": name, "value": short(score["value"], 3), "remark": _ends(score) + beside})
    return tiles


def calibration(card: Mapping[str, Any], target: str) -> Drawing | None:
    """Predictions of held-out rows beside what was observed, as the card has them; None where it has none."""
    held = card.get("calibration") or {}
    if rows := held.get("rows"):
        caption = f"{len(rows):,} held-out rows. On the dashed line a prediction is right."
        known = [row for row in rows if row.get("low") is not None]
        if known:
            outside = sum(not row["low"] <= row["observed"] <= row["high"] for row in known)
            caption += (
                f" Thin lines are 90 % intervals; {outside} observed values lie outside theirs (dots with a rim)."
            )
        return Drawing("Predicted and observed", charts.predicted_observed(rows, target), caption)
    bins = [bin_ for bin_ in held.get("bins") or [] if bin_.get("rows")]
    if not bins:
        return None
    what = "the predicted class" if held.get("of") is None else f"{target} = {held['of']}"
    count = sum(bin_["rows"] for bin_ in bins)
    gap = sum(bin_["rows"] * abs(bin_["predicted"] - bin_["observed"]) for bin_ in bins) / count
    label = f"Predicted probabilities of {what} beside observed shares of held-out rows; average gap {percent(gap)}"
    caption = (
        f"Probabilities of {what} on {count:,} held-out rows in {len(bins)} bin{'s' * (len(bins) != 1)}; a larger dot "
        f"has more rows. On the dashed line they are observed shares; the average gap is {percent(gap)}."
    )
    return Drawing("Can the probabilities be believed?", charts.reliability(bins, label), caption)


def coverage(levels: Sequence[Mapping[str, Any]], *, fifths: bool = False) -> DataTable | None:
    """Coverage of intervals, by their level or for fifths of the predictions."""
    rows = []
    for level in levels:
        gap = round(100 * (level["observed"] - level["expected"]))
        remark = f"{abs(gap)} point{'s' * (abs(gap) != 1)} {'more' if gap > 0 else 'fewer'}" if gap else "as it should"
        where = f"{short(level['low'], 3)} to {short(level['high'], 3)}" if fifths else percent(level["expected"])
        width = level.get("width")
        held = Cell(percent(level["observed"]), level["observed"], remark)
        rows.append((Cell(where), held, Cell("–" if width is None else short(width), width)))
    columns = ("where it predicts", "a 90 % interval holds") if fifths else ("interval", "holds")
    return _table("Coverage of intervals", (*columns, "average width"), rows) if rows else None


def confusion_table(card: Mapping[str, Any]) -> DataTable | None:
    """Held-out rows by true and by predicted class, of more than two classes."""
    matrix = ((card.get("calibration") or {}).get("confusion") or {}).get("matrix")
    if not matrix:
        return None
    rows = []
    for place, (name, counts) in enumerate(zip(card["classes"], matrix, strict=True)):
        right = counts[place] / max(1, sum(counts))
        cells = [Cell(f"{count:,}", count, kind="best" * (other == place)) for other, count in enumerate(counts)]
        rows.append((Cell(f"is {name}"), *cells, Cell(percent(right), right)))
    return _table("Confusion matrix", ("", *(f"predicted {name}" for name in card["classes"]), "right"), rows)


def weak_table(card: Mapping[str, Any]) -> DataTable | None:
    """Groups of held-out rows on which the model does worse than on the others."""
    groups = (card.get("calibration") or {}).get("groups")
    if not groups:
        return None
    squares, rows = card.get("task") == "regression", []
    for group in groups:
        losses = [float(np.sqrt(max(0.0, group[name]))) if squares else group[name] for name in ("loss", "others")]
        bias = [Cell(signed(group["bias"]), group["bias"])] if "bias" in group else []
        cells = [Cell(f"{group['rows']:,}", group["rows"]), *(Cell(short(loss, 3), loss) for loss in losses), *bias]
        rows.append((Cell(f"{group['column']} is {group['values']}"), *cells))
    name = "RMSE" if squares else "log-loss"
    headings = ("rows where", "rows", f"{name} there", "elsewhere", *(("observed − predicted",) if squares else ()))
    return _table("Groups with larger errors", headings, rows)
