"""The models of the synthetic figure, trained: all repeats and rates of a tensor train side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from restt.data import Dataset
from restt.module import ResTT
from restt.train import TrainConfig, train

# Rows whose outputs are taken at once when errors are measured.
ROWS_AT_ONCE = 4096


def hold_out(dataset: Dataset, fraction: float) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Rows to train on, and the last ``fraction`` of the training rows to choose rate and epoch by."""
    held = max(1, round(fraction * len(dataset.x_train)))
    kept = (dataset.x_train[:-held], dataset.y_train[:-held])
    return kept, (dataset.x_train[-held:], dataset.y_train[-held:])


def train_chains(
    dataset: Dataset,
    topology: str,
    *,
    bond_dim: int,
    rates: Sequence[float],
    repeats: int,
    epochs: int,
    batch_size: int,
    weight_decay: float,
    validation_fraction: float,
    seed: int,
    device: str,
) -> dict[str, Any]:
    """Train ``repeats`` initialisations at each rate; the figures are those of the best rate.

    The rate is the one whose repeats have the lowest mean validation error at their best epochs. ``final`` is the test
    error after the last epoch, ``selected`` that of the epoch with the lowest validation error, ``best_on_test`` the
    lowest of all epochs, for comparison only. An exploded repeat has NaN.
    """
    (x, y), (x_held, y_held) = hold_out(dataset, validation_fraction)
    x_test, y_test = dataset.x_test.to(device), dataset.y_test.to(device)
    runs = len(rates) * repeats
    # Repeat k begins with the same weights and sees the same batches at every rate.
    children = [repeat for _ in rates for repeat in range(repeats)]
    module = ResTT(
        sites=x.shape[1],
        feature_dim=x.shape[2],
        bond_dim=bond_dim,
        outputs=1,
        topology=topology,
        second_moment=x.square().sum(-1).mean(0),
        init="paper",
        runs=runs,
        device=device,
    )
    module.reset_parameters(seed=seed, run_ids=children)
    config = TrainConfig(
        rates="uniform",
        epochs=epochs,
        batch_size=batch_size,
        lr=[rate for rate in rates for _ in range(repeats)],
        weight_decay=weight_decay,
        # The paper's training has no guard that would save an exploding run.
        max_failures=None,
        seed=seed,
        run_ids=children,
    )
    training, validation, test = [], [], []
    for record in train(module, x, y, config=config, validation=(x_held, y_held)):
        training.append([math.sqrt(loss) if loss >= 0 else math.nan for loss in record.train_loss])
        validation.append(list(record.validation["rmse"]))
        test.append(rmse_of_runs(module, x_test, y_test))
    shape = (epochs, len(rates), repeats)
    curves = {
        "training": torch.tensor(training, dtype=torch.float64).view(shape),
        "validation": torch.tensor(validation, dtype=torch.float64).view(shape),
        "test": torch.stack(test).view(shape),
    }
    return _chosen(curves, rates)


@torch.no_grad()
def rmse_of_runs(
    module: ResTT,
    x: Tensor,  # (B, N, I)
    y: Tensor,  # (B,)
) -> Tensor:  # (S,) float64, on the CPU
    """Each run's root mean square error."""
    total: Any = 0.0
    for rows, values in zip(x.split(ROWS_AT_ONCE), y.split(ROWS_AT_ONCE), strict=True):
        total = total + (module(rows)[..., 0] - values).double().square().sum(1)
    return (total / len(x)).sqrt().cpu()


def linear_regression(dataset: Dataset, validation_fraction: float) -> dict[str, Any]:
    """The same of least squares on all entries of all sites: nothing to choose, and no initialisation to repeat."""
    from restt_baselines import make

    (x, y), _ = hold_out(dataset, validation_fraction)
    model = make("lr", task="regression").fit(x.flatten(1).numpy(), y.numpy())
    errors = {}
    for name, rows, values in (("training_rmse", x, y), ("final", dataset.x_test, dataset.y_test)):
        predicted = torch.from_numpy(model.predict(rows.flatten(1).numpy()))
        errors[name] = [float((predicted - values).double().square().mean().sqrt())]
    return {**errors, "selected": errors["final"]}


def _chosen(curves: dict[str, Tensor], rates: Sequence[float]) -> dict[str, Any]:  # (epochs, rates, repeats) each
    """What a results file says, from the errors after each epoch."""
    comparable = curves["validation"].nan_to_num(math.inf)
    lowest, epoch = comparable.min(0)  # (rates, repeats)
    best = int(lowest.mean(1).argmin())
    ours = {name: curve[:, best].T for name, curve in curves.items()}  # (repeats, epochs)
    picked = epoch[best].unsqueeze(1)
    exploded = lowest[best].isinf()
    return {
        "lr": rates[best],
        "validation_by_rate": {f"{rate:g}": row.tolist() for rate, row in zip(rates, lowest, strict=True)},
        "final": ours["test"][:, -1].tolist(),
        "selected": ours["test"].gather(1, picked)[:, 0].masked_fill(exploded, math.nan).tolist(),
        "best_on_test": ours["test"].nan_to_num(math.inf).min(1).values.tolist(),
        "selected_epoch": (epoch[best] + 1).tolist(),
        "training_rmse": ours["training"][:, -1].tolist(),
        "curves": {
            name: [[float(f"{value:.5g}") for value in row] for row in curve.tolist()] for name, curve in ours.items()
        },
    }
