"""Metrics of predictions with bootstrap intervals, confusion matrices, and groups of rows with larger errors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import norm

from restt_app.pages.numbers import METRICS

RESAMPLES = 400
SURE = 0.95  # of the resamples that an interval holds
_BLOCK = 50  # resamples evaluated together, which bounds memory
_PARTS = 5  # groups of a column of numbers
_LEAST_ROWS = 10  # of a group: fewer say nothing
_ERROR_RATE = 0.05  # chance that any group is listed where none is worse, shared by all groups (Bonferroni)
_LISTED_GROUPS = 8

Draws = dict[str, np.ndarray]  # metric -> (1 + RESAMPLES,), the rows as they are first


def draws(y: np.ndarray, values: np.ndarray, classes: np.ndarray | None, seed: int) -> Draws:
    """All metrics of predictions (B,), or of probabilities (B, K) of ``classes``, on the rows and on their resamples.

    Examples
    --------
    >>> found = draws(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 1.0]), None, seed=0)
    >>> round(float(found["r2"][0]), 3), found["rmse"].shape
    (0.5, (401,))
    """
    parts = []
    for weights in _weights(len(y), seed):
        with np.errstate(divide="ignore", invalid="ignore"):
            parts.append(
                _regression(y, values, weights)
                if classes is None
                else _classification(np.searchsorted(classes, y), values, weights)
            )
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def entry(values: np.ndarray) -> dict[str, float]:
    """Value and interval of a metric, from :func:`draws`; a resample of one value of y alone has no R² and counts not.

    >>> entry(np.array([0.5, 0.4, 0.6, np.nan]))
    {'value': 0.5, 'low': 0.405, 'high': 0.595}
    """
    own = values[1:][np.isfinite(values[1:])]
    low, high = np.quantile(own, [(1 - SURE) / 2, (1 + SURE) / 2]) if len(own) else (values[0], values[0])
    return {"value": float(values[0]), "low": float(low), "high": float(high)}


def _weights(rows: int, seed: int) -> Iterator[np.ndarray]:  # (≤ _BLOCK, B)
    """How often each row counts: once each, then in bootstrap resamples."""
    yield np.ones((1, rows))
    rng = np.random.default_rng(seed)
    for first in range(0, RESAMPLES, _BLOCK):
        counts = [np.bincount(rng.integers(rows, size=rows), minlength=rows) for _ in range(_BLOCK)]
        yield np.array(counts[: RESAMPLES - first], dtype=np.float64)


def _regression(y: np.ndarray, values: np.ndarray, weights: np.ndarray) -> Draws:
    centred = y - y.mean()
    terms = np.stack([np.ones(len(y)), centred, centred**2, (y - values) ** 2], axis=1)
    rows, first, second, errors = (weights @ terms).T
    variation = second - first**2 / rows
    r2 = np.where(variation > 0, 1.0 - errors / variation, np.nan)
    return {"r2": r2, "rmse": np.sqrt(errors / rows)}


def _classification(own: np.ndarray, shares: np.ndarray, weights: np.ndarray) -> Draws:
    """``own`` (B,) are places of the true classes. Areas of several classes are means over one against the rest."""
    kinds = shares.shape[1]
    truth = np.eye(kinds)[own]
    losses = _log_losses(own, shares)
    squares = ((shares - truth) ** 2).sum(axis=1) / (2 if kinds == 2 else 1)
    means = weights @ np.stack([losses, squares, shares.argmax(axis=1) == own], axis=1) / weights.sum(axis=1)[:, None]
    ranked = [_areas(truth[:, k], shares[:, k], weights) for k in ([1] if kinds == 2 else range(kinds))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a resample may have rows of one class alone
        auc, precision = np.nanmean(ranked, axis=0)  # over the classes that a resample has rows of
    return {
        "log_loss": means[:, 0],
        "roc_auc": auc,
        "average_precision": precision,
        "brier": means[:, 1],
        "accuracy": means[:, 2],
    }


def row_losses(y: np.ndarray, values: np.ndarray, classes: np.ndarray | None) -> np.ndarray:  # (B,)
    """Squared error of each row, or its log-loss where ``values`` (B, K) are probabilities of ``classes``."""
    return (y - values) ** 2 if classes is None else _log_losses(np.searchsorted(classes, y), values)


def _log_losses(own: np.ndarray, shares: np.ndarray) -> np.ndarray:
    return np.asarray(-np.log(np.clip(shares[np.arange(len(own)), own], 1e-15, None)))


def _areas(truth: np.ndarray, score: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ROC AUC and average precision, (R,) each, of scores (B,) for weights (R, B); rows of one score are one step."""
    order = np.argsort(-score, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(score[order]) != 0))
    weighed = weights[:, order]
    hits = np.add.reduceat(weighed * truth[order], starts, axis=1)
    misses = np.add.reduceat(weighed * (1 - truth[order]), starts, axis=1)
    true, false = hits.cumsum(axis=1), misses.cumsum(axis=1)  # positives
    auc = (hits * (false[:, -1:] - false + misses / 2)).sum(axis=1) / (true[:, -1] * false[:, -1])
    steps = np.where(hits > 0, hits * true / (true + false), 0.0)
    return auc, steps.sum(axis=1) / true[:, -1]


