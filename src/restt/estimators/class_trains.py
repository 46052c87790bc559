"""Low-bond trains of the logits, trained by gradients over straight lines of numbers and one-hot levels.

Site vectors are u = Vᵀ x with a matrix V (I, J) for each site: a straight line is its values at the knots. Since a
train is linear in each site vector, one over u is one over x exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.devices import fitting_threads
from restt.estimators.class_rows import ClassRows
from restt.estimators.settings import CHAIN_GRADE, Settings
from restt.module import ResTT
from restt.prior import Site
from restt.train import Penalty, TrainConfig, train
from restt.train.runs import working_copy


def line_matrices(
    sites: Sequence[Site], read: Sequence[int], furthest: float
) -> list[Tensor | None]:  # N of (I_n, J_n), None where the train passes a site over
    """A constant and the standardised number of each column, flat beyond ±``furthest``; other states are one-hot."""
    matrices: list[Tensor | None] = [None] * len(sites)
    for n in read:
        site = sites[n]
        matrix = torch.eye(site.width, dtype=torch.float64)
        if site.knots is not None:
            line = torch.tensor(site.values, dtype=torch.float64).clamp(-furthest, furthest)
            both = torch.stack([torch.ones_like(line), line], 1)
            matrix = torch.block_diag(both, torch.eye(site.width - len(line), dtype=torch.float64))
        matrices[n] = matrix
    return matrices


def line_vectors(matrices: Sequence[Tensor | None], rows: ClassRows, like: Settings) -> Tensor:  # (B, read sites, J)
    """Site vectors of rows, padded to the widest."""
    read = [(n, matrix) for n, matrix in enumerate(matrices) if matrix is not None]
    widest = max(matrix.shape[1] for _, matrix in read)
    found = torch.zeros(len(rows), len(read), widest, dtype=like.dtype, device=like.device)
    for place, (n, matrix) in enumerate(read):
        found[:, place, : matrix.shape[1]] = (rows.codes.vectors(n, len(matrix)) @ matrix).to(found)
    return found


def cores_over_states(
    module: ResTT, run: int, matrices: Sequence[Tensor | None], widths: Sequence[int]
) -> list[Tensor]:  # N of (left, I_n, right)
    """Cores over the states, which sum to one and have these widths, of a run of a train over straight lines."""
    inner = iter(core[run].detach().double().cpu() for core in module.cores())
    found: list[Tensor] = []
    for matrix, width in zip(matrices, widths, strict=True):
        if matrix is None:  # never the first site or the last
            bond = found[-1].shape[2]
            found.append(torch.eye(bond, dtype=torch.float64)[:, None, :].expand(bond, width, bond))
            continue
        core = next(inner)
        found.append(core[:, :1] + torch.einsum("ij,ljr->lir", matrix, core[:, 1:]))
    return found


@dataclass(frozen=True, eq=False)
class TrainCandidates:
    """Trains under several penalties, one run for each penalty and fold, judged on held-out rows."""

    held_out: np.ndarray  # (P, B, K)
    penalties: tuple[float, ...] = ()
    matrices: list[Tensor | None] = field(default_factory=list)
    folds: int = 1
    module: ResTT | None = None  # P · F runs

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the candidates."""
        return tuple(f"train, penalty {penalty:g}" for penalty in self.penalties)

    def refined(self, place: int, rows: ClassRows, device: Settings, seed: int) -> list[list[Tensor]]:
        """Cores of the runs under one of the penalties, trained on with all rows: fewer runs where rows are many."""
        assert self.module is not None
        own, first = rows.settings, place * self.folds
        runs = int(np.clip(own.folds * own.step_rows // len(rows), 1, self.folds))
        module = working_copy(self.module, range(first, first + runs)).to(device.device)
        batch = None if len(rows) <= own.step_rows else own.batch
        epochs = own.refining_steps
        if batch is not None:
            epochs = int(np.clip(own.many_steps * batch // len(rows), 1, own.most_epochs))
        # The loss is a mean over rows: the penalty that was right for the sample is a smaller one for more rows.
        penalties = [self.penalties[place] * self.held_out.shape[1] / len(rows)] * runs
        vectors = line_vectors(self.matrices, rows, device)
        _train(module, vectors, rows, penalties, None, own.refining_rate, epochs, batch, device, seed)
        widths = [site.width for site in rows.sites]
        return [cores_over_states(module, run, self.matrices, widths) for run in range(runs)]


def train_candidates(rows: ClassRows, device: Settings, seed: int) -> TrainCandidates:
    """Trains of the folds under as many penalties as the budget has room for, all side by side."""
    own, folds = rows.settings, len(rows.parts)
    # A train over straight lines has a bond more over the states.
    bond = own.train_bond if rows.bond is None else min(own.train_bond, rows.bond - 1)
    matrices = line_matrices(rows.sites, sorted({0, *rows.varying, len(rows.sites) - 1}), own.furthest)
    widths = [matrix.shape[1] for matrix in matrices if matrix is not None]
    products = sum(widths) * bond**2 + max(widths) * bond * rows.classes
    work = float(min(len(rows), own.step_rows)) * products * folds * own.train_steps
    penalties = own.train_penalties[: int(own.trained_work // max(work, 1.0))]
    if len(rows.sites) > own.most_columns or bond == 0 or not penalties:
        return TrainCandidates(np.zeros((0, len(rows), rows.classes)))
    vectors = line_vectors(matrices, rows, device)
    shares = torch.from_numpy(rows.weights / rows.weights.sum()).to(vectors)
    # Site vectors that hardly vary would be given huge initial weights.
    moment = (shares @ vectors.square().sum(-1)).double().cpu().clamp(min=own.least_second_moment)
    options: dict[str, Any] = {"second_moment": moment, "bias": True, "dtype": device.dtype, "device": device.device}
    module = ResTT(len(widths), widths, bond, rows.classes, runs=len(penalties) * folds, **options)
    # Equal initial weights for every penalty: they differ in the penalty alone.
    module.reset_parameters(seed=seed, run_ids=list(range(folds)) * len(penalties))
    assert module.bias is not None
    with torch.no_grad():
        module.bias.copy_(torch.from_numpy(rows.shares).to(module.bias).expand_as(module.bias))
    batch = None if len(rows) <= own.step_rows else own.step_rows
    epochs = own.train_steps if batch is None else -(-own.train_steps * batch // len(rows))
    by_run, parts = np.repeat(penalties, folds).tolist(), list(rows.parts) * len(penalties)
    _train(module, vectors, rows, by_run, parts, own.rate, epochs, batch, device, seed)
    with fitting_threads(device.step_work), torch.no_grad():
        logits = module(vectors).double().cpu().numpy()
    held_out = rows.held_out(logits.reshape(len(penalties), folds, len(rows), rows.classes))
    return TrainCandidates(held_out, penalties, matrices, folds, module.cpu())


def _train(
    module: ResTT,
    vectors: Tensor,
    rows: ClassRows,
    penalties: list[float],
    subset: list[np.ndarray] | None,
    rate: float,
    epochs: int,
    batch: int | None,
    device: Settings,
    seed: int,
) -> None:
    config = TrainConfig(
        rates="uniform",
        epochs=epochs,
        batch_size=batch,
        lr=rate,
        schedule="cosine",
        loss="cross-entropy",
        penalty=Penalty(chain=[CHAIN_GRADE * penalty for penalty in penalties], linear=penalties, head=penalties),
        seed=seed,
    )
    weights = None if bool((rows.weights == rows.weights[0]).all()) else rows.weights
    labels = torch.from_numpy(rows.labels)
    with fitting_threads(device.step_work):
        for _ in train(module, vectors, labels, config=config, sample_weight=weights, subset=subset):
            pass
