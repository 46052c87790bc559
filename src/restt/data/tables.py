"""Tables by name: Boston and ALE from their files, digits and diabetes from scikit-learn."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import torch

from restt.data.catalog import Entry
from restt.data.dataset import Dataset

DIGITS_FULL_SCALE = 16


def load_boston(entry: Entry, files: Sequence[tuple[Path, bytes]]) -> Dataset:
    """Read x (506, 13) and target MEDV; the line of sizes above the column names is skipped."""
    return _from_csv(entry, files, target="MEDV", skip_lines=1)


def load_ale(entry: Entry, files: Sequence[tuple[Path, bytes]]) -> Dataset:
    """Read x (107, 4) and target ale; ``sd_ale`` is a by-product of measuring the target and would give it away."""
    return _from_csv(entry, files, target="ale", ignore=("sd_ale",))


def load_digits(entry: Entry) -> Dataset:
    """Load x (1797, 64) in [0, 1], float32."""
    from sklearn import datasets

    bunch = datasets.load_digits()
    return Dataset(
        name=entry.name,
        rows=(torch.tensor(bunch.data / DIGITS_FULL_SCALE, dtype=torch.float32), torch.tensor(bunch.target).long()),
        feature_names=tuple(bunch.feature_names),
        target_name="label",
        classes=tuple(str(label) for label in bunch.target_names),
        source=entry.source,
        description=entry.description,
    )


def load_diabetes(entry: Entry) -> Dataset:
    """Load x (442, 10) in scikit-learn's scaling, float64."""
    from sklearn import datasets

    bunch = datasets.load_diabetes()
    return Dataset(
        name=entry.name,
        rows=(torch.tensor(bunch.data), torch.tensor(bunch.target)),
        feature_names=tuple(bunch.feature_names),
        target_name="progression",
        source=entry.source,
        description=entry.description,
    )


def _from_csv(
    entry: Entry, files: Sequence[tuple[Path, bytes]], target: str, ignore: Sequence[str] = (), skip_lines: int = 0
) -> Dataset:
    """Read a file of numbers under a line of column names; its hash was checked, so its form is known."""
    _, content = files[0]
    names, *rows = csv.reader(content.decode().splitlines()[skip_lines:])
    values = dict(
        zip(names, torch.tensor([[float(field) for field in row] for row in rows], dtype=torch.float64).T, strict=True)
    )
    kept = [name for name in names if name != target and name not in ignore]
    return Dataset(
        name=entry.name,
        rows=(torch.stack([values[name] for name in kept], dim=1), values[target].contiguous()),
        feature_names=tuple(kept),
        target_name=target,
        source=entry.source,
        description=entry.description,
    )
