"""What is maximised: the log marginal likelihood of the rows plus the log prior of the hyper-parameters.

With A = K + diag(σ_i²/w_i) and t the warped, standardised targets (B, O), the negative objective is, up to constants,

    O/2 log det A + ½ Σ_o t_oᵀ A⁻¹ t_o + O/2 Σ_i (w_i - 1) log σ_i² - Σ_io log dt_io/dy_io - log p(θ)

The third sum makes a row of weight 2 the same as two rows. The noise σ_i² is log-linear in the columns of numbers and
in a leave-one-out prediction of the row. The gradient by K is ½ (O A⁻¹ - A⁻¹ t tᵀ A⁻¹); :mod:`restt.prior.pairs`
takes it back to the tables, automatic differentiation from there to the hyper-parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from restt.prior.factor import factorise, invert, solve
from restt.prior.kernel import Kernel
from restt.prior.pairs import Rows, covariance, pull_back
from restt.prior.settings import GLOBAL, TERMS, Component, Settings, log_prior
from restt.prior.warp import log_slope, yeo_johnson

_WORST = 1e10


@dataclass(frozen=True, eq=False)
class Data:
    """Rows that an objective is of."""

    rows: Rows
    z: Tensor  # (B, O): robustly standardised targets
    weights: Tensor  # (B,)
    precision: Tensor  # (B,): of the noise, relative to that of a row of weight 1
    level: Tensor  # (B,): leave-one-out predictions on which the noise may depend

    def take(self, rows: Tensor | slice) -> Data:
        """Some of the rows."""
        parts = (part[rows] for part in (self.z, self.weights, self.precision, self.level))
        return Data(self.rows.take(rows), *parts)


def power_of(warp: Tensor) -> Tensor:
    """Yeo and Johnson's power, between 0 and 2, from its hyper-parameter."""
    return 1 + 0.99 * torch.tanh(warp)


def log_noise(h: dict[str, Tensor], features: Tensor, level: Tensor) -> Tensor:  # (B, K), (B,) -> (B,)
    """Log variance of the noise of rows, within ``Settings.NOISE_RANGE`` of the common one.

    Without bounds, a region where y and its noise are both large would hardly count in the mean of a skewed y.
    """
    slope = features @ h["number.noise"] + h["noise_mean"] * level.clamp(-Settings.NOISE_END, Settings.NOISE_END)
    return h["noise"] + Settings.NOISE_RANGE * torch.tanh(slope / Settings.NOISE_RANGE)


def term_mask(component: Component, like: Tensor) -> Tensor:  # (4,)
    """1 for terms of the kernel that the component has."""
    return torch.tensor([float(name in component.terms) for name in TERMS], dtype=like.dtype, device=like.device)


class Objective:
    """The negative objective with its gradient, as a function of hyper-parameters in units of their prior."""

    def __init__(
        self,
        kernel: Kernel,
        component: Component,
        data: Data,
        constant: float,
        least_noise: float,
        fixed_warp: Tensor | None = None,  # (O,)
    ) -> None:
        self.kernel, self.data, self.constant, self.least_noise = kernel, data, constant, least_noise
        self.centre, self.scale, self.degrees = kernel.layout.densities(component.densities, data.z)
        self.mask = term_mask(component, data.z)
        self.features = kernel.noise_features(data.rows)
        self.fixed_warp = fixed_warp
        self.evaluations = 0
        slopes = log_slope(data.z.cpu().numpy())
        self._slopes = torch.from_numpy(data.weights.cpu().numpy() @ slopes).to(data.z)  # (O,)

    @property
    def starts(self) -> list[Tensor]:
        """Where searches begin: the centre of the prior, and little noise with columns that all matter."""
        other, columns = self.centre.clone(), float(np.log(self.kernel.layout.varying))
        for name, value in (("noise", -3.0), ("smooth", -0.5), ("a", 0.5 - columns), ("j", 0.5 - columns)):
            other[GLOBAL.index(name)] = value
        return [self.centre, other]

    def theta(self, units: np.ndarray) -> Tensor:
        """Hyper-parameters from units of their prior."""
        return self.centre + self.scale * torch.from_numpy(units).to(self.centre)

    def units(self, theta: Tensor) -> np.ndarray:
        """The inverse of :meth:`theta`."""
        return ((theta - self.centre) / self.scale).cpu().numpy()

    def __call__(self, units: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient; a large value where the covariance has no Cholesky factor."""
        self.evaluations += 1
        try:
            value, gradient = self._evaluate(self.theta(units))
        except torch.linalg.LinAlgError:
            return _WORST, np.zeros_like(units)
        if not (np.isfinite(value) and bool(gradient.isfinite().all())):
            return _WORST, np.zeros_like(units)
        return value, (gradient * self.scale).cpu().numpy()

    @torch.enable_grad()
    def _evaluate(self, theta: Tensor) -> tuple[float, Tensor]:
        theta = theta.requires_grad_()
        data, h = self.data, self.kernel.layout.split(theta)
        tables, scale = self.kernel.tables(theta)
        scale = scale * self.mask
        power = power_of(h["warp"] if self.fixed_warp is None else self.fixed_warp)
        value = yeo_johnson(data.z, power)
        share = data.weights / data.weights.sum()
        centred = value - share @ value
        std = (share @ centred.square()).sqrt().clamp(min=1e-12)
        targets = centred / std  # (B, O)
        variance = log_noise(h, self.features, data.level).exp() + self.least_noise
        noise = variance / (data.weights * data.precision)
        outputs, total = targets.shape[1], data.weights.sum()
        repeated = outputs / 2 * ((data.weights - 1) * variance.log()).sum()
        # The part that automatic differentiation sees: the prior, the Jacobian and the weights.
        rest = total * std.log().sum() - ((power - 1) * self._slopes).sum() + repeated
        rest = rest - log_prior(theta, self.centre, self.scale, self.degrees)
        plain, plain_scale = replace(tables, flat=tables.flat.detach()), scale.detach()
        matrix = covariance(plain, plain_scale, data.rows, half=True).add_(self.constant)
        matrix.diagonal().add_(noise.detach())
        lower = factorise(matrix)
        solved = solve(lower, targets.detach())  # (B, O)
        fit = outputs * lower.diagonal().log().sum() + 0.5 * (targets.detach() * solved).sum()
        slope = invert(lower).mul_(0.5 * outputs).addmm_(solved, solved.T, alpha=-0.5)
        by_table, by_scale = pull_back(plain, plain_scale, data.rows, slope)
        ends = [tables.flat, scale, noise, targets, rest]
        slopes = [by_table, by_scale, slope.diagonal().clone(), solved, torch.ones_like(rest)]
        learned = [(end, by) for end, by in zip(ends, slopes, strict=True) if end.requires_grad]
        torch.autograd.backward([end for end, _ in learned], [by for _, by in learned])
        assert theta.grad is not None
        return float(fit + rest.detach()), theta.grad
