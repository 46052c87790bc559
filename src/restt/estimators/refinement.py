"""A solved module trained on by gradients, on all rows of a table too long for the solver.

The prior is learned from a sample, and the train out of it is where training begins. It goes on in the prior's own
coordinates (:mod:`restt.estimators.compact`), with a penalty on the distance from the start that falls with the rows as
a prior's does, and what is kept is what is best on rows held out from both: never worse there than the start.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from restt import chain
from restt._common.devices import fitting_threads
from restt.chain.packed import is_worth_packing
from restt.estimators.compact import Basis, even, in_basis, in_states, interpolated, state_bases
from restt.estimators.encoding import Encoding
from restt.estimators.progress import shown_progress
from restt.module import ResTT
from restt.train import EpochRecord, Penalty, TrainConfig, train
from restt.train.objective import read_targets, row_loss
from restt.train.runs import working_copy

# Rows held out: this share, but at most this many.
HELD_SHARE = 0.1
MOST_HELD = 20_000
# Adam's rate, in units of the prior's standard deviation of a weight.
RATE = 1e-2
WARMUP_EPOCHS = 0.5
# Rows of a step: fewer where an epoch would have less than this many steps; more on a GPU, which would wait for its
# launches.
FEWEST_STEPS = 64
SMALLEST_BATCH, BATCH, GPU_BATCH = 128, 512, 4096
# Multiplications (rows · Σ widths · r² of each epoch) that a refinement may take, the steps of one on a GPU, which take
# as long however little is multiplied, and the bounds of its epochs.
CPU_WORK, GPU_WORK = 3e11, 3e12
GPU_STEPS = 2500
FEWEST_EPOCHS, MOST_EPOCHS = 3, 20
# Tried side by side where there is work left for all, as multiples of the penalty: how far a sample is to be trusted
# depends on the table, and matters less the more rows there are.
PENALTIES = (0.3, 3.0, 30.0)
TRIED_ROWS = 100_000
# Epochs without a better held-out loss after which it stops, as a share of all.
PATIENCE_SHARE = 0.5
# Rows that are predicted at once: their site vectors, in float64, are there three times.
PREDICTED_ROWS = 1024


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a table as a refinement takes them."""

    positions: Tensor  # (B, N), of :func:`~restt.estimators.compact.state_positions`
    targets: Tensor  # (B, O) values or (B,) classes
    weights: np.ndarray  # (B,), what rows count in the loss

    def __len__(self) -> int:
        return len(self.positions)

    def take(self, rows: np.ndarray) -> Rows:
        """Some of the rows."""
        index = torch.from_numpy(rows)
        return Rows(self.positions[index], self.targets[index], self.weights[rows])


@dataclass(frozen=True, eq=False)
class Refined:
    """What is best on the held-out rows: the module as it was refined, or the start."""

    module: ResTT
    history: list[EpochRecord]
    start_loss: float  # mean loss on the held-out rows
    loss: float


