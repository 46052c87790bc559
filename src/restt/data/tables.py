"""Boston and ALE from their files, digits and diabetes from scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from restt.data.catalog import Entry
from restt.data.csvfile import parse_csv
from restt.data.dataset import Dataset

DIGITS_FULL_SCALE = 16


def load_boston(entry: Entry, files: Sequence[tuple[Path, bytes]]) -> Dataset:
    """x (506, 13), target MEDV; the line of sizes above the column names is skipped."""
    return _from_csv(entry, files, target="MEDV", skip_lines=1)


def load_ale(entry: Entry, files: Sequence[tuple[Path, bytes]]) -> Dataset:
    """x (107, 4), target ale; ``sd_ale`` is a by-product of measuring the target and would give it away."""
    return _from_csv(entry, files, target="ale", ignore=("sd_ale",))


def load_digits(entry: Entry) -> Dataset:
    """x (1797, 64) in [0, 1], float32."""
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
    """x (442, 10) as scaled by scikit-learn, float64."""
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
    path, content = files[0]
    table = parse_csv(content.decode("utf-8-sig"), target, entry.name, str(path), ignore, skip_lines=skip_lines)
    return replace(table, source=entry.source, description=entry.description)
