"""The predictive distribution of fitted members: a root of their variances, slopes and quantiles of the residuals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from restt.prior.fitting import Members, weighted
from restt.prior.kernel import Kernel
from restt.prior.predictive import Predictive, between, residual_quantiles, scale_slopes
from restt.prior.root import root_of
from restt.prior.settings import Settings

# Bytes of the inducing rows' roots beside twice the train.
_ROOT_BYTES = 1.5e6


def fit_predictive(
    members: Members,
    kernel: Kernel,
    table: np.ndarray,
    residuals: np.ndarray,  # (B, O)
    weights: np.ndarray,
    extra: float,
    settings: Settings,
    parameters: int,
) -> tuple[Predictive, float]:
    """The distribution, and how far s is from the exact one: the root mean square of their logarithms' difference."""
    data, shares = members.data, members.weights
    covariances = [one.process.covariance(data.rows) for one in members.posteriors]
    noises = [one.process.noise(data.rows, data.level) for one in members.posteriors]
    most = min(settings.inducing_rows, _most_inducing(len(shares), parameters))
    most = min(most, len(table))
    for count in (*(size for size in settings.FIRST_INDUCING if size < most), most):
        roots = [
            root_of(covariance, count, noise / (data.weights * data.precision), members.targets)
            for covariance, noise in zip(covariances, noises, strict=True)
        ]
        within = weighted([one.left_out_variance + noise for one, noise in zip(roots, noises, strict=True)], shares)
        variance = within + between([one.left_out for one in roots], shares)
        ratio = (variance / members.left_out_variance).log() / 2
        error = float((ratio.square() * data.weights).sum() / data.weights.sum()) ** 0.5
        if error <= settings.spread_tolerance:
            break
    level = members.left_out.mean(1).cpu()
    found = Predictive(
        kernel,
        torch.stack([one.process.theta for one in members.posteriors]).cpu(),
        tuple(one.process.component for one in members.posteriors),
        shares,
        settings,
        table[:count],
        torch.stack([one.root for one in roots]).cpu().numpy(),
        torch.stack([one.mean for one in roots]).cpu().numpy(),
        len(table),
        np.zeros((0, residuals.shape[1])),
        np.zeros(kernel.layout.numbers + 1),
        extra,
    )
    scaled = residuals / (variance + extra).sqrt().cpu().numpy()[:, None]
    features = found.features(data.rows.to(torch.device("cpu")), level)
    slopes = scale_slopes(scaled, features, weights, settings.slope_scale)
    scaled = scaled * np.exp(features @ slopes / -2)[:, None]
    return replace(found, slopes=slopes, quantiles=residual_quantiles(scaled, weights)), error


def _most_inducing(members: int, parameters: int) -> int:
    """Inducing rows whose roots, as text in a file, are not more than a small part of it."""
    numbers = (_ROOT_BYTES + 16 * parameters) * 0.75 / 8
    return max(1, int((2 * numbers / members) ** 0.5))
