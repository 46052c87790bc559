"""ResTT's settings on small tables, chosen by cross-validation with folds and candidates side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt.estimators import ResTTNetRegressor
from restt.estimators.encoding import fit_encoding
from restt.estimators.gradient import EncodedExamples, Fit
from restt.estimators.settings import NET, settle
from restt.estimators.side_by_side import train_side_by_side
from restt.estimators.tables import ArrayTable
from restt.features import FeatureMap, Hat, Trigonometric
from restt.module import ResTT
from restt.train import Penalty, TrainConfig

# What all candidates have in common.
COMMON: Mapping[str, Any] = {"bond_dim": 8, "epochs": 300, "lr": 0.05, "head_penalty": 0.003}

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
    """What differs: the map of the columns, whether log y is fitted instead of y, and the graded penalty."""

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

    def estimator(self, common: Mapping[str, Any], runs: int, seed: int, device: str) -> Any:
        """The estimator with these settings and those in ``common``, ``runs`` members averaged."""
        from sklearn.compose import TransformedTargetRegressor

        model = ResTTNetRegressor(
            bond_dim=common["bond_dim"],
            feature_map=read_map(self.feature_map),
            epochs=common["epochs"],
            lr=common["lr"],
            penalty={"chain": self.chain, "linear": self.linear, "head": common["head_penalty"]},
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


def cross_validate(
    x: np.ndarray,  # (B, C)
    y: np.ndarray,  # (B,), above 0 where a candidate takes its logarithm
    candidates: Sequence[Candidate],
    *,
    common: Mapping[str, Any],
    folds: int,
    seed: int,
    repeats: int = 1,
    device: str = "cpu",
) -> dict[Candidate, np.ndarray]:  # (B,) each
    """What each candidate predicts for every row when it is not trained on it.

    The rows are cut into folds ``repeats`` times, and the predictions averaged. Knots, scales and the scale of y are
    learned on all the rows given, weights on the other folds only.
    """
    from sklearn.model_selection import RepeatedKFold

    splits = list(RepeatedKFold(n_splits=folds, n_repeats=repeats, random_state=seed).split(x))
    found = {}
    for name in dict.fromkeys(candidate.feature_map for candidate in candidates):
        group = [candidate for candidate in candidates if candidate.feature_map == name]
        encoding = fit_encoding(ArrayTable(x), np.ones(len(x)), feature_map=read_map(name))
        vectors = encoding.vectors(torch.from_numpy(x)).float()  # (B, N, I)
        outputs = _train_folds(vectors, y, group, [kept for kept, _ in splits], common, seed, device)
        for candidate, of_folds in zip(group, outputs, strict=True):
            total = np.zeros(len(y))
            for predicted, (_, held) in zip(_decode(of_folds, y, candidate.log_target), splits, strict=True):
                total[held] += predicted[held]
            found[candidate] = total / repeats
    return found


def best_candidate(predictions: dict[Candidate, np.ndarray], y: np.ndarray) -> Candidate:
    """The one with the smallest squared error."""
    return min(predictions, key=lambda candidate: _squares(predictions[candidate], y))


def best_average(predictions: dict[Candidate, np.ndarray], y: np.ndarray, size: int) -> dict[Candidate, int]:
    """Candidates and how often each counts in an average of ``size``: always the one that helps the average most.

    R. Caruana, A. Niculescu-Mizil, G. Crew, A. Ksikes, "Ensemble selection from libraries of models" (2004).

    >>> high, low = Candidate("hat-uniform-4", False, 0.1, 0.1), Candidate("hat-uniform-8", False, 0.1, 0.1)
    >>> predicted = {high: np.array([1.5, 2.0]), low: np.array([0.0, 1.0])}
    >>> list(best_average(predicted, np.array([1.0, 1.6]), size=3).values())
    [2, 1]
    """
    total = np.zeros(len(y))
    counts: dict[Candidate, int] = {}
    for members in range(1, size + 1):
        helps = {candidate: _squares((total + own) / members, y) for candidate, own in predictions.items()}
        chosen = min(helps, key=lambda candidate: helps[candidate])
        total = total + predictions[chosen]
        counts[chosen] = counts.get(chosen, 0) + 1
    return counts


def _train_folds(
    vectors: Tensor,  # (B, N, I)
    y: np.ndarray,
    group: Sequence[Candidate],
    kept: Sequence[np.ndarray],
    common: Mapping[str, Any],
    seed: int,
    device: str,
) -> np.ndarray:  # (candidates, folds, B)
    """Standardised outputs for all rows of each candidate trained on each of ``kept``."""
    rows, sites, width = vectors.shape
    settings = settle(
        rows,
        sites * width,
        common["bond_dim"],
        1,
        device=device,
        precision="float32",
        batch_size=rows,
        epochs=common["epochs"],
    )
    # Folds differ in their initial weights, candidates do not.
    starts = [_start(vectors, common, seed, fold, device) for fold in range(len(kept))]
    vectors = vectors.to(device)
    targets = {log: torch.from_numpy(_encode(y, log)).float()[:, None] for log in (False, True)}
    examples = {
        (fold, log): EncodedExamples(vectors[own], targets[log][own], np.ones(len(own)))
        for fold, own in enumerate(kept)
        for log in targets
    }
    fits = []
    for candidate in group:
        penalty = Penalty(chain=candidate.chain, linear=candidate.linear, head=common["head_penalty"])
        config = TrainConfig(
            rates="uniform",
            epochs=common["epochs"],
            batch_size=None,
            lr=common["lr"],
            schedule="cosine",
            penalty=penalty,
            seed=seed,
        )
        fits += [
            Fit(start, examples[fold, candidate.log_target], None, config, settings)
            for fold, start in enumerate(starts)
        ]
    trained = train_side_by_side(fits)
    with torch.no_grad():
        outputs = [found.module(vectors)[0, :, 0].double().cpu().numpy() for found in trained]
    return np.stack(outputs).reshape(len(group), len(kept), rows)


def _start(vectors: Tensor, common: Mapping[str, Any], seed: int, fold: int, device: str) -> ResTT:
    """A module at the initial weights of a fold."""
    module = ResTT(
        sites=vectors.shape[1],
        feature_dim=vectors.shape[2],
        bond_dim=common["bond_dim"],
        outputs=1,
        second_moment=vectors.square().sum(-1).mean(0).clamp(min=NET.least_second_moment),
        bias=True,
        runs=1,
        device=device,
    )
    module.reset_parameters(seed=seed, run_ids=[fold])
    return module


def _encode(y: np.ndarray, log: bool) -> np.ndarray:
    mean, scale, values = _scale(y, log)
    return (values - mean) / scale


def _decode(outputs: np.ndarray, y: np.ndarray, log: bool) -> np.ndarray:  # (…, B)
    mean, scale, values = _scale(y, log)
    restored = outputs * scale + mean
    # A diverged run must not overflow; it loses the comparison all the same.
    return np.exp(np.minimum(restored, values.max() + 10.0)) if log else restored


def _scale(y: np.ndarray, log: bool) -> tuple[float, float, np.ndarray]:
    values = np.log(y) if log else y
    return float(values.mean()), float(values.std()), values


def _squares(predicted: np.ndarray, y: np.ndarray) -> float:
    squares = float(np.square(predicted - y).mean())
    return squares if math.isfinite(squares) else math.inf
