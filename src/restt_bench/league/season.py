"""The league: every model on every split of every table, means, paired differences, and one rule for who is ahead."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import norm
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error
from sklearn.model_selection import train_test_split

from restt_bench.case import Settings
from restt_bench.league.fixtures import CHOSE_WEIGHTS, Fixture, fixtures
from restt_bench.league.models import OURS, Maker, players, quick_players, versions
from restt_bench.targets import Target

if TYPE_CHECKING:
    from rich.console import Console

METRICS = ("r2", "rmse", "accuracy", "log_loss", "nll", "coverage", "interval_width", "seconds", "predict_seconds")
# Metric that decides a table, and whether more of it is better.
DECIDED_BY = {"regression": ("r2", True), "classification": ("log_loss", False)}
CONFIDENCE, COVERAGE = 0.95, 0.9
# The least probability a model is charged with: one that says "never" of what happens would have an infinite log-loss.
LEAST_PROBABILITY = 1e-9
# Means that the default fits should reach.
WANTED = {("boston", "r2"): 0.885, ("ale", "r2"): 0.76, ("boston, the paper's split", "r2"): 0.875,
          ("ale, the paper's split", "r2"): 0.736, ("product", "r2"): 0.975, ("XOR of 3 in 20", "accuracy"): 0.98,
          ("arm", "r2"): 0.97}  # fmt: skip
COVERAGES = (0.88, 0.93)  # the mean over tables of 90 % intervals

Score = dict[str, Any]
Field = Callable[[Fixture, int], dict[str, Maker]]  # from a table and a seed to the models that take it


def league(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Every model on every split of every table. Everything runs on the CPU, ``settings.workers`` fits at a time."""
    tables = list(fixtures(settings.seed, quick=settings.quick))
    results, differences = played(tables, quick_players if settings.quick else players, settings, console)
    return {
        "title": "The league of tables: everything at its defaults",
        "coverage_asked": COVERAGE,
        "confidence": CONFIDENCE,
        "packages": versions(),
        "standing": standing(tables, differences),
        "results": results,
        "differences": differences,
        "targets": [target.as_dict() for target in _targets(results)],
    }


