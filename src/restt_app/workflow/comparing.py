"""Two models on the same rows: their scores, paired differences with intervals, and where they differ."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np

from restt_app.workflow.fitting import FittedTable
from restt_app.workflow.folder import load
from restt_app.workflow.metrics import METRICS, draws, entry
from restt_app.workflow.rows import known_answers, read_rows
from restt_app.workflow.weak_groups import as_categories, weak_groups

LISTED_ROWS = 5


def compare_tables(
    a: str | PathLike[str] | FittedTable,
    b: str | PathLike[str] | FittedTable,
    data: Any,
    *,
    seed: int = 0,
    **options: Any,
) -> dict[str, Any]:
    """Score two models of one target on the rows of a table.

    Parameters
    ----------
    a, b : path or FittedTable
    data : path, "-" or data frame
        Best rows that neither was fitted to; where a file is the one of a fit, a note says so.
    seed : int
        Of the resamples, which are the same for both models.
    options
        ``layout``, ``delimiter``, ``encoding`` and ``missing``, see :func:`read_table`.

    Returns
    -------
    dict
        Plain JSON: ``rows``; ``metrics``, for each ``a``, ``b``, and their difference a − b with its 95 % interval, and
        which is ``better`` where the interval holds no 0; ``apart``, how far predictions are apart, and the ``rows``
        where most; ``worse_a`` and ``worse_b``, groups of rows in which one is worse than elsewhere; ``notes``.

    Examples
    --------
    >>> import pandas as pd
    >>> from restt.workflow import compare_tables, fit_table
    >>> data = pd.DataFrame(np.random.default_rng(0).random((60, 2)), columns=["a", "b"])
    >>> data = data.assign(y=data.a * data.b)
    >>> one = fit_table(data[:40], "y", effort="quick")
    >>> other = fit_table(data[:40], "y", effort="quick", drop=["b"])
    >>> [found["better"] for found in compare_tables(one, other, data[40:])["metrics"]]
    ['a', 'a']
    """
    models = [model if isinstance(model, FittedTable) else load(model) for model in (a, b)]
    cards = [model.card for model in models]
    for name in ("task", "target", "classes"):
        ours, theirs = (getattr(card, name) for card in cards)
        if ours != theirs:
            raise ValueError(f"a and b must be models of the same {name}, got {ours!r} and {theirs!r}")
    card = cards[0]
    read = [read_rows(one, data, **options) for one in cards]
    (x, y), (other, _) = (known_answers(one, rows) for one, rows in zip(cards, read, strict=True))
    notes = list(dict.fromkeys(note for rows in read for note in rows.notes))
    for letter, one in zip("ab", cards, strict=True):
        if read[0].sha256 is not None and one.source.get("sha256") == read[0].sha256:
            notes.append(f"{letter} was fitted to this file: its score here says nothing about new rows")
    classes = None if card.task == "regression" else models[0].estimator.classes_
    values = [_values(model, rows) for model, rows in zip(models, (x, other), strict=True)]
    drawn = [draws(y, one, classes, seed) for one in values]
    losses = [_losses(y, one, classes) for one in values]
    gap = np.abs(values[0] - values[1]) if classes is None else np.abs(values[0] - values[1]).sum(axis=1) / 2
    frame = as_categories(x)
    return {
        "rows": len(y),
        "metrics": [_compared(name, drawn[0][name], drawn[1][name]) for name in drawn[0]],
        "apart": {
            "mean": float(gap.mean()),
            "largest": float(gap.max()),
            "rows": [
                {"row": int(row) + 1, "a": _said(values[0][row], classes), "b": _said(values[1][row], classes)}
                | {"observed": y.tolist()[row]}
                for row in np.argsort(-gap, kind="stable")[:LISTED_ROWS]
            ],
        },
        "worse_a": weak_groups(frame, losses[0] - losses[1]),
        "worse_b": weak_groups(frame, losses[1] - losses[0]),
        "notes": notes,
    }


def _values(model: FittedTable, x: Any) -> np.ndarray:
    estimator = model.estimator
    return np.asarray(estimator.predict(x) if model.card.task == "regression" else estimator.predict_proba(x))


def _losses(y: np.ndarray, values: np.ndarray, classes: np.ndarray | None) -> np.ndarray:
    if classes is None:
        return (y - values) ** 2
    own = np.searchsorted(classes, y)
    return np.asarray(-np.log(np.clip(values[np.arange(len(y)), own], 1e-15, None)))


def _compared(metric: str, a: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    gap = entry(a - b)
    better = ""
    if gap["low"] > 0 or gap["high"] < 0:
        better = "a" if (gap["value"] > 0) == METRICS[metric][1] else "b"
    difference = {"difference": gap["value"], "low": gap["low"], "high": gap["high"]}
    return {"metric": metric, "a": float(a[0]), "b": float(b[0]), **difference, "better": better}


def _said(values: Any, classes: np.ndarray | None) -> Any:
    """Prediction of one row: the number, or the class with its probability."""
    if classes is None:
        return float(values)
    return [classes.tolist()[int(values.argmax())], float(values.max())]
