"""From the latent scale, on which a model adds up, to y's units or probabilities; and error bars.

A prediction is a function g of the latent value alone: of a closed-form regressor the inverse of its learned transform,
averaged over the leave-one-out residuals of the fit, the same for every row, so that the posterior variance of a row
has no part in it; of a classifier the softmax. On the latent scale the Shapley value is an integral along the straight
line of site vectors from the background's mean to the row, φ_n = ∫ ∂f/∂x(n)·z(n) dt. With the link g the same line
gives the Aumann–Shapley value

    v_n = ∫₀¹ g'(f(t)) ∂f/∂x(n)(μ + t z)·z(n) dt,        Σ_n v_n = g(f(1)) - g(f(0))

and for the terms of order d, whose sum along the line is t^d f_d, ∫ g'(f(t)) d t^(d-1) f_d dt. g' is no polynomial, so
nodes are doubled until the values no longer move; what is left between their sum and the difference of the predictions
is added in proportion to their size, so that they sum to it exactly.

Each explanation is a linear functional of the function under the posterior of a closed-form estimator, so its standard
deviation is exact on the latent scale, given the hyper-parameters and the inducing rows; a classifier's is that of the
Laplace approximation. In y's units it is that of the functional linearised at the posterior mean.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from scipy.special import softmax
from torch import Tensor

from restt._common.errors import shown
from restt.explain.subject import Subject
from restt.explain.sweeps import legendre
from restt.prior import Warp
from restt.prior.functionals import path_deviations
from restt.prior.laplace import LogitPosterior

# Gauss–Legendre nodes along a path, and the largest move of a value by twice the nodes, relative to the sum of the
# row's sizes. Where the link is smooth values move by less from 16 nodes to 32; where a path crosses an end of the
# fit's range, at which a transform of y becomes straight, by up to 1e-4 of their size at the most nodes.
FIRST, MOST, TOLERANCE = 8, 64, 1e-7
NODES_OF_DEVIATIONS = 12  # error bars need fewer digits
# Of a central difference of slopes, in standard deviations of the transformed y.
_STEP = 1e-4


@dataclass(frozen=True, eq=False)
class Link:
    """The identity: y is what the model adds up to."""

    unit: str = "y"  # what y's units are
    latent: str = "y"  # what the latent scale is of

    @property
    def identical(self) -> bool:
        """True where the latent scale is y's own."""
        return type(self) is Link

    def outputs(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Names of outputs on the latent scale as they are in y's units."""
        return names

    def __call__(self, latent: np.ndarray) -> np.ndarray:  # (…, D) -> (…, D)
        """Predictions in y's units."""
        return latent

    def slopes(self, latent: np.ndarray) -> np.ndarray:  # (…, D) -> (…, D, D)
        """Derivative of each prediction by each latent value."""
        return np.broadcast_to(np.eye(latent.shape[-1]), (*latent.shape, latent.shape[-1]))

    def bends(self, latent: np.ndarray) -> np.ndarray:  # (…, D) -> (…, D, D, D)
        """Second derivatives of each prediction by two latent values."""
        return np.zeros((*latent.shape, latent.shape[-1], latent.shape[-1]))


@dataclass(frozen=True, eq=False)
class WarpLink(Link):
    """The mean of y of a closed-form regressor."""

    target: Any = None  # restt.estimators.targets.Modelled

    def outputs(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Names with y in the place of its transform."""
        return tuple(name.replace(self.latent, self.unit, 1) for name in names)

    def __call__(self, latent: np.ndarray) -> np.ndarray:
        """Predictions in y's units."""
        return np.asarray(self.target.decode(self._outputs(latent))).reshape(latent.shape)

    def slopes(self, latent: np.ndarray) -> np.ndarray:
        """Derivative of each prediction by each latent value, 0 off the diagonal."""
        return self._slope(latent)[..., None] * np.eye(latent.shape[-1])

    def bends(self, latent: np.ndarray) -> np.ndarray:
        """Second derivative of each prediction by its own latent value, by central differences, 0 elsewhere."""
        step, found = _STEP * np.where(self.target.scale > 0, self.target.scale, 1.0), super().bends(latent)
        own = np.arange(latent.shape[-1])
        found[..., own, own, own] = (self._slope(latent + step) - self._slope(latent - step)) / (2 * step)
        return found

    def _slope(self, latent: np.ndarray) -> np.ndarray:  # (…, D)
        warp: Warp = self.target.model
        slope = warp.prediction_slope(self._outputs(latent)) / (warp.std * warp.width)
        return np.where(self.target.scale > 0, slope, 0.0)

    def _outputs(self, latent: np.ndarray) -> np.ndarray:
        scale = self.target.scale
        return (latent - self.target.mean) / np.where(scale > 0, scale, 1.0)


@dataclass(frozen=True, eq=False)
class SoftmaxLink(Link):
    """Probabilities of classes from logits; of two classes the second's from its log-odds."""

    def __call__(self, latent: np.ndarray) -> np.ndarray:
        """Probabilities."""
        if latent.shape[-1] == 1:
            return softmax(np.concatenate([np.zeros_like(latent), latent], axis=-1), axis=-1)[..., 1:]
        return softmax(latent, axis=-1)

    def slopes(self, latent: np.ndarray) -> np.ndarray:
        """Derivative of each probability by each latent value."""
        p = self(latent)
        return p[..., None] * (np.eye(p.shape[-1]) - p[..., None, :])

    def bends(self, latent: np.ndarray) -> np.ndarray:
        """Second derivatives of each probability by two latent values."""
        p = self(latent)
        away = np.eye(p.shape[-1]) - p[..., None, :]  # (…, D, D)
        return p[..., None, None] * (away[..., :, None] * away[..., None, :] - self.slopes(latent)[..., None, :, :])


def link_of(estimator: Any) -> Link | None:
    """The link of a fitted estimator, the identity for trees and modules; None for a transformed y as 0.8 saved it.

    Predictions of such a model also depend on the posterior variance of a row.
    """
    target: Any = getattr(estimator, "target_", None)
    if hasattr(target, "classes"):
        return SoftmaxLink("probability", "log-odds" if len(target.classes) == 2 else "logit")
    label, scale = getattr(target, "label", "y"), getattr(estimator, "scale", "y")
    if label == "y":
        return Link(scale, scale)
    return WarpLink("y", label, target) if isinstance(target.model, Warp) else None


def measured(link: Link | None, scale: str, output: str) -> str:
    """The quantity that an output is measured in on a scale."""
    if link is not None and link.unit != "y":
        return f"{link.unit if scale == 'y' else link.latent} of {output}"
    return output if scale == "y" or link is None or link.identical else f"{output} (latent scale)"


class Scaled:
    """A result on the latent scale or in y's units, either of which leads to the other."""

    outputs: tuple[str, ...]
    scale: str
    latent: Any  # the result on the latent scale, of one in y's units
    link: Link | None

    @abstractmethod
    def _in_units(self, link: Link) -> Self:
        """Convert a result on the latent scale to y's units, where these differ."""

    @cached_property
    def _y(self) -> Self:
        assert self.link is not None
        made: Any = self
        return replace(made, scale="y", latent=self) if self.link.identical else self._in_units(self.link)

    def on(self, scale: str | None = None) -> Self:
        """Convert to the scale ``"y"`` (y's units, or probabilities) or ``"latent"``; by default y's units."""
        if scale is None:
            scale = "latent" if self.link is None else "y"
        if scale not in ("y", "latent"):
            raise ValueError(f'scale must be "y" (y\'s units, or probabilities) or "latent", got {shown(scale)}')
        if scale == self.scale:
            return self
        if self.link is None:
            raise ValueError(
                'scale="y" needs a model of restt 0.9 or later, and this one was saved by 0.8: fit it again, or ask '
                'for scale="latent"'
            )
        result: Self = self._y if self.latent is None else self.latent
        return result

    def measured(self, output: int) -> str:
        """The quantity that an output is measured in, for titles and axes."""
        return measured(self.link, self.scale, self.outputs[output])


def along(
    subject: Subject,
    start: Tensor,  # (N, I)
    way: Tensor,  # (B, N, I)
    nodes: Tensor,  # (K,)
) -> tuple[np.ndarray, np.ndarray]:  # (K, B, D), (K, B, C, D)
    """The latent value at each node, and its slope along the part of every column."""
    points = (start + nodes[:, None, None, None] * way).flatten(0, 1)
    with torch.no_grad():
        levels = subject.decide(points).unflatten(0, (len(nodes), len(way)))
    slopes = [
        torch.einsum("kbni,bni->kbn", gradient.unflatten(0, (len(nodes), len(way))), way)
        for gradient in subject.gradients(points)
    ]
    return levels.cpu().numpy(), subject.in_columns(torch.stack(slopes, -1), 2).cpu().numpy()


def aumann_shapley(
    subject: Subject,
    vectors: Tensor,  # (B, N, I)
    start: Tensor,  # (N, I)
    link: Link,
    spectrum: np.ndarray,  # (B, highest+1, D): parts of the orders on the latent scale
    gap: np.ndarray,  # (B, D): difference of predictions
) -> tuple[np.ndarray, np.ndarray, float]:  # (B, C, D), (B, highest+1, D)
    """Values of every column and order, summing to the difference of predictions; and the largest error of a value."""
    columns = len(subject.names)
    integrals = np.empty((len(vectors), columns + spectrum.shape[1], spectrum.shape[2]))
    moves = np.full(len(vectors), np.inf)
    for chunk in subject.row_chunks(len(vectors), MOST):
        count, left = FIRST, np.arange(chunk.start, chunk.stop)
        integrals[left] = _integrals(subject, vectors[left] - start, start, link, spectrum[left], count)
        while len(left) and count < MOST:  # twice the nodes for the rows whose values still move
            count *= 2
            finer = _integrals(subject, vectors[left] - start, start, link, spectrum[left], count)
            moves[left] = np.abs(finer - integrals[left])[:, :columns].max(axis=(1, 2))
            integrals[left] = finer
            left = left[moves[left] > TOLERANCE * np.abs(finer[:, :columns]).sum(axis=(1, 2))]
    values, orders = integrals[:, :columns], integrals[:, columns:]
    error = max(float(moves.max(initial=0.0)), float(np.abs(gap - values.sum(axis=1)).max(initial=0.0)))
    if spectrum.shape[1] > subject.sites:  # all orders are there, and sum to the prediction too
        orders[:, 1:] = completed(orders[:, 1:], gap)
    return completed(values, gap), orders, error


def _integrals(
    subject: Subject, way: Tensor, start: Tensor, link: Link, spectrum: np.ndarray, count: int
) -> np.ndarray:  # (B, C + highest+1, D)
    """Integrals of every column, then of every order."""
    nodes, weights = legendre(count, way)
    levels, slopes = along(subject, start, way, nodes)
    by_latent = weights.cpu().numpy()[:, None, None, None] * link.slopes(levels)  # (K, B, D, D)
    degrees = np.arange(spectrum.shape[1])
    powers = degrees * nodes.cpu().numpy()[:, None] ** np.maximum(degrees - 1, 0)  # (K, highest+1)
    values = np.einsum("kbpd,kbnd->bnp", by_latent, slopes)
    return np.concatenate([values, np.einsum("kbpd,kh,bhd->bhp", by_latent, powers, spectrum)], axis=1)


def completed(values: np.ndarray, total: np.ndarray) -> np.ndarray:  # (B, N, D), (B, D) -> (B, N, D)
    """Values that sum to the total: what is missing is added in proportion to their size.

    >>> completed(np.array([[[3.0], [-1.0]]]), np.array([[2.4]]))[0, :, 0].tolist()
    [3.3, -0.9]
    """
    missing, sizes = total - values.sum(axis=1), np.abs(values)
    whole = sizes.sum(axis=1)
    share = np.divide(missing, whole, out=np.zeros_like(missing), where=whole > 0)
    return values + share[:, None] * sizes


def value_deviations(
    subject: Subject,
    vectors: Tensor,  # (B, N, I)
    start: Tensor,  # (N, I)
    link: Link | None,
    values: np.ndarray,  # (B, C, D): Shapley values
) -> np.ndarray | None:  # (B, C, D)
    """Posterior standard deviation of Shapley values, with a link of Aumann–Shapley values, to first order.

    In y's units that of ∫ g'(f) ∂δf/∂x(n)·z(n) + g''(f) ∂f/∂x(n)·z(n) δf dt, for a deviation δf from the mean f.
    """
    if subject.posterior is None:
        return None
    curved = None if link is None or link.identical else link
    count = subject.nodes if curved is None else NODES_OF_DEVIATIONS
    nodes, weights = legendre(count, torch.zeros(()).double())
    parts = []
    for rows in subject.row_chunks(len(vectors), len(nodes)):
        way = vectors[rows] - start
        paths = subject.by_column(start), subject.by_column(way)
        if curved is not None:
            seen = along(subject, start, way, nodes.to(way))
            parts.append(_linearised(subject, paths, curved, nodes, weights, *seen))
            continue
        given, centres = weights.expand(len(way), -1), torch.from_numpy(values[rows])
        found = [
            path_deviations(posterior, *paths, nodes, given, centre=centres @ sizes)[..., None] * sizes
            for posterior, sizes in subject.posteriors
        ]
        parts.append(torch.stack(found).sum(0))
    return torch.cat(parts).numpy()


def _linearised(
    subject: Subject,
    paths: tuple[list[Tensor], list[Tensor]],
    link: Link,
    nodes: Tensor,  # (K,)
    weights: Tensor,  # (K,)
    levels: np.ndarray,  # (K, B, D)
    slopes: np.ndarray,  # (K, B, C, D)
) -> Tensor:  # (B, C, D)
    """Deviations of values in y's units: each is linear in all latent values, whose posteriors may be joint ones."""
    posterior, (joint, sizes) = subject.posterior, subject.posteriors[0]
    turn = sizes[:, None]
    if isinstance(posterior, LogitPosterior):
        joint, turn = posterior.contrasts, posterior.readouts  # (D, H)
    first = np.einsum("k,kbde->bkde", weights.numpy(), link.slopes(levels))
    second = np.einsum("k,kbdef,kbce->bkcdf", weights.numpy(), link.bends(levels), slopes)
    centre = np.einsum("bkde,kbce->bcd", first, slopes) + np.einsum("bkcde,kbe->bcd", second, levels)
    given = torch.from_numpy(first) @ turn, torch.from_numpy(second) @ turn
    return path_deviations(joint, *paths, nodes, *given, centre=torch.from_numpy(centre))


def term_products(
    subject: Subject,
    means: Tensor,  # (N, I)
    points: Mapping[int, Tensor],  # site -> (G, I), centred
) -> list[Tensor]:  # C of (G, I_n)
    """The products of site vectors, by the table's columns, that a centred term of some sites is at points."""
    widths, rows = subject.module.feature_dims, len(next(iter(points.values())))
    products = [mean.expand(rows, -1) for mean in subject.by_column(means)]
    for n, vectors in points.items():
        products[subject.columns[n]] = vectors[:, : widths[n]].cpu()
    return products


def term_deviations(
    subject: Subject,
    means: Tensor,  # (N, I)
    points: Mapping[int, Tensor],  # site -> (G, I), centred
    values: Tensor,  # (G, D): of the term
) -> Tensor | None:  # (G, D)
    """Posterior standard deviation of the centred term of some sites at points."""
    if subject.posterior is None:
        return None
    products = term_products(subject, means, points)
    found = [
        posterior.product_deviations(products, values.cpu() @ sizes)[:, None] * sizes
        for posterior, sizes in subject.posteriors
    ]
    return torch.stack(found).sum(0).to(subject.device)


def probability_deviations(
    subject: Subject,
    means: Tensor,  # (N, I)
    points: Mapping[int, Tensor],  # site -> (G, I), centred
    values: Tensor,  # (G, D): of the term
    slopes: np.ndarray,  # (G, D, D): of the link
) -> Tensor | None:  # (G, D)
    """Posterior standard deviation of slopes · the centred term of all classes, whose logits are known together."""
    posterior = subject.posterior
    if not isinstance(posterior, LogitPosterior):
        return None
    products, by_latent = term_products(subject, means, points), torch.from_numpy(slopes)
    centre, turned = (by_latent @ values.cpu()[..., None])[..., 0], by_latent @ posterior.readouts
    found = [
        posterior.contrasts.product_deviations(products, centre[:, d], turned[:, d]) for d in range(values.shape[-1])
    ]
    return torch.stack(found, -1)
