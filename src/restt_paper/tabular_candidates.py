"""Settings of ResTT on small tables, among which inner folds choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np

from restt.estimators import ResTTRegressor
from restt.features import FeatureMap, Hat, Trigonometric

# What all candidates have in common.
BOND_DIM = 8
EPOCHS = 300
RATE = 0.05
HEAD_PENALTY = 0.003
COMMON = {"bond_dim": BOND_DIM, "epochs": EPOCHS, "lr": RATE, "head_penalty": HEAD_PENALTY}

# Hats are named by placement and number of knots.
MAPS = (
    "trigonometric",
    "hat-uniform-4",
    "hat-uniform-6",
    "hat-uniform-8",
    "hat-uniform-16",
    "hat-quantile-4",
    "hat-quantile-8",
)
# (chain, linear), from mild to strong.
PENALTIES = ((0.003, 0.01), (0.01, 0.01), (0.03, 0.03), (0.1, 0.1))


@dataclass(frozen=True, order=True)
class Candidate:
    """One setting: the map of the columns, whether log y is fitted instead of y, and the graded penalty."""

    feature_map: str
    log_target: bool
    chain: float
    linear: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Candidate:
        """What :meth:`to_dict` gave."""
        return cls(**values)

    @property
    def penalty(self) -> dict[str, float]:
        """As the estimator takes it."""
        return {"chain": self.chain, "linear": self.linear, "head": HEAD_PENALTY}

    def estimator(self, runs: int, seed: int, device: str) -> Any:
        """The estimator with this setting, ``runs`` members averaged."""
        from sklearn.compose import TransformedTargetRegressor

        model = ResTTRegressor(
            bond_dim=BOND_DIM,
            feature_map=read_map(self.feature_map),
            epochs=EPOCHS,
            lr=RATE,
            penalty=self.penalty,
            runs=runs,
            device=device,
            precision="float32",
            random_state=seed,
        )
        if not self.log_target:
            return model
        return TransformedTargetRegressor(model, func=np.log, inverse_func=np.exp, check_inverse=False)


def candidates(maps: Sequence[str] = MAPS, penalties: Sequence[tuple[float, float]] = PENALTIES) -> list[Candidate]:
    """Every map with either target and every penalty.

    >>> len(candidates()), candidates()[0].feature_map
    (56, 'trigonometric')
    """
    return [Candidate(name, log, *penalty) for name, log, penalty in product(maps, (False, True), penalties)]


def read_map(name: str) -> FeatureMap:
    """The unfitted map that ``name`` stands for.

    >>> read_map("hat-quantile-8")
    Hat(knots=8, placement='quantile', outside='clamp')
    """
    if name == "trigonometric":
        return Trigonometric()
    kind, placement, knots = name.split("-")
    assert kind == "hat"
    return Hat(knots=int(knots), placement=placement)
