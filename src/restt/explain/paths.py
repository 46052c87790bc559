"""Aumann–Shapley values: what each column adds to a prediction in y's units or to a probability.

On the latent scale the Shapley value is an integral along the straight line of site vectors from the background's mean
to the row, φ_n = ∫ ∂f/∂x(n)·z(n) dt. With a link g from the latent value to y the same line gives

    v_n = ∫₀¹ g'(f(t)) ∂f/∂x(n)(μ + t z)·z(n) dt,        Σ_n v_n = g(f(1)) - g(f(0))

and for the terms of order d, whose sum along the line is t^d f_d, ∫ g'(f(t)) d t^(d-1) f_d dt. g' is no polynomial, so
nodes are doubled until the values no longer move; what is left between their sum and the difference of the predictions
is added in proportion to their size, so that they sum to it exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from restt.explain.links import Link
from restt.explain.memory import row_chunks
from restt.explain.orders import spectrum_of
from restt.explain.shapley import legendre
from restt.explain.subject import Subject


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


@dataclass(frozen=True, eq=False)
class PathValues:
    """Values (B, C, D) and orders (B, highest+1, D) in y's units, and the largest quadrature error of a value."""

    values: np.ndarray
    orders: np.ndarray
    error: float


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
) -> PathValues:
    """Values of every column and order, summing to the difference of the predictions of row and background."""
    spectrum = spectrum_of(subject, vectors, start, highest).cpu().numpy()
    module = subject.module
    numbers = settings.most * module.sites * (4 * module.feature_dim + subject.state_numbers)
    parts, orders, error = [], [], 0.0
    for rows in row_chunks(len(vectors), numbers, vectors.device):
        found = _doubled(subject, vectors[rows] - start, start, link, spectrum[rows], settings)
        parts.append(found.values)
        orders.append(found.orders)
        error = max(error, found.error)
    return PathValues(np.concatenate(parts), np.concatenate(orders), error)


def _doubled(
    subject: Subject, way: Tensor, start: Tensor, link: Link, spectrum: np.ndarray, settings: Quadrature
) -> PathValues:
    """Twice the nodes for the rows whose values still move."""
    count, left = settings.first, np.arange(len(way))
    values, orders = _integrals(subject, way, start, link, spectrum, count)
    moves = np.full(len(way), np.inf)
    while len(left) and count < settings.most:
        count *= 2
        finer, of_orders = _integrals(subject, way[left], start, link, spectrum[left], count)
        moves[left] = np.abs(finer - values[left]).max(axis=(1, 2))
        sizes = np.abs(finer).sum(axis=(1, 2))
        values[left], orders[left] = finer, of_orders
        left = left[moves[left] > settings.tolerance * sizes]
    ends = subject.decide(torch.cat([start[None], start + way])).cpu().numpy()
    predicted = link(ends)
    gap = predicted[1:] - predicted[0]
    error = max(float(moves.max(initial=0.0)), float(np.abs(gap - values.sum(axis=1)).max(initial=0.0)))
    values = completed(values, gap)
    if orders.shape[1] > len(subject.columns):  # all orders are there, and sum to the prediction too
        orders[:, 1:] = completed(orders[:, 1:], gap)
    orders[:, 0] = predicted[0]
    return PathValues(values, orders, error)


def _integrals(
    subject: Subject, way: Tensor, start: Tensor, link: Link, spectrum: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:  # (B, C, D), (B, highest+1, D)
    nodes, weights = legendre(count, way)
    levels, slopes = along(subject, start, way, nodes)
    by_latent = weights.cpu().numpy()[:, None, None, None] * link.slopes(levels)  # (K, B, D, D)
    degrees = np.arange(spectrum.shape[1])
    powers = degrees * nodes.cpu().numpy()[:, None] ** np.maximum(degrees - 1, 0)  # (K, highest+1)
    values = np.einsum("kbpd,kbnd->bnp", by_latent, slopes)
    return values, np.einsum("kbpd,kh,bhd->bhp", by_latent, powers, spectrum)


def completed(values: np.ndarray, total: np.ndarray) -> np.ndarray:  # (B, N, D), (B, D) -> (B, N, D)
    """Values that sum to the total: what is missing is added in proportion to their size.

    >>> completed(np.array([[[3.0], [-1.0]]]), np.array([[2.4]]))[0, :, 0].tolist()
    [3.3, -0.9]
    """
    missing, sizes = total - values.sum(axis=1), np.abs(values)
    whole = sizes.sum(axis=1)
    share = np.divide(missing, whole, out=np.zeros_like(missing), where=whole > 0)
    return values + share[:, None] * sizes
