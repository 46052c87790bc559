"""Error bars: posterior standard deviations of explanations of a regressor in closed form.

Each explanation is a linear functional of the function under the posterior, so its standard deviation is exact on the
latent scale, given the hyper-parameters and the inducing rows. In y's units it is that of the functional linearised at
the posterior mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt.explain.links import Link
from restt.explain.memory import row_chunks
from restt.explain.paths import QUADRATURE, along
from restt.explain.shapley import legendre
from restt.explain.subject import Subject
from restt.prior import Predictive
from restt.prior.functionals import path_deviations


def posterior_of(model: Any) -> Predictive | None:
    """The posterior of a closed-form regressor, None for a model without one."""
    found = getattr(model, "spread_", None)
    return found if isinstance(found, Predictive) else None


def by_column(subject: Subject, values: Tensor) -> list[Tensor]:  # (…, N, I) -> C of (…, I_n)
    """Site vectors in the order of the table's columns, without padding, as the posterior reads them."""
    places = {column: site for site, column in enumerate(subject.columns)}
    widths = subject.module.feature_dims
    return [values[..., places[n], : widths[places[n]]].cpu() for n in range(len(subject.columns))]


def latent_deviations(
    subject: Subject,
    vectors: Tensor,  # (B, N, I)
    start: Tensor,  # (N, I)
) -> np.ndarray | None:  # (B, C, D)
    """Posterior standard deviation of Shapley values."""
    posterior = posterior_of(subject.estimator)
    if posterior is None:
        return None
    nodes, weights = legendre((subject.degree + 1) // 2, torch.zeros((), dtype=torch.float64))
    paths = by_column(subject, start), by_column(subject, vectors - start)
    found = path_deviations(posterior, *paths, nodes, weights.expand(len(vectors), -1))
    return found[..., None].numpy() * _sizes(subject)


def y_deviations(
    subject: Subject,
    vectors: Tensor,  # (B, N, I)
    start: Tensor,  # (N, I)
    link: Link,
) -> np.ndarray | None:  # (B, C, D)
    """Posterior standard deviation of Aumann–Shapley values, to first order."""
    posterior = posterior_of(subject.estimator)
    if posterior is None or link.identical:
        return latent_deviations(subject, vectors, start)
    nodes, weights = legendre(QUADRATURE.of_deviations, torch.zeros((), dtype=torch.float64))
    numbers = len(nodes) * subject.module.sites * (4 * subject.module.feature_dim + subject.state_numbers)
    parts = [
        _linearised(subject, posterior, vectors[rows] - start, start, link, nodes, weights)
        for rows in row_chunks(len(vectors), numbers, vectors.device)
    ]
    return np.concatenate(parts) * _sizes(subject)


def _linearised(
    subject: Subject, posterior: Predictive, way: Tensor, start: Tensor, link: Link, nodes: Tensor, weights: Tensor
) -> np.ndarray:  # (B, C, D)
    """Deviation of ∫ g'(f) ∂δf/∂x(n)·z(n) + g''(f) ∂f/∂x(n)·z(n) δf dt, for a deviation δf from the mean f."""
    levels, slopes = along(subject, start, way, nodes.to(way))
    paths = by_column(subject, start), by_column(subject, way)
    weight = weights.numpy()[:, None]
    by_latent, bends = link.slopes(levels), link.bends(levels)
    found = []
    for d in range(levels.shape[-1]):
        first = (weight * by_latent[..., d, d]).T  # (B, K)
        second = ((weight * bends[..., d])[..., None] * slopes[..., d]).transpose(1, 0, 2)  # (B, K, C)
        given = (torch.from_numpy(np.ascontiguousarray(part)) for part in (first, second))
        found.append(path_deviations(posterior, *paths, nodes, *given))
    return torch.stack(found, -1).numpy()


def term_deviations(
    subject: Subject,
    means: Tensor,  # (N, I)
    points: Mapping[int, Tensor],  # site -> (G, I)
) -> Tensor | None:  # (G of the first site, of the second, …, D)
    """Posterior standard deviation of the centred term of some sites on a grid of their vectors."""
    posterior = getattr(subject.estimator, "spread_", None)
    if posterior is None or not hasattr(posterior, "term_deviations"):  # trained, or of 0.8
        return None
    widths = subject.module.feature_dims
    at = {subject.columns[n]: vectors[:, : widths[n]].cpu() for n, vectors in points.items()}
    deviations = posterior.term_deviations(at, by_column(subject, means))
    return deviations[..., None].to(subject.device) * torch.linalg.vector_norm(subject.readout, dim=0)


def row_term_deviations(
    subject: Subject,
    vectors: Tensor,  # (B, N, I)
    means: Tensor,  # (N, I)
    members: Sequence[int],
) -> np.ndarray | None:  # (B, D)
    """Posterior standard deviation of the centred term of some sites in each row."""
    rows = [term_deviations(subject, means, {n: row[n, None] for n in members}) for row in vectors]
    return np.stack([row.flatten().cpu().numpy() for row in rows if row is not None]) if rows[0] is not None else None


def _sizes(subject: Subject) -> np.ndarray:  # (D,)
    """Latent units of one standard deviation of the warped target."""
    return torch.linalg.vector_norm(subject.readout, dim=0).cpu().numpy()
