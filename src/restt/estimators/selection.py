"""Classes of a table by an average of residual trains, weighted by their log-loss on rows that they have not seen.

Candidates (:mod:`~restt.estimators.class_kernels`, :mod:`~restt.estimators.class_trains`) are fitted to the rows
outside each fold and averaged greedily by the log-loss of the rows inside. Kernels that have a share are then
conditioned on all rows; trains stay those of the folds, whose mean is better than one train, and are trained on with
all rows. All of them are put side by side in one module, whose runs' plain mean is the average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from restt.estimators.class_kernels import KernelCandidates, kernel_candidates
from restt.estimators.class_rows import ClassRows
from restt.estimators.class_trains import TrainCandidates, train_candidates
from restt.estimators.classes import log_loss
from restt.estimators.encoding import Encoding, with_site_means
from restt.estimators.settings import Settings, settle
from restt.estimators.tables import Examples
from restt.estimators.targets import Labels
from restt.module import ResTT
from restt.prior import Settings as PriorSettings
from restt.prior.rounding import residual_module
from restt.prior.sites import hat_map

if TYPE_CHECKING:
    from restt.estimators.classifier import ResTTClassifier

SHARES = "shares"


@dataclass(frozen=True, eq=False)
class Selected:
    """The averaged module and what goes with it."""

    module: ResTT
    encoding: Encoding
    target: Labels
    precision: str
    candidates: dict[str, tuple[float, float]]  # log-loss on held-out rows, share in the average
    loss: float | None  # that of the average; None where rows are too few to judge by
    rounding_error: float  # root mean square by which rounding moved its logits on the rows


def select(given: Examples, parameters: ResTTClassifier, target: Labels, seed: int) -> Selected:
    """The average of candidates with the least log-loss on held-out rows."""
    rows = ClassRows.read(given, parameters, target, seed)
    sample = rows.first(rows.settings.most_rows)
    kernels = kernel_candidates(sample, PriorSettings.of_effort(parameters.effort))
    order = _site_order(rows, kernels.relevance)
    device = _device(sample, parameters)
    trains = TrainCandidates(kernels.held_out[:0])
    if _leave_room(sample, kernels):
        trains = train_candidates(sample.ordered(order), device, seed)
    weights, losses, loss = _chosen(sample, kernels, trains)
    members, error = _members(rows, order, kernels, trains, weights, device, seed)
    hats, shift, scale = hat_map([rows.sites[n] for n in order])
    encoding = Encoding(rows.columns, order, hats, shift, scale, shift.clone(), None)
    return Selected(
        _averaged(members, device),
        with_site_means(encoding, encoding.numbers(given.table), given.weights),
        target,
        device.precision,
        {name: (losses[name], weights[name]) for name in weights},
        loss,
        error,
    )


def _device(rows: ClassRows, parameters: ResTTClassifier) -> Settings:
    own, width = rows.settings, sum(site.width for site in rows.sites)
    bond, count = rows.bond or own.train_bond, min(len(rows), own.step_rows)
    training: dict[str, Any] = {"precision": "auto", "batch_size": count, "epochs": own.train_steps}
    return settle(count, width, bond, own.folds, device=parameters.device, **training)


def _site_order(rows: ClassRows, relevance: np.ndarray) -> tuple[int, ...]:
    """Columns by falling relevance; those of one value after the first, where trains pass them over."""
    varying = set(rows.varying)
    first = [n for n in np.argsort(-relevance, kind="stable").tolist() if n in varying]
    return tuple(first[:1] + [n for n in range(len(relevance)) if n not in varying] + first[1:])


def _leave_room(rows: ClassRows, kernels: KernelCandidates) -> bool:
    """Whether the best kernel's loss is more than the cost of a train, which nothing else could repay."""
    if not rows.is_judged:
        return False
    weights = rows.weights[rows.judged]
    losses = log_loss(kernels.held_out[:, rows.judged], rows.labels[rows.judged], weights)
    return bool(losses.min() * weights.sum() > rows.settings.train_cost)


def _chosen(
    rows: ClassRows, kernels: KernelCandidates, trains: TrainCandidates
) -> tuple[dict[str, float], dict[str, float], float | None]:
    """The candidates' weights and log-losses, and the log-loss of the average."""
    names = [SHARES, *kernels.names, *trains.names]
    if not rows.is_judged:
        # Too few rows to judge by: logistic regression with slopes of variance 1 altogether.
        return {name: float(name == kernels.names[0]) for name in names}, dict.fromkeys(names, float("nan")), None
    held_out = [_held_out_shares(rows)[None], kernels.held_out, trains.held_out]
    logits = np.concatenate(held_out)[:, rows.judged]
    labels, row_weights = rows.labels[rows.judged], rows.weights[rows.judged]
    losses = log_loss(logits, labels, row_weights)
    costs = np.where(np.arange(len(names)) > len(kernels.names), rows.settings.train_cost, 0.0)
    weights = greedy_weights(logits, labels, row_weights, costs, rows.settings.rounds, rows.settings.most_loss)
    loss = float(log_loss(np.tensordot(weights, logits, 1), labels, row_weights))
    return dict(zip(names, weights.tolist(), strict=True)), dict(zip(names, losses.tolist(), strict=True)), loss


