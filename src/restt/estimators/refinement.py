"""Training of a solved module on all rows of a table too long for the solver.

The prior is learned from a sample, and its posterior mean is where training begins. The module is trained in the
principal functions of the prior (:mod:`restt.estimators.compact`), with a penalty on the distance from the start that
falls with the rows as a prior's does. The weights of least loss on held-out rows are kept: the start's or better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from restt import chain
from restt._common.devices import fitting_threads
from restt._common.errors import warn_caller
from restt.estimators.compact import Basis, change_basis, interpolated, state_bases
from restt.estimators.encoding import Encoding
from restt.estimators.gradient import multiplication, unless_equal
from restt.estimators.progress import shown_progress
from restt.module import ResTT
from restt.train import EpochRecord, Penalty, TrainConfig, train
from restt.train.objective import read_targets, row_loss
from restt.train.runs import working_copy


@dataclass(frozen=True)
class RefinementSettings:
    """Tuning numbers of a refinement."""

    # Share of the rows that is held out, and its limit.
    held_share: float = 0.1
    most_held: int = 20_000
    # Adam's rate, in units of the prior's standard deviation of a weight.
    rate: float = 1e-2
    warmup_epochs: float = 0.5
    # Rows of a step: fewer where an epoch would have less than fewest_steps; more on a GPU, which would wait for its
    # launches.
    fewest_steps: int = 64
    smallest_batch: int = 128
    batch: int = 512
    gpu_batch: int = 4096
    # Multiplications (rows · Σ widths · r² of each epoch) that a refinement may take, the steps of one on a GPU, which
    # take as long however little is multiplied, and the bounds of its epochs.
    cpu_work: float = 3e11
    gpu_work: float = 3e12
    gpu_steps: int = 2500
    fewest_epochs: int = 3
    most_epochs: int = 20
    # Multiples of the penalty, trained side by side up to tried_rows where there is work left for all: how well a
    # sample represents its table depends on the table, and matters less the more rows there are.
    penalties: tuple[float, ...] = (0.3, 3.0, 30.0)
    tried_rows: int = 100_000
    # Epochs without a better held-out loss after which training stops, as a share of all.
    patience_share: float = 0.5
    # Rows that are predicted at once: their site vectors, in float64, are in memory three times.
    predicted_rows: int = 1024

    def work(self, device: torch.device) -> float:
        """Return the multiplications that a refinement may take."""
        return self.gpu_work if device.type == "cuda" else self.cpu_work

    def epochs(self, work: float, device: torch.device, steps: float) -> int:
        """Return the passes over the rows, each of this much work in this many steps.

        They do not depend on the time that a pass takes, so that a fit can be repeated.

        >>> REFINEMENT.epochs(2e10, torch.device("cpu"), 200), REFINEMENT.epochs(1e13, torch.device("cpu"), 200)
        (15, 3)
        >>> REFINEMENT.epochs(2e10, torch.device("cuda"), 200)
        12
        """
        passes = self.work(device) / work
        if device.type == "cuda":
            passes = min(passes, self.gpu_steps / steps)
        return int(np.clip(passes, self.fewest_epochs, self.most_epochs))


REFINEMENT = RefinementSettings()


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table as a refinement takes them."""

    positions: Tensor  # (B, N), of :func:`~restt.estimators.compact.state_positions`
    targets: Tensor  # (B, O) values or (B,) classes
    weights: np.ndarray  # (B,) in the loss

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, rows: np.ndarray) -> Rows:
        """Return some of the rows."""
        index = torch.from_numpy(rows)
        return Rows(self.positions[index], self.targets[index], self.weights[rows])


@dataclass(frozen=True, eq=False)
class Refined:
    """The better of the refined module and the start on the held-out rows."""

    module: ResTT
    history: list[EpochRecord]
    start_loss: float  # mean loss on the held-out rows
    loss: float


def held_out(rows: int) -> int:
    """Return how many rows of a table are held out.

    >>> held_out(5_000), held_out(1_000_000)
    (500, 20000)
    """
    return min(REFINEMENT.most_held, round(REFINEMENT.held_share * rows))


