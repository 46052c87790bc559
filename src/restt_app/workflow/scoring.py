"""Scores on held-out rows: every model predicts the same rows, none of which it was fitted to, with intervals.

ResTT stands beside a linear model, boosted trees and what needs no column: the mean, or the shares of the classes.
Rows are held out by chance, in whole groups, or as the latest in time.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from restt._common.errors import shown
from restt_app.workflow.metrics import confusion, draws, entry, row_losses, weak_groups

COVERAGES = (0.5, 0.8, 0.9, 0.95)
SHOWN_COVERAGE = 0.9
SHOWN_ROWS = 500
BINS, PARTS = 10, 5
LEAST_PROBABILITY = 1e-6  # of a class that a fold has not seen
OURS = "ResTT"
BASELINES = {"regression": ("linear", "boosting", "mean"), "classification": ("linear", "boosting", "class shares")}
# What one fit takes of the others' time, for the time left: measured on 500 rows of 20 columns.
COST = {"quick": 3.0, "auto": 10.0, "best": 30.0, "linear": 0.2, "boosting": 1.0, "mean": 0.0, "class shares": 0.0}
_MOST_LEVELS = 255  # of a category in scikit-learn's boosting

Split = tuple[np.ndarray, np.ndarray]  # numbers of the rows to fit to, and of those to predict


@dataclass(frozen=True)
class ScoringSettings:
    """How much is held out. The sizes bound the time that scoring takes: none was tuned for a score."""

    folds: int = 5
    fold_rows: int = 500  # from this many rows on, one part is held out: a fifth of them scores well enough
    held_share: float = 0.2
    most_held: int = 20_000
    most_trained: int = 50_000  # rows that the scored models are fitted to; the same for each


Step = Callable[[str, float], None]  # what was done, and its cost


@dataclass(frozen=True, eq=False)
class _Predicted:
    """A model's predictions of the held-out rows, in the order of the splits, and how long its fits took."""

    values: np.ndarray  # (B,) predictions, or (B, K) probabilities
    seconds: float
    ends: np.ndarray | None = None  # (len(COVERAGES), B, 2)


