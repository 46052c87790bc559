"""An honest score: every model predicts the same rows, none of which it has seen, and the score has an interval.

Few rows are cut into folds, each predicted by models fitted to the others; of many, one part is held out. ResTT stands
beside a linear model and boosted trees. Intervals are bootstrapped over the held-out rows, the same resamples for all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

FOLDS = 5
FOLD_ROWS = 500  # from this many rows on, one part is held out instead: a fifth of them scores well enough
HELD_SHARE, MOST_HELD = 0.2, 20_000
MOST_TRAINED = 50_000  # rows that the scored models are fitted to; the same for each
RESAMPLES = 400
SURE = 0.95  # what an interval of a score holds of the resamples
COVERAGES = (0.5, 0.8, 0.9, 0.95)
SHOWN_COVERAGE = 0.9
SHOWN_ROWS = 500
BINS = 10
LEAST_PROBABILITY = 1e-6  # of a class that a fold has not seen
MODELS = ("ResTT", "linear", "boosting")
METRICS = {"regression": ("r2", "rmse"), "classification": ("log_loss", "accuracy")}
# What one fit takes of the others' time, for the time left: measured on 500 rows of 20 columns.
COST = {"ResTT": 10.0, "linear": 0.2, "boosting": 1.0}
_MOST_LEVELS = 255  # of a category in scikit-learn's boosting

Step = Callable[[str, float], None]  # what was done, and its cost


@dataclass(frozen=True)
class Honest:
    """What the card says of the held-out rows: its ``held_out``, ``scores`` and ``calibration``."""

    held_out: dict[str, Any]
    scores: list[dict[str, Any]]
    calibration: dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Predicted:
    """What a model says of held-out rows, in the order of ``rows``."""

    rows: np.ndarray  # (B,)
    values: np.ndarray  # (B,) predictions, or (B, K) probabilities
    ends: np.ndarray | None = None  # (len(COVERAGES), B, 2)


def score(make: Callable[[], Any], x: Any, y: np.ndarray, classes: np.ndarray | None, seed: int, step: Step) -> Honest:
    """Score ``make()``, an unfitted estimator, and the baselines on rows of a data frame; ``classes`` None: regression.

    ``step`` is told of each fit; the costs add up to :func:`cost`.
    """
    task = "regression" if classes is None else "classification"
    splits, method = _splits(y, classes, seed)
    parts: dict[str, list[_Predicted]] = {name: [] for name in MODELS}
    for place, (kept, held) in enumerate(splits, start=1):
        for name in MODELS:
            made = make() if name == "ResTT" else _baseline(name, task, x, seed)
            # Of a fold: categories it has not seen and the like say nothing about the model that is kept.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made.fit(x.iloc[kept], y[kept])
                parts[name].append(_predict(made, x, held, classes, intervals=name == "ResTT"))
            fold = f", fold {place} of {len(splits)}" if len(splits) > 1 else ""
            step(f"scoring {name}{fold}", COST[name])
    found = {name: _joined(predictions) for name, predictions in parts.items()}
    rows = found["ResTT"].rows
    scores = _scores(y[rows], {name: one.values for name, one in found.items()}, classes, seed)
    metrics = {one["metric"]: one["value"] for one in scores if one["model"] == "ResTT"}
    held_out = {"method": method, "rows": len(rows), "trained_on": len(splits[0][0]), "metrics": metrics}
    own = found["ResTT"]
    calibration = _coverage(y[rows], own, seed) if classes is None else _reliability(y[rows], own, classes)
    return Honest(held_out, scores, calibration)


def cost(rows: int) -> float:
    """What :func:`score` costs on this many rows, in the units of :data:`COST`."""
    return sum(COST.values()) * (FOLDS if rows < FOLD_ROWS else 1)


def _splits(y: np.ndarray, classes: np.ndarray | None, seed: int) -> tuple[list[tuple[np.ndarray, np.ndarray]], str]:
    """Pairs of row numbers to fit to and to predict, and in words how they were made."""
    from sklearn.model_selection import KFold, StratifiedKFold, train_test_split

    rows = len(y)
    labels = None if classes is None else _common_labels(y)
    if rows < FOLD_ROWS:
        # Where every class has fewer rows than there are folds, chance alone spreads them.
        even = labels is not None and np.unique(labels, return_counts=True)[1].max() >= FOLDS
        kind = StratifiedKFold if even else KFold
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # classes of fewer rows than folds
            parts = kind(FOLDS, shuffle=True, random_state=seed).split(np.zeros(rows), labels)
            return list(parts), f"{FOLDS} folds"
    held = min(round(HELD_SHARE * rows), MOST_HELD)
    kept, out = train_test_split(np.arange(rows), test_size=held, random_state=seed, stratify=labels)
    return [(kept[:MOST_TRAINED], out)], f"{100 * held / rows:.2g} % of the rows"


def _common_labels(y: np.ndarray) -> np.ndarray:  # (B,) -> (B,)
    """Labels by which rows are split evenly: those of one row alone count as the most common."""
    labels, places, counts = np.unique(y, return_inverse=True, return_counts=True)
    return np.where(counts[places] < 2, labels[counts.argmax()], y)


def _predict(model: Any, x: Any, held: np.ndarray, classes: np.ndarray | None, *, intervals: bool) -> _Predicted:
    rows = x.iloc[held]
    if classes is not None:
        probabilities = np.full((len(held), len(classes)), LEAST_PROBABILITY)
        probabilities[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(rows)
        return _Predicted(held, probabilities / probabilities.sum(axis=1, keepdims=True))
    values = np.asarray(model.predict(rows), dtype=np.float64)
    if not intervals or not hasattr(model, "predict_interval"):
        return _Predicted(held, values)
    return _Predicted(held, values, np.stack([model.predict_interval(rows, coverage) for coverage in COVERAGES]))


def _joined(parts: list[_Predicted]) -> _Predicted:
    ends = [part.ends for part in parts if part.ends is not None]
    return _Predicted(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate(ends, axis=1) if len(ends) == len(parts) else None,
    )


def _scores(
    y: np.ndarray, predicted: dict[str, np.ndarray], classes: np.ndarray | None, seed: int
) -> list[dict[str, Any]]:
    """Each model's metrics with intervals. A metric is a function of sums over rows, so a resample only weighs."""
    parts = {name: _sums(y, values, classes) for name, values in predicted.items()}
    metrics = METRICS["regression" if classes is None else "classification"]
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in parts}
    for weights in _weights(len(y), seed):
        for name, terms in parts.items():
            found[name].append(_metrics(weights @ terms, classes is None))
    scores = []
    for name, draws in found.items():
        for place, metric in enumerate(metrics):
            values = np.array([draw[place] for draw in draws])
            # A resample of few rows may hold one value of y alone, which has no R².
            own = values[1:][np.isfinite(values[1:])]
            low, high = np.quantile(own, [(1 - SURE) / 2, (1 + SURE) / 2]) if len(own) else (values[0], values[0])
            entry = {"value": float(values[0]), "low": float(low), "high": float(high)}
            scores.append({"model": name, "metric": metric, **entry})
    return scores


