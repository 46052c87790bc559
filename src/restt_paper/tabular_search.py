"""Which settings suit a training part: cross-validation of all candidates, folds and candidates side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from restt.estimators.encoding import fit_encoding
from restt.estimators.gradient import LEAST_SECOND_MOMENT
from restt.estimators.tables import ArrayTable
from restt.module import ResTT
from restt.train import Penalty, TrainConfig, train
from restt_paper.tabular_candidates import BOND_DIM, EPOCHS, HEAD_PENALTY, RATE, Candidate, read_map

FOLDS = 5


def cross_validate(
    x: np.ndarray,  # (B, C)
    y: np.ndarray,  # (B,), above 0 where a candidate takes its logarithm
    candidates: Sequence[Candidate],
    *,
    seed: int,
    repeats: int = 1,
    device: str = "cpu",
    epochs: int = EPOCHS,
) -> dict[Candidate, np.ndarray]:  # (B,) each
    """What each candidate predicts for every row when it is not trained on it.

    The rows are cut into folds ``repeats`` times, and the predictions averaged. Knots, scales and the scale of y are
    learned on all the rows given, weights on the other folds only.
    """
    from sklearn.model_selection import RepeatedKFold

    folds = list(RepeatedKFold(n_splits=FOLDS, n_repeats=repeats, random_state=seed).split(x))
    found = {}
    for name in dict.fromkeys(candidate.feature_map for candidate in candidates):
        group = [candidate for candidate in candidates if candidate.feature_map == name]
        encoding = fit_encoding(ArrayTable(x), np.ones(len(x)), feature_map=read_map(name))
        vectors = encoding.vectors(torch.from_numpy(x)).float()  # (B, N, I)
        outputs = _train_folds(vectors, y, group, [kept for kept, _ in folds], seed, epochs, device)
        for candidate, of_folds in zip(group, outputs, strict=True):
            total = np.zeros(len(y))
            for predicted, (_, held) in zip(_decode(of_folds, y, candidate.log_target), folds, strict=True):
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
    seed: int,
    epochs: int,
    device: str,
) -> np.ndarray:  # (candidates, folds, B)
    """Standardised outputs for all rows of each candidate trained on each of ``kept``."""
    rows, runs = len(y), len(group) * len(kept)
    moment = vectors.square().sum(-1).mean(0).clamp(min=LEAST_SECOND_MOMENT)
    module = ResTT(
        sites=vectors.shape[1],
        feature_dim=vectors.shape[2],
        bond_dim=BOND_DIM,
        outputs=1,
        second_moment=moment,
        bias=True,
        runs=runs,
        device=device,
    )
    folds = [fold for _ in group for fold in range(len(kept))]
    module.reset_parameters(seed=seed, run_ids=folds)
    config = TrainConfig(
        epochs=epochs,
        batch_size=None,
        lr=RATE,
        schedule="cosine",
        penalty=Penalty(
            chain=[candidate.chain for candidate in group for _ in kept],
            linear=[candidate.linear for candidate in group for _ in kept],
            head=HEAD_PENALTY,
        ),
        seed=seed,
        run_ids=folds,
    )
    # Both targets lie in one table, y first, and each run is given the rows that hold its own.
    both = vectors.repeat(2, 1, 1)
    targets = torch.from_numpy(np.concatenate([_encode(y, False), _encode(y, True)])).float()
    subset = [torch.from_numpy(fold + rows * candidate.log_target) for candidate in group for fold in kept]
    for _ in train(module, both, targets, config=config, subset=subset):
        pass
    with torch.no_grad():
        outputs = module(vectors.to(device))[..., 0].double().cpu().numpy()
    return outputs.reshape(len(group), len(kept), rows)


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
