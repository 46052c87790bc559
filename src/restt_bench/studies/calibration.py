"""Are the classifier's probabilities usable? Log-loss on held-out folds, against logistic regression.

Every model sees the same folds. Beside the log-loss: accuracy, the expected calibration error of the most probable
class, which is how far stated confidence and hit rate are apart, and seconds per fold.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from restt.estimators import ResTTClassifier, ResTTNetClassifier
from restt_bench.case import Settings

if TYPE_CHECKING:
    from rich.console import Console

SETS = {"iris": load_iris, "wine": load_wine, "breast-cancer": load_breast_cancer, "digits": load_digits}
FOLDS = 5
BINS = 10


def calibration(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Means over the folds, for every set and model."""
    names, folds = (["iris"], 2) if settings.quick else (list(SETS), FOLDS)
    entries = []
    for name in names:
        for entry in _measured(name, folds, settings, device):
            entries.append(entry)
            scores = ", ".join(f"{key} {entry[key]:.4f}" for key in ("log_loss", "accuracy", "calibration_error"))
            console.print(f"{name}, {entry['model']}: {scores}")
    return {"title": "Probabilities on held-out folds", "folds": folds, "results": entries, "targets": []}


def _models(settings: Settings, device: str) -> dict[str, Any]:
    """All with their defaults."""
    seed = settings.seed
    ours: dict[str, Any] = {"random_state": seed, "device": device}
    trained: dict[str, Any] = {**ours, "epochs": 2 if settings.quick else "auto"}
    return {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        "ResTT": ResTTClassifier(**ours, effort="quick" if settings.quick else "auto"),
        "ResTT, 4 runs": ResTTNetClassifier(runs=4, **trained),
        "ResTT, squares": ResTTNetClassifier(loss="mse", **trained),
    }


def calibration_error(probabilities: np.ndarray, y: np.ndarray) -> float:
    """Σ over bins of confidence: share of rows · |mean confidence − hit rate|.

    >>> calibration_error(np.array([[0.75, 0.25], [0.75, 0.25]]), np.array([0, 1]))
    0.25
    """
    confidence, hits = probabilities.max(axis=1), probabilities.argmax(axis=1) == y
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs(confidence[bins == b].mean() - hits[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
    return float(sum(gaps))


def _measured(name: str, folds: int, settings: Settings, device: str) -> list[dict[str, Any]]:
    x, y = SETS[name](return_X_y=True)
    splits = list(StratifiedKFold(folds, shuffle=True, random_state=settings.seed).split(x, y))
    found = []
    for label, model in _models(settings, device).items():
        scores, began = [], time.perf_counter()
        for train, test in splits:
            probabilities = model.fit(x[train], y[train]).predict_proba(x[test])
            accuracy = accuracy_score(y[test], probabilities.argmax(axis=1))
            scores.append((log_loss(y[test], probabilities), accuracy, calibration_error(probabilities, y[test])))
        loss, hit_rate, error = np.mean(scores, axis=0).tolist()
        found.append(
            {
                "set": name,
                "model": label,
                "log_loss": loss,
                "log_loss_std": float(np.std([score[0] for score in scores])),
                "accuracy": hit_rate,
                "calibration_error": error,
                "seconds_per_fold": (time.perf_counter() - began) / folds,
            }
        )
    return found
