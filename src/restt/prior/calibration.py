"""The predictive distribution of fitted members: a root of their variances, slopes and quantiles of the residuals.

The root of a posterior variance is of low rank and needs no rows of the fit but a few inducing ones.

With inducing rows Z, all rows X, noise D and q(x) = L⁻¹ k_Z(x), L Lᵀ = K_ZZ, rows are seen through A = L⁻¹ K_ZX D^-½:

    v(x) = k(x, x) - q·q + qᵀ (1 + A Aᵀ)⁻¹ q = k(x, x) - |W k_Z(x)|²,       WᵀW = K_ZZ⁻¹ - (K_ZZ + K_ZX D⁻¹ K_XZ)⁻¹

It is the posterior variance itself where Z are all rows. Without row i, of leverage h_i = a_iᵀ(1 + A Aᵀ)⁻¹a_i, the
variance there is k - q·q + D h/(1 - h), and the residual of the mean, by the same downdate, (t - m)/(1 - h). An
inducing row is left out of Z too, so that what it is expected to be off by is what a new row is. For the same reason Z
are the first rows, a random sample: rows chosen to represent the others, by pivoted
Cholesky, leave less open at the rows of the fit than at new ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from restt.prior.fitting import Members, weighted
from restt.prior.gp import cholesky
from restt.prior.kernel import Kernel
from restt.prior.mixture import between
from restt.prior.predictive import Predictive, residual_quantiles, scale_slopes
from restt.prior.settings import Settings

# Bytes of the inducing rows' roots beside twice the train.
_ROOT_BYTES = 1.5e6
# On the diagonal of K_ZZ, relative to it, and the least noise relative to it: with less, leverages are 1 in all digits.
_JITTER, _LEAST_NOISE = 1e-10, 1e-6


def fit_predictive(
    members: Members,
    kernel: Kernel,
    table: np.ndarray,
    residuals: np.ndarray,  # (B, O): of the train without each row
    weights: np.ndarray,
    settings: Settings,
    parameters: int,
) -> tuple[Predictive, float]:
    """The distribution, and how far s is from the exact one: the root mean square of their logarithms' difference."""
    data, shares = members.data, members.weights
    covariances = [one.process.covariance(data.rows) for one in members.posteriors]
    noises = [one.process.noise(data.rows, data.level) for one in members.posteriors]
    most = min(settings.inducing_rows, _most_inducing(len(shares), parameters), len(table))
    for count in (*(size for size in settings.FIRST_INDUCING if size < most), most):
        roots = [
            root_of(covariance, count, noise / (data.weights * data.precision), members.targets)
            for covariance, noise in zip(covariances, noises, strict=True)
        ]
        within = weighted([one.loo_variance + noise for one, noise in zip(roots, noises, strict=True)], shares)
        variance = within + between([one.loo_mean for one in roots], shares)
        ratio = (variance / members.loo_variance).log() / 2
        error = float((ratio.square() * data.weights).sum() / data.weights.sum()) ** 0.5
        if error <= settings.spread_tolerance:
            break
    if count == len(table):  # it is exact, and its leverages are next to 1 where there is no noise
        variance, error = members.loo_variance, 0.0
    level = members.loo_mean.mean(1).cpu()
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
    )
    scaled = residuals / variance.sqrt().cpu().numpy()[:, None]
    features = found.features(data.rows.to(torch.device("cpu")), level)
    slopes = scale_slopes(scaled, features, weights, settings.slope_scale)
    scaled = scaled * np.exp(features @ slopes / -2)[:, None]
    return replace(found, slopes=slopes, quantiles=residual_quantiles(scaled, weights)), error


def _most_inducing(members: int, parameters: int) -> int:
    """Inducing rows whose roots, as text in a file, are not more than a small part of it."""
    numbers = (_ROOT_BYTES + 16 * parameters) * 0.75 / 8
    return max(1, int((2 * numbers / members) ** 0.5))


@dataclass(frozen=True, eq=False)
class Root:
    """Root of a member's posterior variance over inducing rows, with its leave-one-out predictions."""

    root: Tensor  # (M, M): W, upper triangular
    mean: Tensor  # (M, O): weights of the inducing rows in the mean
    loo_mean: Tensor  # (B, O): leave-one-out means
    loo_variance: Tensor  # (B,): of the function there


@torch.no_grad()
def root_of(
    covariance: Tensor,  # (B, B)
    count: int,  # M: the first rows are inducing ones
    own: Tensor,  # (B,): variance of each row's noise
    targets: Tensor,  # (B, O)
) -> Root:
    """The root of one member given all rows."""
    among = covariance[:count, :count]
    lower = cholesky(among.clone(), _JITTER * among.diagonal())
    own = torch.maximum(own, _LEAST_NOISE * covariance.diagonal())
    seen = torch.linalg.solve_triangular(lower, covariance[:count], upper=False)  # (M, B): q of every row
    scaled = seen * own.rsqrt()
    inner, directions = torch.linalg.eigh(scaled @ scaled.T)
    inner = inner.clamp(min=0)
    turned = directions.T @ scaled  # (M, B)
    leverage = (turned.square() / (1 + inner)[:, None]).sum(0)
    weights = directions @ ((directions.T @ (scaled @ (targets * own.rsqrt()[:, None]))) / (1 + inner)[:, None])
    inverse = torch.linalg.solve_triangular(lower, torch.eye(len(lower)).to(lower), upper=False)
    root = torch.linalg.qr((inner / (1 + inner)).sqrt()[:, None] * (directions.T @ inverse), mode="r").R
    rest = (1 - leverage).clamp(min=1e-12)
    unseen = (covariance.diagonal() - seen.square().sum(0)).clamp(min=0)
    mean = inverse.T @ weights
    loo_mean = targets - (targets - seen.T @ weights) / rest[:, None]
    loo_variance = unseen + own * leverage / rest
    if count < len(covariance):
        half = (1 + inner).rsqrt()[:, None] * (directions.T @ inverse)
        given = among, inverse.T @ inverse, half.T @ half, mean, own[:count], targets[:count]
        loo_mean[:count], loo_variance[:count] = _without(*given)
    return Root(root, mean, loo_mean, loo_variance)


def _without(
    among: Tensor,  # (M, M): K_ZZ
    prior: Tensor,  # (M, M): its inverse
    posterior: Tensor,  # (M, M): (K_ZZ + K_ZX D⁻¹ K_XZ)⁻¹
    weights: Tensor,  # (M, O): of the mean
    own: Tensor,  # (M,)
    targets: Tensor,  # (M, O)
) -> tuple[Tensor, Tensor]:  # (M, O), (M,)
    """Leave-one-out mean and variance at each inducing row, without it among the inducing rows and without its target.

    With k a row's column of K_ZZ and u = posterior·k, taking its target away is a downdate by u, and taking it from the
    inducing rows a Schur complement: X - X e eᵀ X / X_ee.
    """
    moved = posterior @ among  # columns u
    own_share, kappa = moved.diagonal(), (among * moved).sum(0)
    rest = torch.maximum(own - kappa, 1e-12 * own)
    square = posterior.diagonal() + own_share.square() / rest
    cross = own_share * own / rest
    variance = 1 / prior.diagonal() + (kappa * own / rest - cross.square() / square).clamp(min=0)
    away = among @ weights - (kappa / own)[:, None] * targets
    at_own = weights - (own_share / own)[:, None] * targets + (own_share / rest)[:, None] * away
    return away * (own / rest)[:, None] - (cross / square)[:, None] * at_own, variance
