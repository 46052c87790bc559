"""The joint posterior of rows, and of linear functionals: Shapley values, terms of the expansion, what a column adds.

Rows have the covariance of the averaged posteriors, and what members disagree on is unknown too:

    C(x, x') = Σ_m w_m C_m(x, x') + Σ_m w_m (μ_m(x) - μ(x)) (μ_m(x') - μ(x')),       C_m = k - k_Z WᵀW k_Z

with members' roots W over inducing rows Z (:mod:`restt.prior.calibration`); outputs are averaged. Functionals are sums
of products over columns: a site vector v_n for each column in place of a row's. The kernel is bilinear in site vectors,
so two such products have a covariance like two rows:

    Cov(L, L') = c Π_n |v_n||v'_n| + Σ_k s_k Π_n v_n T_nk v'_n + s_4 Σ_n v_n T_n4 v'_n Π_{m≠n} |v_m||v'_m|

with |v| the sum of v's entries. A row is a product of its site vectors, a term of columns T one of x - μ for n ∈ T and
of the means μ elsewhere. A Shapley value is an integral of products along the line from the means to the row,
∫ ∂f/∂x_n (μ + t z)·z_n dt, which Gauss–Legendre nodes give exactly (FANOVA-GP in closed form). The posterior is that of
:class:`Predictive`: the root of its variance over inducing rows, and the spread between members.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from scipy.stats import gamma
from torch import Tensor

from restt.prior.gp import Process, Product, cholesky, product_covariance, without_each
from restt.prior.mixture import Conditioned, Mixture
from restt.prior.predictive import Predictive
from restt.prior.settings import learned_components
from restt.prior.sites import rows_of
from restt.prior.warp import Warp

# Numbers of the largest array that is held at once, 64 MiB.
_NUMBERS = 2**23


@torch.no_grad()
def path_deviations(
    posterior: Mixture,
    start: Sequence[Tensor],  # N of (I_n,)
    way: Sequence[Tensor],  # N of (B, I_n)
    nodes: Tensor,  # (K,)
    slopes: Tensor,  # (B, K, D, H), or (B, K): what the derivative along a column counts at each node
    levels: Tensor | None = None,  # (B, K, N, D, H), or (B, K, N): what the function itself counts there
    centre: Tensor | None = None,  # (B, N, D), or (B, N): of the average, read where it has other parts than members
) -> Tensor:  # (B, N, D), or (B, N)
    """Posterior standard deviation of Σ_k slopes·∂f/∂x_n(start + t_k way)·way_n + levels·f(start + t_k way).

    With the weights of the nodes as slopes it is that of the Shapley values. In standard deviations of the warped
    target. D sums are taken over H functions that are independent before rows are seen, the contrasts of classes.
    """
    if slopes.dim() == 2:
        level = None if levels is None else levels[..., None, None]
        middle = None if centre is None else centre[..., None]
        return path_deviations(posterior, start, way, nodes, slopes[..., None, None], level, middle)[..., 0]
    columns, inducing, sums = len(start), posterior.kernel.vectors(posterior.inducing), slopes[0, 0].numel()
    each = columns * max((10 + 2 * sums) * len(inducing[0]), 16 * len(nodes) ** 2)
    step, parts = max(1, _NUMBERS // each), []
    for first in range(0, len(slopes), step):
        some = slice(first, first + step)
        part = [z[some] for z in way]
        own = slopes[some], None if levels is None else levels[some]
        within, means = torch.zeros(len(part[0]), columns, slopes.shape[2], dtype=torch.float64), []
        for weight, process, root, mean in posterior.members:
            cross = _path_cross(process, inducing, start, part, nodes, *own).movedim(2, 3).flatten(3)  # (B, N, D, M·H)
            known = _path_variance(process, start, part, nodes, *own)
            within += weight * (known - (cross @ root.T).square().sum(-1)).clamp(min=0)
            means.append((cross @ mean).flatten(0, 2))
        middle = None if centre is None else centre[some].flatten()
        parts.append((within + posterior.disagreement(means, middle).view_as(within)).sqrt())
    return torch.cat(parts)


def _path_cross(
    process: Process,
    rows: Product,  # N of (M, I_n)
    start: Sequence[Tensor],
    way: Sequence[Tensor],
    nodes: Tensor,
    slopes: Tensor,
    levels: Tensor | None,
) -> Tensor:  # (B, N, M, D, H)
    """Prior covariance with the function at rows."""
    at_start, along = [], []  # N of (M, 4), of (B, M, 4)
    for table, mean, z, x in zip(process.tables, start, way, rows, strict=True):
        seen = torch.einsum("ijk,mj->mik", table[:-1, :-1], x)
        at_start.append(torch.einsum("i,mik->mk", mean, seen))
        along.append(torch.einsum("bi,mik->bmk", z, seen))
    scale, constant = process.scale, process.settings.constant
    found = slopes.new_zeros(len(slopes), len(start), len(rows[0]), *slopes.shape[2:])
    for k, t in enumerate(nodes):
        factors = [mean[..., :3] + t * z[..., :3] for mean, z in zip(at_start, along, strict=True)]
        for n, others in enumerate(without_each(factors)):
            moved = (along[n][..., :3] * others) @ scale[:3] + scale[3] * along[n][..., 3]
            found[:, n].addcmul_(moved[..., None, None], slopes[:, k, None])
        if levels is not None:
            whole = torch.stack(factors).prod(0) @ scale[:3] + constant
            whole += scale[3] * sum(mean[..., 3] + t * z[..., 3] for mean, z in zip(at_start, along, strict=True))
            found.addcmul_(levels[:, k, :, None], whole[:, None, :, None, None])
    return found


def _path_variance(
    process: Process,
    start: Sequence[Tensor],
    way: Sequence[Tensor],
    nodes: Tensor,
    slopes: Tensor,
    levels: Tensor | None,
) -> Tensor:  # (B, N, D)
    """Prior variance: a double integral over pairs of nodes."""
    ours, theirs = nodes[:, None, None], nodes[None, :, None]  # (K, 1, 1), (1, K, 1)
    squares, sides, factors = [], [], []  # z T z (B, 1, 1, 4), z T v(t) and v(s) T v(t) (B, K, K, 4)
    for table, mean, z in zip(process.tables, start, way, strict=True):
        inner = table[:-1, :-1]
        moved = torch.einsum("bi,ijk->bjk", z, inner)
        square = torch.einsum("bjk,bj->bk", moved, z)[:, None, None]
        side = torch.einsum("bjk,j->bk", moved, mean)[:, None, None]
        still = torch.einsum("i,ijk,j->k", mean, inner, mean)
        squares.append(square)
        sides.append(side + theirs * square)
        factors.append(still + (ours + theirs) * side + ours * theirs * square)
    scale, constant = process.scale, process.settings.constant

    def total(left: Tensor, right: Tensor, values: Tensor) -> Tensor:  # (B, K, D, H) twice, (B, K, K) -> (B, D)
        return torch.einsum("bkdh,bldh,bkl->bd", left, right, values.expand(len(left), len(nodes), len(nodes)))

    found = []
    for n, others in enumerate(without_each([factor[..., :3] for factor in factors])):
        variance = total(slopes, slopes, (squares[n][..., :3] * others) @ scale[:3] + scale[3] * squares[n][..., 3])
        if levels is not None:
            level = levels[:, :, n]
            mixed = (sides[n][..., :3] * others) @ scale[:3] + scale[3] * sides[n][..., 3]
            variance += 2 * total(slopes, level, mixed)
            whole = (factors[n][..., :3] * others) @ scale[:3] + constant
            whole = whole + scale[3] * sum(factor[..., 3] for factor in factors)
            variance += total(level, level, whole)
        found.append(variance)
    return torch.stack(found, 1)


@torch.no_grad()
def prior_covariances(posterior: Mixture, products: Product) -> list[tuple[Tensor, Tensor]]:  # S of (M, A), (A, A)
    """Prior covariances of products with the inducing rows, and among them, of each member."""
    inducing = posterior.kernel.vectors(posterior.inducing)
    return [
        (product_covariance(process, inducing, products), product_covariance(process, products, products))
        for _, process, _, _ in posterior.members
    ]


@torch.no_grad()
def posterior_draws(
    posterior: Mixture,
    priors: Sequence[tuple[Tensor, Tensor]],  # of A products, see :func:`prior_covariances`
    centre: Tensor,  # (A, O): the posterior mean of the products
    count: int,
    seed: int,
) -> Tensor:  # (count, A, O)
    """Draws of products from their joint posterior, a member by its weight for each, about ``centre``.

    Members differ by their own means and covariances; the mean over members is put at ``centre``, so that draws are
    about the train that predicts and not about its approximation by the inducing rows. Other parts of the average are
    one more member, with the covariance of any of them.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.choice(len(posterior.weights), count, p=posterior.weights / posterior.weights.sum())
    normal = torch.from_numpy(rng.standard_normal((count, *centre.shape)))
    roots, means = [], []
    for (_, _, root, mean), (cross, own) in zip(posterior.members, priors, strict=True):
        known = root @ cross
        variances, directions = torch.linalg.eigh(own - known.T @ known)
        roots.append(directions * variances.clamp(min=0).sqrt())
        means.append(cross.T @ mean)
    shares = torch.from_numpy(posterior.weights / posterior.weights.sum())
    middle = torch.einsum("s,sao->ao", shares, torch.stack(means))
    if posterior.share < 1:
        other, middle = (centre - posterior.share * middle) / (1 - posterior.share), centre
        is_other = torch.from_numpy(rng.random(count) > posterior.share)
    else:
        other, is_other = centre, torch.zeros(count, dtype=torch.bool)
    found = torch.empty_like(normal)
    for member, (root, mean) in enumerate(zip(roots, means, strict=True)):
        own = torch.from_numpy(chosen == member)
        found[own] = centre + mean - middle + torch.einsum("ab,cbo->cao", root, normal[own])
        found[own & is_other] += other - mean
    return found