def greedy_weights(
    logits: np.ndarray,  # (C, B, K): of C candidates on rows that they were not fitted to
    labels: np.ndarray,  # (B,)
    weights: np.ndarray,  # (B,)
    costs: np.ndarray,  # (C,)
    rounds: int,
    most_loss: float,
) -> np.ndarray:  # (C,), summing to one
    """Weights of the average of logits with the least log-loss: greedy selection with replacement.

    It begins with the best candidate; each round adds the candidate, perhaps again, that lowers the loss of the average
    most (Caruana et al. 2004). The weights are those of the best round. A candidate with more than ``most_loss`` times
    the best one's loss takes no part: it has been far off somewhere, and may be on other rows. ``costs``: by how many
    nats, over all rows together, a candidate has to be better than one without costs; -log of its prior odds.

    >>> right = np.array([[0.0, 2.0], [2.0, 0.0]])
    >>> greedy_weights(np.stack([right, -right]), np.array([1, 0]), np.ones(2), np.zeros(2), 20, 2.0)
    array([1., 0.])
    """
    counts, prior = np.zeros(len(logits)), costs / weights.sum()
    losses = log_loss(logits, labels, weights) + prior
    barred = losses > most_loss * losses.min()
    chosen = int(losses.argmin())
    total, best, kept = np.zeros_like(logits[0]), np.inf, counts
    for size in range(1, rounds + 1):
        counts[chosen] += 1
        total = total + logits[chosen]
        if losses[chosen] < best:
            best, kept = float(losses[chosen]), counts.copy()
        losses = log_loss((total + logits) / (size + 1), labels, weights) + (counts @ prior + prior) / (size + 1)
        losses[barred] = np.inf
        chosen = int(losses.argmin())
    return kept / kept.sum()


def _held_out_shares(rows: ClassRows) -> np.ndarray:  # (B, K)
    """Logits of the classes' shares outside each fold, every class with one row more in all than it has."""
    logits = []
    for part in rows.parts:
        counts = np.bincount(rows.labels[part], rows.weights[part], minlength=rows.classes) + 1 / rows.classes
        logits.append(np.tile(np.log(counts / counts.sum()), (len(rows), 1)))
    return rows.held_out(np.stack(logits))


def _members(
    rows: ClassRows,
    order: Sequence[int],
    kernels: KernelCandidates,
    trains: TrainCandidates,
    weights: dict[str, float],
    device: Settings,
    seed: int,
) -> tuple[list[tuple[list[Tensor], float]], float]:
    """Cores of the members with their weights, which sum up to the average, and the error of the rounded one."""
    own, widths = rows.settings, [site.width for site in rows.sites]
    largest = rows.bond or own.largest_bond
    solved = kernels.solve(np.array([weights[name] for name in kernels.names]))
    solved.constant[:] += weights[SHARES] * rows.shares
    members = [(solved.additive_cores(order, largest), 1.0)]
    products, error = solved.product_cores(order, largest)
    if products:
        members.append((products, 1.0))
    shares = np.array([weights[name] for name in trains.names])
    bond = max(len(core) for cores, _ in members for core in cores)
    run_size = len(widths) * max(widths) * max(bond, own.train_bond + 1) ** 2
    fitting = (own.most_weights // run_size - len(members)) // trains.folds
    # The largest that fit; one where nothing else has a share.
    chosen = np.argsort(-shares)[: max(fitting, int(shares.sum() > 1 - 1e-9))]
    used = 1 - shares.sum() + shares[chosen].sum()
    ordered = rows.ordered(order)
    for place in chosen[shares[chosen] > 0].tolist():
        runs = trains.refined(place, ordered, device, seed)
        members += [(cores, float(shares[place]) / len(runs)) for cores in runs]
    return [(cores, weight / used) for cores, weight in members], error / used


@torch.no_grad()
def _averaged(members: Sequence[tuple[list[Tensor], float]], device: Settings) -> ResTT:
    """The members as runs of one module, each scaled so that the plain mean is the average."""
    bond = max(core.shape[2] for cores, _ in members for core in cores[:-1]) if len(members[0][0]) > 1 else 1
    parts = []
    for cores, weight in members:
        last = cores[-1] * (weight * len(members))
        inner = [torch.nn.functional.pad(core, (0, bond - core.shape[2])) for core in cores[:-1]]
        parts.append(residual_module([*inner, last]))
    shape = (parts[0].sites, list(parts[0].feature_dims), bond, parts[0].outputs)
    module = ResTT(*shape, runs=len(parts), dtype=device.dtype, device=device.device)
    for name, parameter in module.named_parameters():
        parameter.copy_(torch.stack([part.get_parameter(name) for part in parts]))
    return module