def standing(tables: Sequence[Fixture], differences: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Tables won, lost, tied and undecided by one rule: intervals of the paired differences.

    Won: ahead of every other model. Lost: behind at least one. Undecided: one split tells nothing.
    """
    counts = {"won": 0, "lost": 0, "tied": 0, "undecided": 0}
    for fixture in tables:
        verdicts = {entry["verdict"] for entry in differences if entry["table"] == fixture.name}
        if not verdicts or "one split" in verdicts:
            counts["undecided"] += 1
        elif "behind" in verdicts:
            counts["lost"] += 1
        else:
            counts["won" if verdicts == {"ahead"} else "tied"] += 1
    made = [fixture.name for fixture in tables if fixture.made]
    used = sum(name in CHOSE_WEIGHTS for name in made)
    return {"tables": len(tables), "made": len(made), "made_and_used_in_development": used, **counts}


def played(
    tables: Iterable[Fixture], field: Field, settings: Settings, console: Console
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Means of every model of the field on every table, and the paired differences of ours from the others."""
    results: list[dict[str, Any]] = []
    differences: list[dict[str, Any]] = []
    side_by_side = Parallel(n_jobs=settings.workers, return_as="generator")
    for fixture in tables:
        matches = [(name, split) for split in fixture.split_seeds for name in field(fixture, settings.seed)]
        scores = list(
            side_by_side(delayed(play)(fixture, name, split, settings.seed, field) for name, split in matches)
        )
        rows = _means(fixture, scores)
        results += rows
        differences += paired_differences(fixture, scores)
        metric, more = DECIDED_BY[fixture.task]
        ranked = sorted((row for row in rows if metric in row), key=lambda row: row[metric], reverse=more)
        line = ", ".join(f"{row['model']} {row[metric]:.3f}" for row in ranked)
        console.print(f"{fixture.name} ({fixture.splits} splits), {metric}: {line}", markup=False)
    return results, differences


def play(fixture: Fixture, name: str, split: int, seed: int, field: Field = players) -> Score:
    """The scores of one model fitted to the rows of a split, on its other rows; or why it has none."""
    labels = fixture.y if fixture.task == "classification" else None
    rows = np.arange(len(fixture.x))
    fit, test = train_test_split(rows, train_size=fixture.train, random_state=split, stratify=labels)
    record: Score = {"table": fixture.name, "model": name, "split": split}
    model = field(fixture, seed)[name]()
    try:
        with warnings.catch_warnings():
            # Models at their defaults may stop early, and say so at every fit.
            for category in (ConvergenceWarning, FutureWarning, UserWarning, RuntimeWarning):
                warnings.simplefilter("ignore", category)
            began = time.perf_counter()
            model.fit(fixture.x[fit], fixture.y[fit])
            fitted = time.perf_counter()
            judge = _judge_values if fixture.task == "regression" else _judge_classes
            scores = judge(model, fixture.x[test], fixture.y[test], name)
            ended = time.perf_counter()
    except (ValueError, np.linalg.LinAlgError, MemoryError, RuntimeError) as error:
        return {**record, "failed": f"{type(error).__name__}: {error}"[:300]}
    return {**record, **scores, "seconds": fitted - began, "predict_seconds": ended - fitted}


def _judge_values(model: Any, x: np.ndarray, y: np.ndarray, name: str) -> Score:
    predicted = model.predict(x)
    scores: Score = {"r2": float(r2_score(y, predicted)), "rmse": float(root_mean_squared_error(y, predicted))}
    if hasattr(model, "predict_interval"):
        low, high = model.predict_interval(x, COVERAGE).T
        spread = model.predict(x, return_std=True)[1]
    elif name == "Gaussian process":
        inner = model.regressor_
        mean, std = inner[-1].predict(inner[:-1].transform(x), return_std=True)
        scale = model.transformer_.scale_[0]
        centre, spread = mean * scale + model.transformer_.mean_[0], std * scale
        half = norm.ppf(0.5 + COVERAGE / 2) * spread
        low, high = centre - half, centre + half
    else:
        return scores
    inside = (y >= low) & (y <= high)
    return {
        **scores,
        "coverage": float(inside.mean()),
        "interval_width": float(np.mean(high - low)),
        "nll": float(-norm.logpdf(y, predicted, spread).mean()),
    }


def _judge_classes(model: Any, x: np.ndarray, y: np.ndarray, name: str) -> Score:
    probabilities = np.clip(model.predict_proba(x), LEAST_PROBABILITY, None)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    chosen = model.classes_[probabilities.argmax(axis=1)]
    return {
        "accuracy": float(accuracy_score(y, chosen)),
        "log_loss": float(log_loss(y, probabilities, labels=model.classes_)),
    }


def _means(fixture: Fixture, scores: Sequence[Score]) -> list[dict[str, Any]]:
    rows = []
    for name in dict.fromkeys(score["model"] for score in scores):
        own = [score for score in scores if score["model"] == name]
        row: dict[str, Any] = {
            "table": fixture.name,
            "task": fixture.task,
            "made": fixture.made,
            "rows": fixture.fit_rows,
            "columns": fixture.x.shape[1],
            "splits": "random" if fixture.seeds is None else "the paper's",
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


def paired_differences(fixture: Fixture, scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Ours less every other, split by split, with an interval and a verdict."""
    metric, more = DECIDED_BY[fixture.task]
    by_model: dict[str, dict[int, float]] = {}
    for score in scores:
        if metric in score:
            by_model.setdefault(score["model"], {})[score["split"]] = score[metric]
    own = by_model.get(OURS, {})
    differences = []
    for name, theirs in by_model.items():
        shared = sorted(set(own) & set(theirs))
        if name == OURS or not shared:
            continue
        gaps = np.array([own[split] - theirs[split] for split in shared])
        interval = paired_interval(gaps, (len(fixture.x) - fixture.fit_rows) / fixture.fit_rows)
        entry: dict[str, Any] = {"table": fixture.name, "metric": metric, "baseline": name, "mean": float(gaps.mean())}
        better = gaps.mean() > 0 if more else gaps.mean() < 0
        if interval is None:
            verdict = "one split"
        else:
            entry |= {"low": interval[0], "high": interval[1]}
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


def _targets(results: Sequence[dict[str, Any]]) -> list[Target]:
    ours = {row["table"]: row for row in results if row["model"] == OURS}
    targets = [
        Target(f"{table}: {metric}", "at least", bound, "", round(ours[table][metric], 4))
        for (table, metric), bound in WANTED.items()
        if table in ours and metric in ours[table]
    ]
    covered = [row["coverage"] for row in ours.values() if "coverage" in row and row["made"]]
    if covered and len(ours) > 2:
        mean = round(float(np.mean(covered)), 4)
        targets.append(Target("mean coverage of 90 % intervals, made tables", "at least", COVERAGES[0], "", mean))
        targets.append(Target("mean coverage of 90 % intervals, made tables", "at most", COVERAGES[1], "", mean))
    return targets
