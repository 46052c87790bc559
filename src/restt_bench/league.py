"""The league of tables: the default estimators beside others, everything at its defaults, on the same splits.

Every model is fitted to the same rows of a split and scored on its others; nothing is chosen on those. Of 30 tables 21
are made, and nine of their generators also chose the weights of the prior in 0.8.0: those nine are development tables,
not held-out ones.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error
from sklearn.model_selection import train_test_split

from restt_bench.case import Settings
from restt_bench.league_models import OURS, models
from restt_bench.league_tables import CHOSE_WEIGHTS, LeagueTable, league_tables

if TYPE_CHECKING:
    from rich.console import Console

METRICS = ("r2", "rmse", "accuracy", "log_loss", "nll", "coverage", "interval_width", "seconds", "predict_seconds")
# Metric that decides a table, and whether more of it is better.
DECIDED_BY = {"regression": ("r2", True), "classification": ("log_loss", False)}
CONFIDENCE, COVERAGE = 0.95, 0.9
# Least probability in a log-loss, which would be infinite for a model that gives an observed class none.
LEAST_PROBABILITY = 1e-9

Score = dict[str, Any]


def league(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Every model on every split of every table. Everything runs on the CPU, ``settings.workers`` fits at a time."""
    tables = list(league_tables(settings.seed, quick=settings.quick))
    results: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    side_by_side = Parallel(n_jobs=settings.workers, return_as="generator")
    for table in tables:
        names = models(table, settings.seed, optional=not settings.quick)
        scores = list(
            side_by_side(
                delayed(score)(table, name, split, settings.seed) for split in table.split_seeds for name in names
            )
        )
        rows = _means(table, scores)
        results += rows
        differences += paired_differences(table, scores)
        metric, more = DECIDED_BY[table.task]
        ranked = sorted((row for row in rows if metric in row), key=lambda row: row[metric], reverse=more)
        line = ", ".join(f"{row['model']} {row[metric]:.3f}" for row in ranked)
        console.print(f"{table.name} ({table.splits} splits), {metric}: {line}", markup=False)
    return {
        "title": "The league of tables: everything at its defaults",
        "coverage_asked": COVERAGE,
        "confidence": CONFIDENCE,
        "standing": standing(tables, differences),
        "results": results,
        "differences": differences,
    }