class Scorer:
    """Scores models on the same splits of one table; baselines are fitted once.

    Parameters
    ----------
    x : data frame (B, C), y : (B,)
    classes : (K,) or None
        Sorted labels; None for regression.
    splits, method
        What :func:`split_rows` returns.
    seed : int
    """

    def __init__(
        self, x: Any, y: np.ndarray, classes: np.ndarray | None, splits: Sequence[Split], method: str, seed: int
    ) -> None:
        self.task = "regression" if classes is None else "classification"
        self._x, self._y, self._classes, self._splits, self._method, self._seed = x, y, classes, splits, method, seed
        self._rows = np.concatenate([held for _, held in splits])
        self._baselines: dict[str, _Predicted] = {}

    def cost(self, effort: str) -> float:
        """Cost of scoring, in the units of :data:`COST`."""
        others = 0.0 if self._baselines else sum(COST[name] for name in BASELINES[self.task])
        return len(self._splits) * (COST[effort] + others)

    def score(self, make: Callable[[], Any], effort: str, step: Step) -> dict[str, Any]:
        """Score ``make()``, an unfitted estimator: ``held_out``, ``scores`` and ``calibration`` of the card.

        ``step`` is called after each fit, its costs sum to :meth:`cost`.
        """
        if not self._baselines:
            for name in BASELINES[self.task]:
                self._baselines[name] = self._predicted(name, partial(self._baseline, name), COST[name], step)
        own = self._predicted(OURS, make, COST[effort], step)
        y = self._y[self._rows]
        models = {OURS: own, **self._baselines}
        scores = [
            {"model": name, "metric": metric, **entry(values)}
            for name, model in models.items()
            for metric, values in draws(y, model.values, self._classes, self._seed).items()
            if np.isfinite(values[0])
        ]
        held_out = {
            "method": self._method,
            "rows": len(y),
            "trained_on": len(self._splits[0][0]),
            "metrics": {score["metric"]: score["value"] for score in scores if score["model"] == OURS},
            "seconds": {name: round(model.seconds / len(self._splits), 3) for name, model in models.items()},
        }
        x = self._x.iloc[self._rows]
        calibration = (
            _coverage(x, y, own, self._seed) if self._classes is None else _reliability(x, y, own, self._classes)
        )
        return {"held_out": held_out, "scores": scores, "calibration": calibration}

    def _predicted(self, name: str, make: Callable[[], Any], cost: float, step: Step) -> _Predicted:
        values, ends, seconds = [], [], 0.0
        for place, (train, held) in enumerate(self._splits, start=1):
            model, began = make(), time.monotonic()
            # Of a fold: categories it has not seen and the like say nothing about the model that is kept.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(self._x.iloc[train], self._y[train])
                seconds += time.monotonic() - began
                rows = self._x.iloc[held]
                values.append(self._values(model, rows))
                if name == OURS and self._classes is None and hasattr(model, "predict_interval"):
                    ends.append(np.stack([model.predict_interval(rows, coverage) for coverage in COVERAGES]))
            step(f"scoring {name}" + (f", fold {place} of {len(self._splits)}" if len(self._splits) > 1 else ""), cost)
        return _Predicted(np.concatenate(values), seconds, np.concatenate(ends, axis=1) if ends else None)

    def _values(self, model: Any, rows: Any) -> np.ndarray:
        if self._classes is None:
            return np.asarray(model.predict(rows), dtype=np.float64)
        shares = np.full((len(rows), len(self._classes)), LEAST_PROBABILITY)
        shares[:, np.searchsorted(self._classes, model.classes_)] = model.predict_proba(rows)
        return shares / shares.sum(axis=1, keepdims=True)

    @property
    def _has_lone_labels(self) -> bool:
        """Whether some class has one row alone among those that models are fitted to."""
        if self._classes is None:
            return False
        return any(np.unique(self._y[train], return_counts=True)[1].min() < 2 for train, _ in self._splits)

    def _baseline(self, name: str) -> Any:
        """An unfitted estimator that takes the data frame as it is: missing values, categories and all."""
        from sklearn.compose import make_column_transformer
        from sklearn.dummy import DummyClassifier, DummyRegressor
        from sklearn.impute import SimpleImputer
        from sklearn.linear_model import LogisticRegression, RidgeCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

        from restt_baselines import make

        if name in ("mean", "class shares"):
            return DummyRegressor() if name == "mean" else DummyClassifier(strategy="prior")
        x = self._x
        texts = [column for column in x.columns if x[column].dtype == "category"]
        numbers = [column for column in x.columns if column not in texts]
        if name == "boosting":
            model = make("hgb", self.task, random_state=self._seed)
            if self._has_lone_labels:
                model.set_params(early_stopping=False)  # which holds rows of every class out
            wide = [column for column in texts if len(x[column].cat.categories) > _MOST_LEVELS]
            if not wide:
                return model
            codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
            coded = make_column_transformer((codes, wide), remainder="passthrough", verbose_feature_names_out=False)
            return make_pipeline(coded.set_output(transform="pandas"), model)
        scaled = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
        # Unseen levels and those of less than a hundredth of the rows share one place, as in ResTT.
        states = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=0.01, sparse_output=False)
        linear = RidgeCV(np.logspace(-2, 4, 13)) if self.task == "regression" else LogisticRegression(max_iter=1000)
        return make_pipeline(make_column_transformer((scaled, numbers), (states, texts)), linear)


def _coverage(x: Any, y: np.ndarray, own: _Predicted, seed: int) -> dict[str, Any]:
    pairs, fifths, low, high = [], [], np.full(len(y), None), np.full(len(y), None)
    if own.ends is not None:
        inside = (own.ends[:, :, 0] <= y) & (y <= own.ends[:, :, 1])
        widths = own.ends[:, :, 1] - own.ends[:, :, 0]
        shown = COVERAGES.index(SHOWN_COVERAGE)
        low, high = own.ends[shown].T

        def held(level: int, rows: Any) -> dict[str, float]:
            observed, width = float(inside[level, rows].mean()), float(widths[level, rows].mean())
            return {"expected": COVERAGES[level], "observed": observed, "width": width}

        pairs = [held(level, slice(None)) for level in range(len(COVERAGES))]
        for part in np.array_split(np.argsort(own.values, kind="stable"), PARTS):
            if len(part):
                ends = {"low": float(own.values[part[0]]), "high": float(own.values[part[-1]]), "rows": len(part)}
                fifths.append({**ends, **held(shown, part)})
    chosen = np.sort(np.random.default_rng(seed).permutation(len(y))[:SHOWN_ROWS])
    listed = zip(*(values[chosen].tolist() for values in (own.values, y, low, high)), strict=True)
    rows = [dict(zip(("predicted", "observed", "low", "high"), row, strict=True)) for row in listed]
    groups = weak_groups(x, row_losses(y, own.values, None), y - own.values)
    return {"coverage": pairs, "fifths": fifths, "rows": rows, "groups": groups}


