"""Metrics of predictions on weighted rows: a bootstrap resample is a row of weights, the same for every model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from restt_app.pages.numbers import METRICS

RESAMPLES = 400
SURE = 0.95  # of the resamples that an interval holds
_BLOCK = 50  # resamples evaluated together, which bounds memory

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
    rows, kinds = shares.shape
    truth = np.eye(kinds)[own]
    losses = -np.log(np.clip(shares[np.arange(rows), own], 1e-15, None))
    squares = ((shares - truth) ** 2).sum(axis=1) / (2 if kinds == 2 else 1)
    means = weights @ np.stack([losses, squares, shares.argmax(axis=1) == own], axis=1) / weights.sum(axis=1)[:, None]
    ranked = [_areas(truth[:, k], shares[:, k], weights) for k in ([1] if kinds == 2 else range(kinds))]
    auc, precision = (_mean_known([areas[place] for areas in ranked]) for place in (0, 1))
    return {
        "log_loss": means[:, 0],
        "roc_auc": auc,
        "average_precision": precision,
        "brier": means[:, 1],
        "accuracy": means[:, 2],
    }


def _areas(truth: np.ndarray, score: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """ROC AUC and average precision, (R,) each, of scores (B,) for weights (R, B); rows of one score are one step."""
    order = np.argsort(-score, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(score[order]) != 0))
    weighed = weights[:, order]
    hits = np.add.reduceat(weighed * truth[order], starts, axis=1)
    misses = np.add.reduceat(weighed * (1 - truth[order]), starts, axis=1)
    found, passed = hits.cumsum(axis=1), misses.cumsum(axis=1)
    auc = (hits * (passed[:, -1:] - passed + misses / 2)).sum(axis=1) / (found[:, -1] * passed[:, -1])
    steps = np.where(hits > 0, hits * found / (found + passed), 0.0)
    return auc, steps.sum(axis=1) / found[:, -1]


def _mean_known(parts: list[np.ndarray]) -> np.ndarray:
    """Mean over classes of those that a resample has rows of."""
    values = np.array(parts)
    known = np.isfinite(values)
    return np.asarray(np.where(known, values, 0.0).sum(axis=0) / known.sum(axis=0))


def words(metric: str) -> str:
    """Name of a metric for people.

    >>> words("roc_auc")
    'ROC AUC'
    """
    return METRICS.get(metric, (metric, True))[0]


def confusion(own: np.ndarray, shares: np.ndarray) -> dict[str, Any]:
    """What a confusion matrix is made of at any threshold.

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
