"""The smallest errors the models of the synthetic task can have, from the task's own weights.

Sites are independent with mean 0, so different terms of a multilinear function are uncorrelated, and the variance of
the difference of two such functions is the squared distance of their coefficients, each entry weighed by its features'
variance. Hence LR, which only has order 1, is left with the variance of orders 2 and 3, and a plain train, which only
has order 3, with that of orders 1 and 2. A bond dimension that is too small adds to that: no train of bond r comes
closer to a tensor than the part of an unfolding beyond its r largest singular values (Eckart and Young).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from restt._common.errors import check_choice, check_int, check_positive
from restt.data.synthetic import FEATURE_SPREAD, SPREADS

MODELS = ("restt", "tt", "lr")


def feature_std(reading: str) -> float:
    """The features' standard deviation, with the paper's N(0, 0.5) read as ``"std"`` or as ``"variance"``.

    >>> round(feature_std("variance"), 4)
    0.7071
    """
    return FEATURE_SPREAD if check_choice("reading", reading, SPREADS) == "std" else math.sqrt(FEATURE_SPREAD)


def order_variances(weights: tuple[Tensor, Tensor, Tensor], feature_std: float) -> tuple[float, float, float]:
    """What the orders 1, 2 and 3 of the target (paper, Eq. synthetic) add to its variance.

    >>> order_variances((torch.ones(2), torch.ones(2, 2), torch.ones(2, 2, 2)), 0.5)
    (0.5, 0.25, 0.125)
    """
    check_positive("feature_std", feature_std)
    first, second, third = (
        float(weight.double().square().sum()) * feature_std ** (2 * order) for order, weight in enumerate(weights, 1)
    )
    return first, second, third


def least_rmse(
    model: str,
    weights: tuple[Tensor, Tensor, Tensor],  # (d,), (d, d), (d, d, d)
    feature_std: float,
    bond_dim: int,
) -> float:
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
    return math.sqrt(_beyond(_all_orders(weights, feature_std), bond_dim + 1))


def _all_orders(weights: tuple[Tensor, Tensor, Tensor], std: float) -> Tensor:  # (d+1, d+1, d+1)
    """Coefficients over [1, x], in units of the features' standard deviation."""
    d = len(weights[0])
    tensor = torch.zeros(d + 1, d + 1, d + 1, dtype=torch.float64)
    tensor[1:, 0, 0] = weights[0].double() * std
    tensor[1:, 1:, 0] = weights[1].double() * std**2
    tensor[1:, 1:, 1:] = weights[2].double() * std**3
    return tensor


def _beyond(tensor: Tensor, rank: int) -> float:
    """Squared distance to the nearest tensor of this rank between its sites, at the worse of the two bonds."""
    tails = []
    for unfolding in (tensor.flatten(1), tensor.flatten(0, 1)):
        tails.append(float(torch.linalg.svdvals(unfolding)[rank:].square().sum()))
    return max(tails)