@torch.no_grad()
def with_centre(spread: Predictive) -> Mixture:
    """The members and the centre of the hyper-prior, which counts as many rows as in the stacking of members.

    Scales learned on a few dozen rows may miss what matters; under the centre all columns are alike.
    """
    settings, component = spread.settings, learned_components()[0]
    share = settings.stacking_rows / (settings.stacking_rows + spread.rows)
    centre, _, _ = spread.kernel.layout.densities(component.densities, spread.thetas)
    process = Process(spread.kernel, centre, component, settings)
    noise = process.noise(spread.inducing, centre.new_zeros(len(spread.inducing)))
    lower = cholesky(process.covariance(spread.inducing), noise)
    root = torch.linalg.solve_triangular(lower, torch.eye(len(lower)).to(lower), upper=False)
    _, processes, roots, means = zip(*spread.members, (share, process, root, None), strict=True)
    weights = np.append((1 - share) * spread.weights, share)
    return Conditioned(spread.kernel, weights, spread.numbers, processes, roots, means)


class Joint:
    """Rows whose joint covariance with others is asked for."""

    @torch.no_grad()
    def __init__(self, posterior: Mixture, numbers: np.ndarray) -> None:  # (B, C)
        self.members, self.rows = list(posterior.members), rows_of(posterior.kernel.sites, numbers)
        self.known: list[Tensor] = []  # of each member W k_Z, (M, B)
        means, total = [], sum(weight for weight, _, _, mean in self.members if mean is not None)
        for _, process, root, mean in self.members:
            cross = process.covariance(posterior.inducing, self.rows)
            self.known.append(root @ cross)
            means.append(None if mean is None else cross.T @ mean)
        weights = [weight / total for weight, _, _, _ in self.members]
        parts = [weight * mean for weight, mean in zip(weights, means, strict=True) if mean is not None]
        self.mean = torch.stack(parts).sum(0)  # (B, O)
        size = self.mean.shape[1] ** 0.5
        self.away = [torch.zeros_like(self.mean) if mean is None else (mean - self.mean) / size for mean in means]

    @torch.no_grad()
    def covariance(self, other: Joint, places: slice | list[int] = slice(None)) -> Tensor:  # (B, places)
        """C between these rows and some of the other's."""
        theirs = other.rows.take(places if isinstance(places, slice) else torch.tensor(places))
        found = self.mean.new_zeros(len(self.rows), len(theirs))
        parts = zip(self.members, self.known, other.known, self.away, other.away, strict=True)
        for (weight, process, _, _), mine, known, near, far in parts:
            own = process.covariance(self.rows, theirs) - mine.T @ known[:, places] + near @ far[places].T
            found += weight * own
        return found

    @torch.no_grad()
    def variance(self) -> Tensor:  # (B,)
        """C of each row with itself."""
        found = self.mean.new_zeros(len(self.rows))
        for (weight, process, _, _), known, away in zip(self.members, self.known, self.away, strict=True):
            found += weight * (process.variance(self.rows) - known.square().sum(0) + away.square().sum(1))
        return found.clamp(min=0)

    @torch.no_grad()
    def noise(self, level: Tensor) -> Tensor:  # (B,) -> (B,)
        """Variance of the noise of rows of weight 1 whose predictions are these."""
        parts = [weight * process.noise(self.rows, level) for weight, process, _, _ in self.members]
        return torch.stack(parts).sum(0)