def words(metric: str) -> str:
    """Name of a metric for people.

    >>> words("roc_auc")
    'ROC AUC'
    """
    return METRICS.get(metric, (metric, True))[0]


def confusion(own: np.ndarray, shares: np.ndarray) -> dict[str, Any]:
    """Counts from which a confusion matrix follows at any threshold.

    Of two classes, ``positive`` and ``negative``: rows of the second and of the first class by the second's
    probability, in hundredths from 0 to 1. Of more, ``matrix``: rows by true class (first axis) and predicted one.

    >>> confusion(np.array([0, 1]), np.array([[0.9, 0.1], [0.2, 0.8]]))["positive"][80]
    1
    """
    kinds = shares.shape[1]
    if kinds > 2:
        counts = np.bincount(own * kinds + shares.argmax(axis=1), minlength=kinds**2)
        return {"matrix": counts.reshape(kinds, kinds).tolist()}
    places = np.minimum(np.floor(100 * shares[:, 1] + 1e-9).astype(int), 100)
    return {
        name: np.bincount(places[own == kind], minlength=101).tolist()
        for name, kind in (("negative", 0), ("positive", 1))
    }


def weak_groups(x: Any, losses: np.ndarray, residuals: np.ndarray | None = None) -> list[dict[str, Any]]:
    """Groups of held-out rows whose mean loss is above that of all others by more than chance, the worst first.

    Parameters
    ----------
    x : data frame (B, C)
    losses : (B,)
    residuals : (B,), optional
        Observed less predicted; their mean in a group is its ``bias``.

    Returns
    -------
    list of dict
        ``column``, ``values`` (what the group has there, in words), ``rows``, ``loss`` and ``others``, mean losses.

    Examples
    --------
    >>> import pandas as pd
    >>> x = pd.DataFrame({"kind": ["a"] * 30 + ["b"] * 30})
    >>> losses = np.where(x.kind == "b", 4.0, 1.0) + np.tile([0.1, -0.1], 30)
    >>> [(group["column"], group["values"], round(group["loss"], 3)) for group in weak_groups(x, losses)]
    [('kind', 'b', 4.0)]
    """
    tested = []
    for name in x.columns:
        for words, there in _groups(x[name]):
            if _LEAST_ROWS <= there.sum() <= len(losses) - _LEAST_ROWS:
                inside, outside = losses[there], losses[~there]
                gap = inside.mean() - outside.mean()
                error = np.sqrt(inside.var(ddof=1) / len(inside) + outside.var(ddof=1) / len(outside))
                group = {"column": str(name), "values": words, "rows": int(there.sum())}
                group |= {"loss": float(inside.mean()), "others": float(outside.mean())}
                if residuals is not None:
                    group["bias"] = float(residuals[there].mean())
                tested.append((gap / error if error > 0 else 0.0, group))
    least = norm.isf(_ERROR_RATE / max(1, len(tested)))
    ranked = sorted(tested, key=lambda pair: -pair[0])
    return [group for distance, group in ranked[:_LISTED_GROUPS] if distance > least]


def _groups(series: Any) -> list[tuple[str, np.ndarray]]:
    """Fifths of a column of numbers, levels of another, and missing values: words and mask (B,) of each."""
    missing = np.asarray(series.isna())
    groups = [("missing", missing)]
    if series.dtype.kind not in "biuf":
        return groups + [(str(level), np.asarray(series == level)) for level in series.dropna().unique()]
    numbers = np.asarray(series, dtype=np.float64)
    if missing.all():
        return groups
    cuts = np.unique(np.quantile(numbers[~missing], np.linspace(0, 1, _PARTS + 1)[1:-1]))
    places = np.searchsorted(cuts, numbers, side="left")
    for place in np.unique(places[~missing]):
        there = (places == place) & ~missing
        low, high = numbers[there].min(), numbers[there].max()
        groups.append((f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}", there))
    return groups