def held_out(rows: int) -> int:
    """How many rows of a table are held out.

    >>> held_out(5_000), held_out(1_000_000)
    (500, 20000)
    """
    return min(MOST_HELD, round(HELD_SHARE * rows))


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
) -> Refined:
    """Train ``module`` on all ``rows`` and keep what is best on ``held``.

    Parameters
    ----------
    module : ResTT
        Of the encoding's site vectors, with one run: where the training begins.
    rows : Rows
        Of a table.
    bases : N of them
        In which it is trained, :func:`~restt.estimators.compact.prior_bases` where there is a prior.
    loss : str
        One of :data:`restt.train.objective.LOSSES`.
    penalty : float
        What the squared distance of each weight from the start adds to the mean loss, where a weight has a variance of
        about 1/r: noise · r / rows for squared errors, r / rows for log-losses.
    device, precision
        Of the training; the module that comes back is on the CPU, in the dtype of the one given.
    """
    given = module.first.dtype
    if not is_worth_packing([basis.values.shape[1] for basis in bases]):
        bases = even(bases)  # nothing then has to be masked in every step
    begun = in_basis(module, bases, torch.float64 if precision == "float64" else torch.float32).to(device)
    mapped = interpolated(bases, encoding, begun.first)
    work = float(begun.sites * begun.feature_dim * begun.bond_dim**2) * len(rows)
    for_all = len(rows) <= TRIED_ROWS and work * len(PENALTIES) * MOST_EPOCHS <= budget(device)
    factors = PENALTIES if for_all else (1.0,)
    weights = tuple(penalty * factor for factor in factors)
    working = working_copy(begun, [0] * len(factors))
    largest = GPU_BATCH if device.type == "cuda" else BATCH
    batch = min(len(rows), max(SMALLEST_BATCH, min(largest, len(rows) // FEWEST_STEPS)))
    epochs = epochs_within(work, device, len(rows) / batch)
    config = TrainConfig(
        rates="uniform",
        epochs=epochs,
        batch_size=batch,
        lr=RATE,
        schedule="warmup-cosine",
        warmup_epochs=WARMUP_EPOCHS,
        loss=loss,
        penalty=Penalty(chain=weights, linear=weights, head=weights, towards="start"),
        patience=max(FEWEST_EPOCHS, math.ceil(PATIENCE_SHARE * epochs)),
        keep="best",
        seed=seed,
    )
    records = train(
        working,
        rows.positions,
        rows.targets,
        config=config,
        sample_weight=None if (rows.weights == rows.weights[0]).all() else rows.weights,
        validation=(held.positions, held.targets, held.weights),
        feature_map=mapped,
        map_batches=True,
    )
    with (
        chain.precision("float32" if precision == "float64" else precision),
        fitting_threads(work * batch / len(rows) * len(factors)),
    ):
        history = list(shown_progress(records, epochs, verbose))
    losses = np.array([record.validation["loss"] for record in history])  # (epochs, S), NaN once a run has stopped
    best = int(np.where(np.isnan(losses), np.inf, losses).min(axis=0).argmin())
    refined = in_states(working_copy(working, [best]), bases, given)
    start_loss, found = (held_out_loss(each, encoding, held, loss) for each in (module, refined))
    failed = [event.message for record in history for event in record.events if event.kind == "failed"]
    if len(failed) == len(factors):
        warnings.warn(
            f"training on all {len(rows)} rows was stopped because it exploded again and again ({failed[0]}); what was "
            "best on held-out rows is kept",
            ConvergenceWarning,
            stacklevel=2,
        )
    better = found < start_loss
    return Refined(refined if better else module, history, start_loss, found if better else start_loss)


def epochs_within(work: float, device: torch.device, steps: float) -> int:
    """Passes over the rows, each of this much work in this many steps: by these alone, so that a fit can be repeated.

    >>> epochs_within(2e10, torch.device("cpu"), 200), epochs_within(1e13, torch.device("cpu"), 200)
    (15, 3)
    >>> epochs_within(2e10, torch.device("cuda"), 200)
    12
    """
    passes = budget(device) / work
    if device.type == "cuda":
        passes = min(passes, GPU_STEPS / steps)
    return int(np.clip(passes, FEWEST_EPOCHS, MOST_EPOCHS))


def budget(device: torch.device) -> float:
    """The multiplications that a refinement may take."""
    return GPU_WORK if device.type == "cuda" else CPU_WORK


@torch.no_grad()
def outputs_of(module: ResTT, encoding: Encoding, positions: Tensor) -> Tensor:  # (B, N) -> (B, O)
    """What the module with one run says of rows, in pieces of bounded size."""
    mapped = interpolated(state_bases(encoding), encoding, module.first)
    return torch.cat([module(mapped(part.to(module.first)))[0] for part in positions.split(PREDICTED_ROWS)])


def held_out_loss(module: ResTT, encoding: Encoding, held: Rows, loss: str) -> float:
    """The mean loss on rows, each as much as it weighs."""
    outputs = outputs_of(module, encoding, held.positions)
    targets = read_targets(held.targets, module.outputs, loss, outputs.dtype, outputs.device)
    losses = row_loss(loss)(outputs[None], targets[None])[0].double().cpu().numpy()
    return float(np.average(losses, weights=held.weights))