def _weights(rows: int, seed: int) -> Iterator[np.ndarray]:
    """How often each row counts: once each, then in bootstrap resamples."""
    yield np.ones(rows)
    rng = np.random.default_rng(seed)
    for _ in range(RESAMPLES):
        yield np.bincount(rng.integers(rows, size=rows), minlength=rows).astype(np.float64)


def _sums(y: np.ndarray, values: np.ndarray, classes: np.ndarray | None) -> np.ndarray:  # (B, 4) or (B, 3)
    """What each row adds to the sums that the metrics are made of; the first is 1."""
    if classes is None:
        centred = y - y.mean()
        return np.stack([np.ones(len(y)), centred, centred**2, (y - values) ** 2], axis=1)
    own = np.searchsorted(classes, y)
    losses = -np.log(np.clip(values[np.arange(len(y)), own], 1e-15, None))
    return np.stack([np.ones(len(y)), losses, values.argmax(axis=1) == own], axis=1)


def _metrics(sums: np.ndarray, regression: bool) -> tuple[float, ...]:
    if not regression:
        return sums[1] / sums[0], sums[2] / sums[0]
    rows, first, second, errors = sums
    spread = second - first**2 / rows
    return (1.0 - errors / spread if spread > 0 else float("nan")), float(np.sqrt(errors / rows))


def _coverage(y: np.ndarray, found: _Predicted, seed: int) -> dict[str, Any]:
    chosen = np.sort(np.random.default_rng(seed).permutation(len(y))[:SHOWN_ROWS])
    pairs, ends = [], None
    if found.ends is not None:
        inside = (found.ends[:, :, 0] <= y) & (y <= found.ends[:, :, 1])
        widths = found.ends[:, :, 1] - found.ends[:, :, 0]
        pairs = [
            {"expected": expected, "observed": float(held.mean()), "width": float(width.mean())}
            for expected, held, width in zip(COVERAGES, inside, widths, strict=True)
        ]
        ends = found.ends[COVERAGES.index(SHOWN_COVERAGE)]
    rows = [
        {
            "predicted": float(found.values[row]),
            "observed": float(y[row]),
            "low": None if ends is None else float(ends[row, 0]),
            "high": None if ends is None else float(ends[row, 1]),
        }
        for row in chosen
    ]
    return {"coverage": pairs, "rows": rows}


def _reliability(y: np.ndarray, found: _Predicted, classes: np.ndarray) -> dict[str, Any]:
    if len(classes) == 2:
        said, right = found.values[:, 1], y == classes[1]
    else:
        best = found.values.argmax(axis=1)
        said, right = found.values.max(axis=1), classes[best] == y
    places = np.minimum((said * BINS).astype(int), BINS - 1)
    bins = []
    for place in np.unique(places):
        there = places == place
        shares = {"predicted": float(said[there].mean()), "observed": float(right[there].mean())}
        bins.append({"low": place / BINS, "high": (place + 1) / BINS, **shares, "rows": int(there.sum())})
    return {"of": classes.tolist()[1] if len(classes) == 2 else None, "bins": bins}


def _baseline(name: str, task: str, x: Any, seed: int) -> Any:
    """An unfitted estimator that takes the data frame as it is: missing values, categories and all."""
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

    from restt.baselines import make

    texts = [column for column in x.columns if x[column].dtype == "category"]
    numbers = [column for column in x.columns if column not in texts]
    if name == "boosting":
        model = make("hgb", task, random_state=seed)
        wide = [column for column in texts if len(x[column].cat.categories) > _MOST_LEVELS]
        if not wide:
            return model
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
        kept = make_column_transformer((codes, wide), remainder="passthrough", verbose_feature_names_out=False)
        return make_pipeline(kept.set_output(transform="pandas"), model)
    scaled = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    # Unseen levels and those of less than a hundredth of the rows share one place, as in ResTT.
    states = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=0.01, sparse_output=False)
    linear = RidgeCV(np.logspace(-2, 4, 13)) if task == "regression" else LogisticRegression(max_iter=1000)
    return make_pipeline(make_column_transformer((scaled, numbers), (states, texts)), linear)