def standing(tables: Sequence[LeagueTable], differences: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Tables won, lost, tied and undecided by one rule: intervals of the paired differences.

    Won: ahead of every other model. Lost: behind at least one. Undecided: one split has no interval.
    """
    counts = {"won": 0, "lost": 0, "tied": 0, "undecided": 0}
    for table in tables:
        verdicts = {entry["verdict"] for entry in differences if entry["table"] == table.name}
        if not verdicts or "one split" in verdicts:
            counts["undecided"] += 1
        elif "behind" in verdicts:
            counts["lost"] += 1
        else:
            counts["won" if verdicts == {"ahead"} else "tied"] += 1
    made = [table.name for table in tables if table.made]
    used = sum(name in CHOSE_WEIGHTS for name in made)
    return {"tables": len(tables), "made": len(made), "made_and_used_in_development": used, **counts}


def score(table: LeagueTable, name: str, split: int, seed: int) -> Score:
    """Scores of one model fitted to the rows of a split, on its other rows; or why it has none."""
    labels = table.y if table.task == "classification" else None
    x_fit, x_test, y_fit, y_test = train_test_split(
        table.x, table.y, train_size=table.train, random_state=split, stratify=labels
    )
    record: Score = {"table": table.name, "model": name, "split": split}
    model = models(table, seed)[name]()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # models at their defaults may stop early, and warn at every fit
            began = time.perf_counter()
            model.fit(x_fit, y_fit)
            fitted = time.perf_counter()
            judge = score_values if table.task == "regression" else score_classes
            scores = judge(model, x_test, y_test)
            ended = time.perf_counter()
    except (ValueError, np.linalg.LinAlgError, MemoryError, RuntimeError) as error:
        return {**record, "failed": f"{type(error).__name__}: {error}"[:300]}
    return {**record, **scores, "seconds": fitted - began, "predict_seconds": ended - fitted}


def score_values(model: Any, x: Any, y: np.ndarray) -> Score:
    """R² and root mean square error and, of models with intervals, their coverage, width and log density."""
    predicted = model.predict(x)
    scores: Score = {"r2": float(r2_score(y, predicted)), "rmse": float(root_mean_squared_error(y, predicted))}
    if not hasattr(model, "predict_interval"):
        return scores
    low, high = model.predict_interval(x, COVERAGE).T
    std = model.predict(x, return_std=True)[1]
    return {
        **scores,
        "coverage": float(((y >= low) & (y <= high)).mean()),
        "interval_width": float(np.mean(high - low)),
        "nll": float(-norm.logpdf(y, predicted, std).mean()),
    }


def score_classes(model: Any, x: Any, y: np.ndarray) -> Score:
    """Accuracy and log-loss."""
    probabilities = np.clip(model.predict_proba(x), LEAST_PROBABILITY, None)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    predicted = model.classes_[probabilities.argmax(axis=1)]
    loss = log_loss(y, probabilities, labels=model.classes_)
    return {"accuracy": float(accuracy_score(y, predicted)), "log_loss": float(loss)}


def _means(table: LeagueTable, scores: Sequence[Score]) -> list[dict[str, Any]]:
    rows = []
    for name in dict.fromkeys(score["model"] for score in scores):
        own = [score for score in scores if score["model"] == name]
        row: dict[str, Any] = {
            "table": table.name,
            "task": table.task,
            "made": table.made,
            "rows": table.fit_rows,
            "columns": table.x.shape[1],
            "splits": "random" if table.seeds is None else "the paper's",
            "count": len(own),
            "model": name,
        }
        failed = [score["failed"] for score in own if "failed" in score]
        if failed:
            rows.append({**row, "failed": failed})
            continue
        for metric in METRICS:
            values = [score[metric] for score in own if metric in score]
            if values:
                row |= {metric: float(np.mean(values)), f"{metric}_std": float(np.std(values)), f"{metric}_all": values}
        rows.append(row)
    return rows


def paired_differences(table: LeagueTable, scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Ours less every other, split by split, with an interval and a verdict."""
    metric, more = DECIDED_BY[table.task]
    by_model: dict[str, dict[int, float]] = {}
    for score in scores:
        if metric in score:
            by_model.setdefault(score["model"], {})[score["split"]] = score[metric]
    own = by_model.pop(OURS, {})
    differences = []
    for name, theirs in by_model.items():
        shared = sorted(set(own) & set(theirs))
        if not shared:
            continue
        gaps = np.array([own[split] - theirs[split] for split in shared])
        interval = paired_interval(gaps, (len(table.x) - table.fit_rows) / table.fit_rows)
        entry: dict[str, Any] = {"table": table.name, "metric": metric, "baseline": name, "mean": float(gaps.mean())}
        verdict = "one split"
        if interval is not None:
            entry |= {"low": interval[0], "high": interval[1]}
            better = gaps.mean() > 0 if more else gaps.mean() < 0
            verdict = "tie" if interval[0] <= 0 <= interval[1] else "ahead" if better else "behind"
        differences.append({**entry, "verdict": verdict})
    return differences


def paired_interval(gaps: np.ndarray, test_over_train: float) -> tuple[float, float] | None:
    """Interval of the mean difference for splits that share rows (Nadeau and Bengio, 2003); None for one split.

    >>> low, high = paired_interval(np.array([0.1, 0.2, 0.3]), 0.5)
    >>> round(low, 3), round(high, 3)
    (-0.193, 0.593)
    """
    count = len(gaps)
    if count < 2:
        return None
    error = np.sqrt((1 / count + test_over_train) * gaps.var(ddof=1))
    half = student.ppf(0.5 + CONFIDENCE / 2, count - 1) * error
    return float(gaps.mean() - half), float(gaps.mean() + half)
