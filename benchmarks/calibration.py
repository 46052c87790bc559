"""Are the classifier's probabilities usable? Log-loss on held-out folds, against logistic regression.

    python benchmarks/calibration.py                 all sets, 5 folds, results/calibration.json
    python benchmarks/calibration.py --quick         one small set, 2 folds, nothing written

Every model sees the same folds. Beside the log-loss: accuracy, and the expected calibration error of the most probable
class (10 bins), which is how far stated confidence and hit rate are apart.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from restt._common.files import write_json_atomic
from restt._common.provenance import provenance
from restt.estimators import ResTTClassifier

SETS = {"iris": load_iris, "wine": load_wine, "breast-cancer": load_breast_cancer, "digits": load_digits}
BINS = 10


def models(seed: int) -> dict[str, Any]:
    """The rivals, all with their defaults."""
    return {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        "ResTT": ResTTClassifier(random_state=seed),
        "ResTT, 4 runs": ResTTClassifier(runs=4, random_state=seed),
        "ResTT, squares": ResTTClassifier(loss="mse", random_state=seed),
    }


def calibration_error(probabilities: np.ndarray, y: np.ndarray) -> float:
    """Σ over bins of confidence: share of rows · |mean confidence − hit rate|."""
    confidence, hits = probabilities.max(axis=1), probabilities.argmax(axis=1) == y
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs(confidence[bins == b].mean() - hits[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
    return float(sum(gaps))


def measure(name: str, folds: int, seed: int) -> list[dict[str, Any]]:
    """One entry per model, means over the folds."""
    x, y = SETS[name](return_X_y=True)
    splits = list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(x, y))
    found = []
    for label, model in models(seed).items():
        scores, began = [], time.perf_counter()
        for train, test in splits:
            probabilities = model.fit(x[train], y[train]).predict_proba(x[test])
            scores.append(
                (
                    log_loss(y[test], probabilities),
                    accuracy_score(y[test], probabilities.argmax(axis=1)),
                    calibration_error(probabilities, y[test]),
                )
            )
        loss, accuracy, error = np.mean(scores, axis=0).tolist()
        seconds = (time.perf_counter() - began) / folds
        found.append(
            {
                "set": name,
                "model": label,
                "log_loss": loss,
                "log_loss_std": float(np.std([score[0] for score in scores])),
                "accuracy": accuracy,
                "calibration_error": error,
                "seconds_per_fold": seconds,
            }
        )
        print(f"{name:14} {label:20} log-loss {loss:.4f}  accuracy {accuracy:.4f}  calibration error {error:.4f}")
    return found


def main(arguments: list[str] | None = None) -> int:
    """Measure and, unless quick, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default="results/calibration.json")
    given = parser.parse_args(arguments)
    names, folds = (["iris"], 2) if given.quick else (list(SETS), given.folds)
    command = f"python benchmarks/calibration.py --folds {folds} --seed {given.seed}"
    origin = provenance(seed=given.seed, command=command)
    entries = [entry for name in names for entry in measure(name, folds, given.seed)]
    if not given.quick:
        content = {"provenance": origin, "folds": folds, "results": entries}
        print(write_json_atomic(given.output, content))
    return 0


if __name__ == "__main__":
    sys.exit(main())