def _reliability(x: Any, y: np.ndarray, predicted: _Predicted, classes: np.ndarray) -> dict[str, Any]:
    own = np.searchsorted(classes, y)
    if len(classes) == 2:
        probability, right = predicted.values[:, 1], own == 1
    else:
        probability, right = predicted.values.max(axis=1), predicted.values.argmax(axis=1) == own
    # Bins of equally many rows: probabilities of a rare class would all lie in the first of equal width.
    cuts = np.unique(np.quantile(probability, np.linspace(0, 1, BINS + 1)[1:-1]))
    places = np.searchsorted(cuts, probability, side="left")
    bins = []
    for place in np.unique(places):
        inside, observed = probability[places == place], right[places == place]
        ends = {"low": float(inside.min()), "high": float(inside.max())}
        shares = {"predicted": float(inside.mean()), "observed": float(observed.mean())}
        bins.append({**ends, **shares, "rows": len(inside)})
    return {
        "of": classes.tolist()[1] if len(classes) == 2 else None,
        "bins": bins,
        "confusion": confusion(own, predicted.values),
        "groups": weak_groups(x, row_losses(y, predicted.values, classes)),
    }


def split_rows(
    y: np.ndarray,
    labels: np.ndarray | None,
    seed: int,
    settings: ScoringSettings,
    *,
    groups: np.ndarray | None = None,
    times: np.ndarray | None = None,
) -> tuple[list[Split], str]:
    """Pairs of row numbers, and in words how they were made.

    ``labels`` (B,) are those of a classification, spread evenly; rows of one of ``groups`` (B,) are never on both
    sides; with ``times`` (B,) the latest rows are held out.
    """
    if times is not None:
        return _latest(times, labels, settings)
    if groups is not None:
        return _grouped(y, labels, groups, seed, settings)
    return _random(y, None if labels is None else _common_labels(labels), seed, settings)


def _random(y: np.ndarray, labels: np.ndarray | None, seed: int, settings: ScoringSettings) -> tuple[list[Split], str]:
    from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

    rows = len(y)
    if rows < settings.fold_rows:
        # Where every class has fewer rows than there are folds, chance alone spreads them.
        even = labels is not None and np.unique(labels, return_counts=True)[1].max() >= settings.folds
        kind = StratifiedKFold if even else KFold
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # classes of fewer rows than folds
            parts = kind(settings.folds, shuffle=True, random_state=seed).split(np.zeros(rows), labels)
            return list(parts), f"{settings.folds} folds"
    held = min(round(settings.held_share * rows), settings.most_held)
    train, out = train_test_split(np.arange(rows), test_size=held, random_state=seed, stratify=labels)
    return [(train[: settings.most_trained], out)], f"{100 * held / rows:.2g} % of the rows"


def _grouped(
    y: np.ndarray, labels: np.ndarray | None, groups: np.ndarray, seed: int, settings: ScoringSettings
) -> tuple[list[Split], str]:
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold

    count = len(np.unique(groups))
    if count < 2:
        raise ValueError(f"group must have at least two different values, got {count}")
    folds = min(settings.folds, count)
    kind: Any = GroupKFold if labels is None else StratifiedGroupKFold
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes of fewer rows than folds
        parts = list(kind(folds, shuffle=True, random_state=seed).split(np.zeros(len(y)), labels, groups))
    if labels is not None:
        parts = [(train, out) for train, out in parts if len(out) and len(np.unique(labels[train])) > 1]
        if not parts:
            raise ValueError("group must leave rows of two classes outside each group: each class is in one group")
    if len(y) < settings.fold_rows:
        return parts, f"{len(parts)} folds of whole groups, {count} in all"
    train, out = parts[0]
    return [
        (train[: settings.most_trained], out[: settings.most_held])
    ], f"whole groups, {100 / folds:.2g} % of the rows"


def _latest(times: np.ndarray, labels: np.ndarray | None, settings: ScoringSettings) -> tuple[list[Split], str]:
    order = np.argsort(times, kind="stable")
    border = times[order[-max(1, min(round(settings.held_share * len(times)), settings.most_held))]]
    before, after = order[times[order] < border], order[times[order] >= border]
    if len(before) < 2:
        raise ValueError("time must have different values: nothing lies before the latest fifth of the rows")
    if labels is not None and len(np.unique(labels[before])) < 2:
        only = shown(labels[before[0]])
        raise ValueError(f"time must leave rows of two classes before the latest fifth of the rows, got {only} alone")
    share = f"{100 * len(after) / len(times):.2g} % of the rows"
    return [(before[-settings.most_trained :], after)], f"the latest {share}"


def _common_labels(labels: np.ndarray) -> np.ndarray:  # (B,) -> (B,)
    """Labels by which rows are split evenly: those of one row alone count as the most common."""
    classes, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return np.where(counts[places] < 2, classes[counts.argmax()], labels)


def group_codes(values: Any) -> np.ndarray:  # (B,) int64
    """Number of each row's group; rows without one are groups of their own."""
    codes = np.asarray(pd.factorize(values)[0], dtype=np.int64)
    codes[codes < 0] = codes.max(initial=0) + 1 + np.arange((codes < 0).sum())
    return codes
