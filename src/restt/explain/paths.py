"""Aumann–Shapley values, what each column adds to a prediction in y's units or a probability; and error bars.

On the latent scale the Shapley value is an integral along the straight line of site vectors from the background's mean
to the row, φ_n = ∫ ∂f/∂x(n)·z(n) dt. With a link g from the latent value to y the same line gives

    v_n = ∫₀¹ g'(f(t)) ∂f/∂x(n)(μ + t z)·z(n) dt,        Σ_n v_n = g(f(1)) - g(f(0))

and for the terms of order d, whose sum along the line is t^d f_d, ∫ g'(f(t)) d t^(d-1) f_d dt. g' is no polynomial, so
nodes are doubled until the values no longer move; what is left between their sum and the difference of the predictions
is added in proportion to their size, so that they sum to it exactly.

Each explanation is a linear functional of the function under the posterior of a closed-form regressor, so its standard
deviation is exact on the latent scale, given the hyper-parameters and the inducing rows. In y's units it is that of the
functional linearised at the posterior mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from restt.explain.links import Link, WarpLink
from restt.explain.subject import Subject
from restt.explain.sweeps import legendre, row_chunks
from restt.prior.functionals import path_deviations


@dataclass(frozen=True)
class Quadrature:
    """Gauss–Legendre nodes along a path.

    Where the link is smooth the values move by less than the tolerance from 16 nodes to 32; where a path crosses an end
    of the fit's range, at which a transform of y becomes straight, by up to 1e-4 of their size at the most nodes.
    """

    first: int = 8
    most: int = 64
    tolerance: float = 1e-7  # largest move of a value by twice the nodes, relative to the sum of the row's sizes
    of_deviations: int = 12  # error bars need fewer digits


QUADRATURE = Quadrature()


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
    highest: int,
    settings: Quadrature = QUADRATURE,
) -> tuple[np.ndarray, np.ndarray, float]:  # (B, C, D), (B, highest+1, D)
    """Values of every column and order, summing to the difference of predictions; and the largest error of a value."""
    spectrum = subject.train(start).spectrum(vectors - start, highest).cpu().numpy()
    columns = len(subject.names)
    integrals = np.empty((len(vectors), columns + highest + 1, spectrum.shape[2]))
    moves = np.full(len(vectors), np.inf)
    for chunk in row_chunks(len(vectors), settings.most * subject.numbers, vectors.device):
        count, left = settings.first, np.arange(chunk.start, chunk.stop)
        integrals[left] = _integrals(subject, vectors[left] - start, start, link, spectrum[left], count)
        while len(left) and count < settings.most:  # twice the nodes for the rows whose values still move
            count *= 2
            finer = _integrals(subject, vectors[left] - start, start, link, spectrum[left], count)
            moves[left] = np.abs(finer - integrals[left])[:, :columns].max(axis=(1, 2))
            integrals[left] = finer
            left = left[moves[left] > settings.tolerance * np.abs(finer[:, :columns]).sum(axis=(1, 2))]
    values, orders = integrals[:, :columns], integrals[:, columns:]
    predicted = link(subject.decide(torch.cat([start[None], vectors])).cpu().numpy())
    gap = predicted[1:] - predicted[0]
    error = max(float(moves.max(initial=0.0)), float(np.abs(gap - values.sum(axis=1)).max(initial=0.0)))
    if highest >= subject.sites:  # all orders are there, and sum to the prediction too
        orders[:, 1:] = completed(orders[:, 1:], gap)
    orders[:, 0] = predicted[0]
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


def by_column(subject: Subject, values: Tensor) -> list[Tensor]:  # (…, N, I) -> C of (…, I_n)
    """Site vectors in the order of the table's columns, without padding, as the posterior reads them."""
    places, widths = np.argsort(subject.columns), subject.module.feature_dims
    return [values[..., place, : widths[place]].cpu() for place in places.tolist()]


def value_deviations(
    subject: Subject,
    vectors: Tensor,  # (B, N, I)
    start: Tensor,  # (N, I)
    link: Link | None,
) -> np.ndarray | None:  # (B, C, D)
    """Posterior standard deviation of Shapley values, with a link of Aumann–Shapley values, to first order.

    In y's units that of ∫ g'(f) ∂δf/∂x(n)·z(n) + g''(f) ∂f/∂x(n)·z(n) δf dt, for a deviation δf from the mean f.
    """
    if subject.posterior is None:
        return None
    curved = isinstance(link, WarpLink)
    nodes, weights = legendre(QUADRATURE.of_deviations if curved else subject.nodes, torch.zeros(()).double())
    weight, parts = weights.numpy()[:, None], []
    for rows in row_chunks(len(vectors), len(nodes) * subject.numbers, vectors.device):
        way = vectors[rows] - start
        paths = by_column(subject, start), by_column(subject, way)
        if not isinstance(link, WarpLink):
            parts.append(path_deviations(subject.posterior, *paths, nodes, weights.expand(len(way), -1))[..., None])
            continue
        levels, slopes = along(subject, start, way, nodes.to(way))
        by_latent, bends, deviations = link.slopes(levels), link.bends(levels), []
        for d in range(levels.shape[-1]):
            first = (weight * by_latent[..., d, d]).T  # (B, K)
            second = ((weight * bends[..., d])[..., None] * slopes[..., d]).transpose(1, 0, 2)  # (B, K, C)
            given = (torch.from_numpy(np.ascontiguousarray(part)) for part in (first, second))
            deviations.append(path_deviations(subject.posterior, *paths, nodes, *given))
        parts.append(torch.stack(deviations, -1))
    # Of one deviation of the warped target.
    return (torch.cat(parts) * torch.linalg.vector_norm(subject.readout, dim=0).cpu()).numpy()


def term_deviations(
    subject: Subject,
    means: Tensor,  # (N, I)
    points: Mapping[int, Tensor],  # site -> (G, I)
) -> Tensor | None:  # (G of the first site, of the second, …, D)
    """Posterior standard deviation of the centred term of some sites on a grid of their vectors."""
    if subject.posterior is None:
        return None
    widths = subject.module.feature_dims
    at = {subject.columns[n]: vectors[:, : widths[n]].cpu() for n, vectors in points.items()}
    deviations = subject.posterior.term_deviations(at, by_column(subject, means))
    return deviations[..., None].to(subject.device) * torch.linalg.vector_norm(subject.readout, dim=0)