def surprise(
    spread: Predictive,
    warp: Warp,
    numbers: np.ndarray,  # (B, C)
    targets: np.ndarray,  # (B, O)
    weights: np.ndarray,  # (B,)
    most: int,
) -> float:
    """Probability, under the model, of new rows whose log predictive density is at least as far from what it expects.

    The whitened residuals of the rows, jointly normal under the model, have a sum of squares whose mean and variance
    are those of the residuals that its intervals are made from; it is taken as gamma distributed. Two-sided. Of more
    than ``most`` rows, these are judged.
    """
    if not len(weights):
        return 1.0
    some = np.linspace(0, len(weights) - 1, min(len(weights), most)).astype(np.int64)
    numbers, targets, weights = numbers[some], targets[some], weights[some]
    joint = Joint(spread, numbers)
    level = joint.mean.mean(1)
    matrix = joint.covariance(joint)
    lower = cholesky(matrix, joint.noise(level) / torch.from_numpy(weights) + max(spread.extra, 0.0))
    away = torch.from_numpy(warp.encode(targets)) - joint.mean
    squares = torch.linalg.solve_triangular(lower, away, upper=False).square().numpy()
    levels = (np.arange(400) + 0.5) / 400
    usual = np.stack([spread.quantile(one) for one in levels]) ** 2  # (400, O)
    mean, variance = len(squares) * usual.mean(axis=0).sum(), len(squares) * usual.var(axis=0).sum()
    if not mean > 0 < variance:  # y was constant
        return 1.0
    expected = gamma(a=mean**2 / variance, scale=variance / mean)
    return float(2 * min(expected.cdf(squares.sum()), expected.sf(squares.sum())))