def refine(
    module: ResTT,
    encoding: Encoding,
    bases: Sequence[Basis],
    rows: Rows,
    held: Rows,
    *,
    loss: str,
    penalty: float,
    device: torch.device,
    precision: str,
    seed: int,
    verbose: int = 0,
    own: RefinementSettings = REFINEMENT,
) -> Refined:
    """Train ``module`` on all ``rows`` and keep what is best on ``held``.

    Parameters
    ----------
    module : ResTT
        Start of the training: a module of the encoding's site vectors, with one run.
    bases : sequence of Basis
        Functions in which each site is trained, :func:`~restt.estimators.compact.prior_bases` where there is a prior.
    loss : str
        One of :data:`restt.train.objective.LOSSES`.
    penalty : float
        Factor of the squared distance of each weight from the start in the mean loss, where a weight has a variance of
        about 1/r: noise · r / rows for squared errors, r / rows for log-losses.
    device, precision
        Of the training; the module that comes back is on the CPU, in the dtype of the one given.
    """
    dtype = torch.float64 if precision == "float64" else torch.float32
    begun = change_basis(module, [basis.back for basis in bases], dtype).to(device)
    mapped = interpolated(bases, encoding, begun.first)
    work = float(begun.sites * begun.feature_dim * begun.bond_dim**2) * len(rows)
    tries_all = len(rows) <= own.tried_rows and work * len(own.penalties) * own.most_epochs <= own.work(device)
    factors = own.penalties if tries_all else (1.0,)
    weights = tuple(penalty * factor for factor in factors)
    working = working_copy(begun, [0] * len(factors))
    largest = own.gpu_batch if device.type == "cuda" else own.batch
    batch = min(len(rows), max(own.smallest_batch, min(largest, len(rows) // own.fewest_steps)))
    epochs = own.epochs(work, device, len(rows) / batch)
    config = TrainConfig(
        rates="uniform",
        epochs=epochs,
        batch_size=batch,
        lr=own.rate,
        schedule="warmup-cosine",
        warmup_epochs=own.warmup_epochs,
        loss=loss,
        penalty=Penalty(chain=weights, linear=weights, head=weights, towards="start"),
        patience=max(own.fewest_epochs, math.ceil(own.patience_share * epochs)),
        keep="best",
        seed=seed,
    )
    records = train(
        working,
        rows.positions,
        rows.targets,
        config=config,
        sample_weight=unless_equal(rows.weights),
        validation=(held.positions, held.targets, held.weights),
        feature_map=mapped,
    )
    with (
        chain.precision(multiplication(precision)),
        fitting_threads(work * batch / len(rows) * len(factors)),
    ):
        history = list(shown_progress(records, epochs, verbose))
    losses = np.array([record.validation["loss"] for record in history])  # (epochs, S), NaN once a run has stopped
    best = int(np.where(np.isnan(losses), np.inf, losses).min(axis=0).argmin())
    refined = change_basis(working_copy(working, [best]), [basis.values for basis in bases], module.first.dtype)
    start_loss, refined_loss = (held_out_loss(part, encoding, held, loss) for part in (module, refined))
    failed = [event.message for record in history for event in record.events if event.kind == "failed"]
    if len(failed) == len(factors):
        warn_caller(
            f"training on all {len(rows)} rows was stopped because it exploded again and again ({failed[0]}); what was "
            "best on held-out rows is kept",
            ConvergenceWarning,
        )
    better = refined_loss < start_loss
    return Refined(refined if better else module, history, start_loss, refined_loss if better else start_loss)


@torch.no_grad()
def outputs_of(module: ResTT, encoding: Encoding, positions: Tensor) -> Tensor:  # (B, N) -> (B, O)
    """Return the outputs of a module with one run, in pieces of bounded size."""
    mapped = interpolated(state_bases(encoding), encoding, module.first)
    return torch.cat([module(mapped(part.to(module.first)))[0] for part in positions.split(REFINEMENT.predicted_rows)])


def held_out_loss(module: ResTT, encoding: Encoding, held: Rows, loss: str) -> float:
    """Return the weighted mean loss on rows."""
    outputs = outputs_of(module, encoding, held.positions)
    targets = read_targets(held.targets, module.outputs, loss, outputs.dtype, outputs.device)
    losses = row_loss(loss)(outputs[None], targets[None])[0].double().cpu().numpy()
    return float(np.average(losses, weights=held.weights))
