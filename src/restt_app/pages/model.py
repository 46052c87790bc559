"""The page of a model: what it predicts and how well, what it has learned, and an explorer of single rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from restt._common.errors import check_int, shown
from restt_app.pages import quality
from restt_app.pages.explorer import explored, spread_rows
from restt_app.pages.learned import Learned, learned
from restt_app.pages.numbers import Texts, percent
from restt_app.pages.shell import render

COVERAGE = 0.9
# Share of the variance from which on a page says that interactions matter.
NOTICED = 0.005
# What a card may have that the template reads.
_EMPTY: dict[str, Any] = {"source": {}, "held_out": {}, "columns": [], "notes": [], "calibration": {}}
_EMPTY |= {"created": "", "seconds": 0}


def model_page(model: Any, X: Any, y: Any = None, *, card: Mapping[str, Any] | None = None, rows: int = 200) -> str:
    """One self-contained HTML page about a fitted estimator.

    Parameters
    ----------
    model : fitted ResTTRegressor or ResTTClassifier
    X : table (B, C)
        Rows to look into, with the columns of the fit.
    y : (B,), optional
        What was observed for them.
    card : dict, optional
        The model card as plain JSON (``restt.workflow.Card.to_json``): scores, calibration, source, settings. What it
        does not have is left out of the page.
    rows : int
        The most rows of the explorer; fewer where their curves would make the page large.

    Returns
    -------
    str
        HTML that needs no network.

    Examples
    --------
    >>> import numpy as np
    >>> from restt import ResTTNetRegressor
    >>> X = np.random.default_rng(0).random((60, 3))
    >>> model = ResTTNetRegressor(epochs=20, random_state=0).fit(X, X[:, 0])
    >>> page = model_page(model, X, X[:, 0], card={"target": "height"}, rows=5)
    >>> page.startswith("<!doctype html>"), "What predicts height" in page
    (True, True)
    """
    if not (hasattr(model, "numbers") and hasattr(model, "explain_local")):
        raise TypeError(f"model must be a fitted ResTTRegressor or ResTTClassifier, got {shown(model)}")
    rows = check_int("rows", rows, minimum=1)
    known = {**_EMPTY, **dict(card or {})}
    if not hasattr(X, "iloc"):
        X = X.to_pandas() if hasattr(X, "to_pandas") else pd.DataFrame(np.asarray(X))
    numbers = model.numbers(X)
    if len(numbers) == 0:
        raise ValueError("X must have at least one row, got none")
    if y is not None and len(y) != len(numbers):
        raise ValueError(f"y must have one entry per row of X, {len(numbers)}, got {len(y)}")
    target = str(known.get("target") or "y")
    classes = list(model.classes_) if hasattr(model, "classes_") else None
    outputs = _outputs(model, target, classes)
    unit = f"probability{'' if len(outputs) > 1 else f' of {outputs[0]}'}" if classes else target
    chosen = spread_rows(len(numbers), rows)
    local = model.explain_local(X.iloc[chosen])
    texts = Texts(local.names, known["columns"])
    content = learned(model, X, numbers, local, outputs, texts, unit)
    data = explored(
        model,
        X,
        y,
        local,
        chosen,
        ranking=content.ranking,
        numbers=numbers,
        outputs=outputs,
        labels=[str(label) for label in classes or []],
        target=target,
        coverage=COVERAGE,
        texts=texts,
    )
    counts = known["calibration"].get("confusion") or {}
    data["confusion"] = counts if classes and len(classes) == 2 and "positive" in counts else None
    context = {
        "title": f"What predicts {target}",
        "eyebrow": f"Model page · {'classification' if classes else 'regression'}",
        "heading": f"What predicts {target}",
        "summary": _summary(known, content, classes, target),
        "facts": _facts(model, known, content, len(numbers)),
        "sections": [
            ("scores", "How well"),
            ("matters", "What matters"),
            ("interactions", "Interactions"),
            ("explorer", "Pick a row"),
            ("trust", "Where not to trust it"),
            ("data", "The data"),
            ("made", "How it was made"),
        ],
        "card": known,
        "model": model,
        "unit": unit,
        "scores": quality.scores(known),
        "calibration": quality.calibration(known, target),
        "coverage": quality.coverage(known["calibration"].get("coverage") or []),
        "fifths": quality.coverage(known["calibration"].get("fifths") or [], fifths=True),
        "confusion": quality.confusion_table(known),
        "positive": outputs[0],
        "learned": content,
        "explorer": data,
        "weak": quality.weak_table(known),
        "settings": _listed(known.get("settings")),
        "versions": _listed(known.get("versions")),
    }
    return render("model.html.j2", context, scripts=["explorer.js"])


def _outputs(model: Any, target: str, classes: list[Any] | None) -> tuple[str, ...]:
    """Names for people of what is predicted, one per decision."""
    if classes is not None:
        return tuple(f"{target} = {label}" for label in (classes[1:] if len(classes) == 2 else classes))
    count = model.target_.outputs
    return (target,) if count == 1 else tuple(f"{target} {place + 1}" for place in range(count))


def _summary(card: Mapping[str, Any], content: Learned, classes: list[Any] | None, target: str) -> list[str]:
    """Two or three sentences, the first thing that is read."""
    used = card["source"].get("rows_used") or card["source"].get("rows")
    fitted = f", fitted to {used:,} rows" if used else ""
    listed = ", ".join(str(label) for label in (classes or [])[:6]) + (", …" if classes and len(classes) > 6 else "")
    what = f"one of {len(classes)} classes ({listed})" if classes else "a number"
    sentences = [f"Predicts {target}, {what}, from a row's other columns{fitted}."]
    if not any(content.order_shares):
        return [*sentences, "It predicts the same for every row."]
    if 1 - content.order_shares[0] < NOTICED:
        return [*sentences, "The model is nearly additive: columns hardly interact."]
    return [*sentences, f"Of the variance of its predictions, {content.orders}."]


def _facts(model: Any, card: Mapping[str, Any], content: Learned, rows: int) -> list[dict[str, str]]:
    source = card["source"]
    return [
        *quality.headlines(card),
        {"name": "rows", "value": f"{source.get('rows', rows):,}", "remark": str(source.get("file") or "")},
        {"name": "columns", "value": f"{model.n_features_in_:,}", "remark": "that the model uses"},
        {"name": "from interactions", "value": percent(sum(content.order_shares[1:])), "remark": "of the variance"},
    ]


def _listed(entries: Mapping[str, Any] | None) -> str:
    """Format settings as names and values.

    >>> _listed({"bond_dim": 8, "seed": 0, "penalty": {"chain": 1}})
    'bond_dim 8, seed 0, penalty {"chain": 1}'
    """
    return ", ".join(
        f"{name} {value if isinstance(value, (str, int, float)) else json.dumps(value, default=str)}"
        for name, value in (entries or {}).items()
    )
