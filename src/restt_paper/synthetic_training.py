"""The models of the synthetic figure: trained, all repeats and rates side by side, and the smallest errors possible.

Sites are independent with mean 0, so different terms of a multilinear function are uncorrelated, and the variance of
the difference of two such functions is the squared distance of their coefficients, each entry weighed by its features'
variance. Hence LR, which only has order 1, is left with the variance of orders 2 and 3, and a plain train, which only
has order 3, with that of orders 1 and 2. A bond dimension that is too small adds to that: no train of bond r comes
closer to a tensor than the part of an unfolding beyond its r largest singular values (Eckart and Young).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int, check_positive
from restt.data import Dataset
from restt.data.synthetic import FEATURE_SPREAD, SPREADS
from restt.module import ResTT
from restt.train import TrainConfig, train

MODELS = ("restt", "tt", "lr")
# Rows whose outputs are computed at once when errors are measured.
ROWS_AT_ONCE = 4096
Weights = tuple[Tensor, Tensor, Tensor]  # (d,), (d, d), (d, d, d)


def hold_out(dataset: Dataset, fraction: float) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Rows to train on, and the last ``fraction`` of the training rows to choose rate and epoch by."""
    count = max(1, round(fraction * len(dataset.x_train)))
    kept = (dataset.x_train[:-count], dataset.y_train[:-count])
    return kept, (dataset.x_train[-count:], dataset.y_train[-count:])


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
    (x, y), validation_rows = hold_out(dataset, validation_fraction)
    x_test, y_test = dataset.x_test.to(device), dataset.y_test.to(device)
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
        runs=len(children),
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
    for record in train(module, x, y, config=config, validation=validation_rows):
        training.append([math.sqrt(loss) if loss >= 0 else math.nan for loss in record.train_loss])
        validation.append(list(record.validation["rmse"]))
        test.append(rmse_of_runs(module, x_test, y_test).tolist())
    curves = {
        name: torch.tensor(curve, dtype=torch.float64).view(epochs, len(rates), repeats)
        for name, curve in (("training", training), ("validation", validation), ("test", test))
    }
    return choose_rate(curves, rates)


@torch.no_grad()
def rmse_of_runs(module: ResTT, x: Tensor, y: Tensor) -> Tensor:  # (B, N, I), (B,) -> (S,) float64, on the CPU
    """Each run's root mean square error."""
    total: Any = 0.0
    for rows, values in zip(x.split(ROWS_AT_ONCE), y.split(ROWS_AT_ONCE), strict=True):
        total = total + (module(rows)[..., 0] - values).double().square().sum(1)
    return (total / len(x)).sqrt().cpu()


def choose_rate(curves: dict[str, Tensor], rates: Sequence[float]) -> dict[str, Any]:  # (epochs, rates, repeats) each
    """The results of the best rate, from the errors after each epoch."""
    comparable = curves["validation"].nan_to_num(math.inf)
    lowest, epoch = comparable.min(0)  # (rates, repeats)
    best = int(lowest.mean(1).argmin())
    chosen = {name: curve[:, best].T for name, curve in curves.items()}  # (repeats, epochs)
    selected = chosen["test"].gather(1, epoch[best].unsqueeze(1))[:, 0]
    return {
        "lr": rates[best],
        "validation_by_rate": {f"{rate:g}": row.tolist() for rate, row in zip(rates, lowest, strict=True)},
        "final": chosen["test"][:, -1].tolist(),
        "selected": selected.masked_fill(lowest[best].isinf(), math.nan).tolist(),
        "best_on_test": chosen["test"].nan_to_num(math.inf).min(1).values.tolist(),
        "selected_epoch": (epoch[best] + 1).tolist(),
        "training_rmse": chosen["training"][:, -1].tolist(),
        "curves": {
            name: [[float(f"{value:.5g}") for value in row] for row in curve.tolist()] for name, curve in chosen.items()
        },
    }


def linear_regression(dataset: Dataset, validation_fraction: float) -> dict[str, Any]:
    """Errors of least squares on all entries of all sites: nothing to choose, and no initialisation to repeat."""
    from restt_baselines import make

    (x, y), _ = hold_out(dataset, validation_fraction)
    model = make("lr", task="regression").fit(x.flatten(1).numpy(), y.numpy())
    errors = {}
    for name, rows, values in (("training_rmse", x, y), ("final", dataset.x_test, dataset.y_test)):
        predicted = torch.from_numpy(model.predict(rows.flatten(1).numpy()))
        errors[name] = [float((predicted - values).double().square().mean().sqrt())]
    return {**errors, "selected": errors["final"]}


def feature_std(reading: str) -> float:
    """The features' standard deviation, with the paper's N(0, 0.5) read as ``"std"`` or as ``"variance"``.

    >>> round(feature_std("variance"), 4)
    0.7071
    """
    return FEATURE_SPREAD if check_choice("reading", reading, SPREADS) == "std" else math.sqrt(FEATURE_SPREAD)


def order_variances(weights: Weights, feature_std: float) -> tuple[float, float, float]:
    """Variances of the orders 1, 2 and 3 of the target (paper, Eq. synthetic).

    >>> order_variances((torch.ones(2), torch.ones(2, 2), torch.ones(2, 2, 2)), 0.5)
    (0.5, 0.25, 0.125)
    """
    check_positive("feature_std", feature_std)
    first, second, third = (
        float(weight.double().square().sum()) * feature_std ** (2 * order) for order, weight in enumerate(weights, 1)
    )
    return first, second, third


def least_rmse(model: str, weights: Weights, feature_std: float, bond_dim: int) -> float:
    """A lower bound of the error on new rows, whatever the training; of LR, the error of the best one.

    A ResTT of bond r is a plain train of bond r+1 over [1, x], so its bound is that of the (d+1)³ tensor that holds all
    orders. Its skips are fixed, so it may not reach the bound.

    >>> weights = torch.ones(2), torch.ones(2, 2), torch.ones(2, 2, 2)
    >>> [round(least_rmse(model, weights, 1.0, bond_dim=2) ** 2, 9) for model in ("restt", "tt", "lr")]
    [0.0, 6.0, 12.0]
    """
    check_choice("model", model, MODELS)
    check_int("bond_dim", bond_dim, minimum=1)
    first, second, third = order_variances(weights, feature_std)
    if model == "lr":
        return math.sqrt(second + third)
    if model == "tt":
        return math.sqrt(first + second + _beyond(weights[2].double() * feature_std**3, bond_dim))
    # Coefficients of all orders over [1, x], in units of the features' standard deviation.
    d = len(weights[0])
    tensor = torch.zeros(d + 1, d + 1, d + 1, dtype=torch.float64)
    for order, weight in enumerate(weights, 1):
        tensor[(slice(1, None),) * order + (0,) * (3 - order)] = weight.double() * feature_std**order
    return math.sqrt(_beyond(tensor, bond_dim + 1))


def _beyond(tensor: Tensor, rank: int) -> float:
    """Squared distance to the nearest tensor of this rank between its sites, at the worse of the two bonds."""
    unfoldings = (tensor.flatten(1), tensor.flatten(0, 1))
    return max(float(torch.linalg.svdvals(unfolding)[rank:].square().sum()) for unfolding in unfoldings)
