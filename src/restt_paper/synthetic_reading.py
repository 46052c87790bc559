"""The results files of the synthetic figure, brought together by data set."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Differences below this share of the target's standard deviation decide nothing.
TIE = 0.01


@dataclass(frozen=True)
class Case:
    """One data set: N(0, ·) read as ``reading``, training rows, d; and each model's result, None where it is absent."""

    reading: str
    rows: int
    d: int
    results: Mapping[str, Mapping[str, Any] | None]

    @property
    def complete(self) -> bool:
        """Whether every model's results are there."""
        return all(result is not None for result in self.results.values())

    def __getitem__(self, model: str) -> Mapping[str, Any]:
        """The model's result, which must be there."""
        found = self.results[model]
        assert found is not None
        return found

    @property
    def target_std(self) -> float | None:
        """Of the test rows: the error of a model that answers 0. None while nothing is there."""
        stds = [float(result["target_std"]) for result in self.results.values() if result is not None]
        return stds[0] if stds else None

    def mean(self, model: str, kind: str = "selected") -> float | None:
        """Mean error over repeats, in units of y; None where one of them failed or all are still missing."""
        result = self.results[model]
        if result is None or None in result[kind]:
            return None
        return statistics.fmean(result[kind])

    def least(self, model: str) -> float:
        """The smallest error the model can have, in units of the target's standard deviation over all rows."""
        result = self[model]
        return float(result["least_rmse"]) / math.sqrt(sum(result["order_variances"]))

    def lead(self, better: str, worse: str) -> float | None:
        """By how much ``better`` is in front, in units of the target's standard deviation; None where unknown."""
        ours, theirs, unit = self.mean(better), self.mean(worse), self.target_std
        return None if ours is None or theirs is None or unit is None else (theirs - ours) / unit

    def verdict(self, better: str, worse: str) -> str:
        """``"yes"``, ``"no"`` or ``"tie"`` to "better's error is below worse's", ``"?"`` where unknown.

        >>> results = {name: {"selected": [rmse], "target_std": 2.0} for name, rmse in {"a": 0.5, "b": 0.51}.items()}
        >>> Case("std", 100, 1, results).verdict("a", "b")
        'tie'
        """
        lead = self.lead(better, worse)
        if lead is None:
            return "?"
        return "tie" if abs(lead) < TIE else "yes" if lead > 0 else "no"


def read_case(reading: str, rows: int, d: int, files: Mapping[str, Mapping[str, Any] | None]) -> Case:
    """A case from the whole files of its models."""
    return Case(reading, rows, d, {model: None if found is None else found["result"] for model, found in files.items()})
