"""Which rows models are scored on: chance, whole groups, the latest in time, or a table of their own."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

Split = tuple[np.ndarray, np.ndarray]  # numbers of the rows to fit to, and of those to predict


@dataclass(frozen=True)
class ScoringSettings:
    """How much is held out. The sizes bound the time that scoring takes: none was tuned for a score."""

    folds: int = 5
    fold_rows: int = 500  # from this many rows on, one part is held out: a fifth of them scores well enough
    held_share: float = 0.2
    most_held: int = 20_000
    most_trained: int = 50_000  # rows that the scored models are fitted to; the same for each


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
    if groups is not None and times is not None:
        raise ValueError("group and time cannot be given together: hold out groups, or the latest rows")
    if times is not None:
        return _latest(times, settings)
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
    kept, out = train_test_split(np.arange(rows), test_size=held, random_state=seed, stratify=labels)
    return [(kept[: settings.most_trained], out)], f"{100 * held / rows:.2g} % of the rows"


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
        parts = [(kept, out) for kept, out in parts if len(out) and len(np.unique(labels[kept])) > 1]
        if not parts:
            raise ValueError("group must leave rows of two classes outside each group: each class is in one group")
    if len(y) < settings.fold_rows:
        return parts, f"{len(parts)} folds of whole groups, {count} in all"
    kept, out = parts[0]
    return [
        (kept[: settings.most_trained], out[: settings.most_held])
    ], f"whole groups, {100 / folds:.2g} % of the rows"


def _latest(times: np.ndarray, settings: ScoringSettings) -> tuple[list[Split], str]:
    order = np.argsort(times, kind="stable")
    border = times[order[-max(1, min(round(settings.held_share * len(times)), settings.most_held))]]
    before, after = order[times[order] < border], order[times[order] >= border]
    if len(before) < 2:
        raise ValueError("time must have different values: nothing lies before the latest fifth of the rows")
    share = f"{100 * len(after) / len(times):.2g} % of the rows"
    return [(before[-settings.most_trained :], after)], f"the latest {share}"


def _common_labels(labels: np.ndarray) -> np.ndarray:  # (B,) -> (B,)
    """Labels by which rows are split evenly: those of one row alone count as the most common."""
    found, places, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return np.where(counts[places] < 2, found[counts.argmax()], labels)


def group_codes(values: Any) -> np.ndarray:  # (B,) int64
    """Number of each row's group; rows without one are groups of their own."""
    codes = np.asarray(pd.factorize(values)[0], dtype=np.int64)
    codes[codes < 0] = codes.max(initial=0) + 1 + np.arange((codes < 0).sum())
    return codes
