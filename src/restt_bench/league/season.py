"""All matches, side by side where there are workers, and what they come to: means, paired differences, a figure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from joblib import Parallel, delayed
from scipy.stats import t as student

from restt_bench.case import Settings
from restt_bench.league.fixtures import Fixture, fixtures
from restt_bench.league.match import Field, Score, play
from restt_bench.league.models import OURS, players
from restt_bench.targets import Target

if TYPE_CHECKING:
    from rich.console import Console

METRICS = ("r2", "rmse", "accuracy", "log_loss", "nll", "coverage", "interval_width", "seconds", "predict_seconds")
# What a table is decided by, and whether more of it is better.
DECIDED_BY = {"regression": ("r2", True), "classification": ("log_loss", False)}
CONFIDENCE = 0.95
# Means that the default fits should reach.
WANTED = {("boston", "r2"): 0.885, ("ale", "r2"): 0.76, ("boston, the paper's split", "r2"): 0.875,
          ("ale, the paper's split", "r2"): 0.736, ("product", "r2"): 0.975, ("XOR of 3 in 20", "accuracy"): 0.98,
          ("arm", "r2"): 0.97}  # fmt: skip
COVERAGES = (0.88, 0.93)  # the mean over tables of 90 % intervals


def league(device: str, settings: Settings, console: Console) -> dict[str, Any]:
    """Every model on every split of every table. Everything runs on the CPU, ``settings.workers`` matches at a time."""
    results, differences = played(fixtures(settings.seed, quick=settings.quick), players, settings, console)
    return {
        "title": "The league of tables: everything at its defaults",
        "coverage_asked": 0.9,
        "confidence": CONFIDENCE,
        "results": results,
        "differences": differences,
        "targets": [target.as_dict() for target in _targets(results)],
    }


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
        differences += _differences(fixture, scores)
        metric, more = DECIDED_BY[fixture.task]
        ranked = sorted((row for row in rows if metric in row), key=lambda row: row[metric], reverse=more)
        told = ", ".join(f"{row['model']} {row[metric]:.3f}" for row in ranked)
        console.print(f"{fixture.name} ({fixture.splits} splits), {metric}: {told}", markup=False)
    return results, differences


def _means(fixture: Fixture, scores: Sequence[Score]) -> list[dict[str, Any]]:
    rows = []
    for name in dict.fromkeys(score["model"] for score in scores):
        own = [score for score in scores if score["model"] == name]
        row: dict[str, Any] = {
            "table": fixture.name,
            "task": fixture.task,
            "made": fixture.made,
            "rows": fixture.train if isinstance(fixture.train, int) else round(fixture.train * len(fixture.x)),
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


def _differences(fixture: Fixture, scores: Sequence[Score]) -> list[dict[str, Any]]:
    """Ours less every other, split by split."""
    metric, more = DECIDED_BY[fixture.task]
    by_model: dict[str, dict[int, float]] = {}
    for score in scores:
        if metric in score:
            by_model.setdefault(score["model"], {})[score["split"]] = score[metric]
    own = by_model.get(OURS, {})
    found = []
    for name, theirs in by_model.items():
        shared = sorted(set(own) & set(theirs))
        if name == OURS or not shared:
            continue
        gaps = np.array([own[split] - theirs[split] for split in shared])
        trained = fixture.train if isinstance(fixture.train, int) else fixture.train * len(fixture.x)
        interval = paired_interval(gaps, (len(fixture.x) - trained) / trained)
        entry: dict[str, Any] = {"table": fixture.name, "metric": metric, "baseline": name, "mean": float(gaps.mean())}
        better = gaps.mean() > 0 if more else gaps.mean() < 0
        if interval is None:
            verdict = "one split"
        else:
            entry |= {"low": interval[0], "high": interval[1]}
            verdict = "tie" if interval[0] <= 0 <= interval[1] else "ahead" if better else "behind"
        found.append({**entry, "verdict": verdict})
    return found


def paired_interval(gaps: np.ndarray, test_over_train: float) -> tuple[float, float] | None:
    """Where the mean difference lies, for splits that share rows (Nadeau and Bengio, 2003); of one split, None.

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
    found = [
        Target(f"{table}: {metric}", "at least", bound, "", round(ours[table][metric], 4))
        for (table, metric), bound in WANTED.items()
        if table in ours and metric in ours[table]
    ]
    covered = [row["coverage"] for row in ours.values() if "coverage" in row and row["made"]]
    if covered and len(ours) > 2:
        mean = round(float(np.mean(covered)), 4)
        found.append(Target("mean coverage of 90 % intervals, made tables", "at least", COVERAGES[0], "", mean))
        found.append(Target("mean coverage of 90 % intervals, made tables", "at most", COVERAGES[1], "", mean))
    return found
