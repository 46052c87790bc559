"""Low-bond trains of the logits, trained by gradients over straight lines of numbers and one-hot levels.

Site vectors are u = Vᵀ x with a matrix V (I, J) for each site: a straight line is its values at the knots. Since a
train is linear in each site vector, one over u is one over x exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.devices import fitting_threads
from restt.estimators.class_rows import ClassRows
from restt.estimators.gradient import unless_equal
from restt.estimators.settings import CHAIN_GRADE, Settings
from restt.module import ResTT
from restt.prior import Site
from restt.train import Penalty, TrainConfig, train
from restt.train.runs import joined, working_copy


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
        found[:, place, : matrix.shape[1]] = (rows.vectors(n) @ matrix).to(found)
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
class Trains:
    """Trains under several penalties: of few folds first, and of the others those that are worth it."""

    rows: ClassRows
    device: Settings
    seed: int
    # Runs by penalty and fold, and their logits of all rows (B, K).
    modules: dict[tuple[float, int], ResTT] = field(default_factory=dict)
    logits: dict[tuple[float, int], np.ndarray] = field(default_factory=dict)

    @cached_property
    def matrices(self) -> list[Tensor | None]:
        """Matrices of straight lines and levels, for the first site, the last one and those that vary."""
        read = sorted({0, *self.rows.varying, len(self.rows.sites) - 1})
        return line_matrices(self.rows.sites, read, self.rows.settings.furthest)

    @cached_property
    def vectors(self) -> Tensor:  # (B, read sites, J)
        """Site vectors of the rows."""
        return line_vectors(self.matrices, self.rows, self.device)

    @property
    def raced(self) -> int:
        """Folds that come first: as few as have rows enough to tell by."""
        counts = np.bincount(self.rows.folds[self.rows.judged]).cumsum()
        return min(int(np.searchsorted(counts, self.rows.settings.raced_rows)) + 1, len(counts))

    @property
    def penalties(self) -> tuple[float, ...]:
        """Penalties that the budget has room for."""
        rows, own = self.rows, self.rows.settings
        if not rows.is_judged or not self._bond or len(rows.sites) > own.longest_train:
            return ()
        products = sum(self._widths) * self._bond**2 + max(self._widths) * self._bond * rows.classes
        work = float(min(len(rows), own.step_rows)) * products * len(rows.parts) * own.train_steps
        return own.train_penalties[: int(own.trained_work // work)]

    @property
    def _bond(self) -> int:
        # A train over straight lines has a bond more over the states.
        own, most = self.rows.settings, self.rows.bond
        return own.train_bond if most is None else min(own.train_bond, most - 1)

    @property
    def _widths(self) -> list[int]:
        return [matrix.shape[1] for matrix in self.matrices if matrix is not None]

    def fit(self, penalties: Sequence[float], folds: Sequence[int]) -> None:
        """Train those of these penalties and folds side by side."""
        rows, own, device = self.rows, self.rows.settings, self.device
        runs = [(penalty, fold) for penalty in penalties for fold in folds]
        if not runs:
            return
        vectors, widths = self.vectors, self._widths
        shares = torch.from_numpy(rows.weights / rows.weights.sum()).to(vectors)
        # Site vectors that hardly vary would be given huge initial weights.
        moment = (shares @ vectors.square().sum(-1)).double().cpu().clamp(min=own.least_second_moment)
        options: dict[str, Any] = {"second_moment": moment, "bias": True, "dtype": device.dtype}
        options |= {"device": device.device, "runs": len(runs)}
        module = ResTT(len(widths), widths, self._bond, rows.classes, **options)
        # Equal initial weights for every penalty: they differ in the penalty alone.
        module.reset_parameters(seed=self.seed, run_ids=[fold for _, fold in runs])
        assert module.bias is not None
        with torch.no_grad():
            module.bias.copy_(torch.from_numpy(rows.shares).to(module.bias).expand_as(module.bias))
        batch = None if len(rows) <= own.step_rows else own.step_rows
        epochs = own.train_steps if batch is None else -(-own.train_steps * batch // len(rows))
        parts = [rows.parts[fold] for _, fold in runs]
        _train(module, vectors, rows, [p for p, _ in runs], parts, own.rate, epochs, batch, device, self.seed)
        with fitting_threads(device.step_work), torch.no_grad():
            logits = module(vectors).double().cpu().numpy()
        self.logits.update(zip(runs, logits, strict=True))
        self.modules.update((run, working_copy(module, [place]).cpu()) for place, run in enumerate(runs))

    def held_out(self, penalties: Sequence[float], folds: int) -> np.ndarray:  # (P, B, K)
        """Logits of each row of the first folds by the train that did not see it."""
        if not penalties:
            return np.zeros((0, len(self.rows), self.rows.classes))
        logits = [[self.logits[penalty, fold] for fold in range(folds)] for penalty in penalties]
        return self.rows.held_out(np.array(logits))

    def refined(self, penalty: float, rows: ClassRows) -> list[list[Tensor]]:
        """Cores of the folds' trains under a penalty, trained on with all rows: fewer of them where rows are many."""
        own, device, matrices = rows.settings, self.device, self.matrices
        runs = int(np.clip(own.folds * own.step_rows // len(rows), 1, len(self.rows.parts)))
        module = joined([self.modules[penalty, fold] for fold in range(runs)]).to(device.device)
        batch = None if len(rows) <= own.step_rows else own.batch
        epochs = own.refining_steps
        if batch is not None:
            epochs = int(np.clip(own.many_steps * batch // len(rows), 1, own.most_epochs))
        # The loss is a mean over rows: the penalty that was right for the sample is a smaller one for more rows.
        penalties = [penalty * len(self.rows) / len(rows)] * runs
        known = rows.means is None and len(rows) == len(self.rows)
        vectors = self.vectors if known else line_vectors(matrices, rows, device)
        _train(module, vectors, rows, penalties, None, own.refining_rate, epochs, batch, device, self.seed)
        widths = [site.width for site in rows.sites]
        return [cores_over_states(module, run, matrices, widths) for run in range(runs)]


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
    labels, weights = torch.from_numpy(rows.labels), unless_equal(rows.weights)
    with fitting_threads(device.step_work):
        for _ in train(module, vectors, labels, config=config, sample_weight=weights, subset=subset):
            pass
