"""The bounds of a prediction as operations of an exported graph: :meth:`restt.prior.Predictive.interval`.

The kernel between a row and the inducing rows is a sum of products over columns of x T z, where x and z are their site
vectors and T is a table of the member's. All terms of a member and its prior variance x T x are multiplied up together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from restt.estimators.encoding import Encoding, columns_with_few_rare
from restt.interop.graph_parts import Function
from restt.prior import Predictive
from restt.prior.gp import Process
from restt.prior.pairs import Rows
from restt.prior.settings import Settings


def bounds_part(predictive: Predictive, encoding: Encoding, decoded: Function, coverage: float) -> Function:
    """Site vectors, unseen values (B, N, 1) and outputs (B, O) -> lower and upper quantiles of y.

    ``decoded`` turns quantiles of outputs into quantiles of y.
    """
    deviation = _deviation(predictive, encoding)
    levels = [(1 - coverage) / 2, (1 + coverage) / 2]
    quantiles = [torch.from_numpy(predictive.quantile(level)) for level in levels]  # (O,)

    def bounds(vectors: Any, unseen: Any, outputs: Any) -> list[Any]:
        size = deviation(vectors, unseen, outputs)
        return [decoded(outputs + size * quantile) for quantile in quantiles]

    return bounds


def _deviation(predictive: Predictive, encoding: Encoding) -> Function:
    """Site vectors, unseen values and outputs -> s (B, 1): :meth:`Predictive.deviations`."""
    weights, extra, least = predictive.weights.tolist(), predictive.extra, predictive.settings.least_noise
    state_slopes = _state_slopes(predictive, encoding)
    columns = [_column_part(predictive, encoding, n) for n in range(len(encoding.order))]
    inducing = [
        predictive.inducing.vectors(place, predictive.kernel.sites[place].width + 1).T.contiguous()  # (I + 1, M)
        for place in encoding.order
    ]
    members = [
        _member_part(encoding.order, inducing, *member[1:], state_slopes[:, s])
        for s, member in enumerate(predictive.members)
    ]
    slopes, level_slope = state_slopes[:, -1:].contiguous(), float(predictive.slopes[-1])
    outputs = predictive.means.shape[2]
    average = torch.full((outputs, 1), 1 / outputs, dtype=torch.float64)

    def weighted(values: Sequence[Any]) -> Any:
        first, *others = [value * weight for value, weight in zip(values, weights, strict=True)]
        return sum(others, first)

    def deviation(vectors: Any, unseen: Any, latent: Any) -> Any:
        level = torch.clamp(latent @ average, -Settings.NOISE_END, Settings.NOISE_END)
        parts = [column(vectors.select(1, n), unseen.select(1, n)) for n, column in enumerate(columns)]  # (B, I + 1)
        states = torch.cat(parts, dim=-1)  # (B, Σ I_n)
        variances, means = zip(*(member(parts, states, level) for member in members), strict=True)
        centre = weighted(means)
        between = weighted([(mean - centre) * (mean - centre) for mean in means]) @ average
        variance = torch.clamp(weighted(variances) + between + extra, least)
        return variance**0.5 * torch.exp((states @ slopes + level * level_slope) * 0.5)

    return deviation


def _column_part(predictive: Predictive, encoding: Encoding, n: int) -> Function:
    """One column's vectors in the states of the predictive distribution, whose last is the average of the others.

    Values that the fit did not see are that state, and so are rare levels, see :func:`columns_with_few_rare`.
    """
    place, seen = encoding.order[n], predictive.kernel.sites[encoding.order[n]].width
    average = torch.eye(seen + 1, dtype=torch.float64)[seen]
    moved = torch.eye(max(encoding.widths), seen + 1, dtype=torch.float64)
    if place in columns_with_few_rare(encoding):
        moved[len(encoding.columns[place].levels or ())] = average
    return lambda vectors, unseen: torch.where(unseen, average, vectors @ moved)


def _member_part(
    order: Sequence[int], inducing: Sequence[Tensor], process: Process, root: Tensor, mean: Tensor, slopes: Tensor
) -> Function:
    """One member's variance of a new observation (B, 1), and mean (B, O).

    ``slopes`` are those of its log noise in the states.
    """
    terms = [k for k in range(3) if float(process.scale[k]) > 0]
    effects, factors = [], []
    for n, place in enumerate(order):
        table = process.tables[place].clone()
        # No inducing row is in the average state, so this entry is read by the variance alone.
        table[-1, -1] = process.kernel.means[place] @ table.diagonal().T[:-1]
        scale = process.scale if n == 0 else torch.ones_like(process.scale)
        effects.append((table[..., 3] * process.scale[3]).contiguous())  # (I + 1, I + 1)
        factors.append((table * scale)[..., terms].permute(2, 0, 1).contiguous())  # (terms, I + 1, I + 1)
    ones = [torch.ones(len(part), 1, dtype=torch.float64) for part in inducing]
    rows, turned, ones_of_rows = len(root), root.T.contiguous(), torch.ones(len(root), 1, dtype=torch.float64)
    constant, least = process.settings.constant, process.settings.least_noise
    theta = process.kernel.layout.split(process.theta)
    log_noise, level_slope = float(theta["noise"]), float(theta["noise_mean"])
    slopes = slopes[:, None].contiguous()

    def covariances(tables: Sequence[Tensor], parts: Sequence[Any]) -> list[Any]:  # N of (…, B, M + 1)
        """Each column's part in the kernel with the inducing rows, and in that of rows with themselves."""
        images = [part @ table for part, table in zip(parts, tables, strict=True)]
        return [
            torch.cat([image @ others, (image * part) @ sums], dim=-1)
            for image, part, others, sums in zip(images, parts, inducing, ones, strict=True)
        ]

    def member(parts: Sequence[Any], states: Any, level: Any) -> tuple[Any, Any]:
        kernel, *others = covariances(effects, parts)
        kernel = sum(others, kernel)
        if terms:
            # Written down before they are multiplied: onnxruntime then holds one column's at a time, in place of all.
            product, *others = covariances(factors, parts)
            for factor in others:
                product = product * factor
            kernel = sum((product.select(0, k) for k in range(len(terms))), kernel)
        kernel = kernel + constant
        cross, prior = kernel.narrow(-1, 0, rows), kernel.narrow(-1, rows, 1)
        solved = cross @ turned
        slope = torch.tanh((states @ slopes + level * level_slope) / Settings.NOISE_RANGE)
        noise = torch.exp(slope * Settings.NOISE_RANGE + log_noise) + least
        return torch.clamp(prior - (solved * solved) @ ones_of_rows, 0.0) + noise, cross @ mean

    return member


def _state_slopes(predictive: Predictive, encoding: Encoding) -> Tensor:  # (Σ I_n, S + 1)
    """Slopes of each member's log noise, then of log s², in the states of all columns in the sites' order."""
    kernel = predictive.kernel
    own = [kernel.layout.split(theta)["number.noise"] for theta in predictive.thetas]
    slopes = torch.stack([*own, torch.from_numpy(predictive.slopes[:-1])], 1)  # (K, S + 1)
    last = torch.tensor([site.width for site in kernel.sites])
    codes = torch.minimum(torch.arange(int(last.max()) + 1)[:, None], last)
    features = kernel.noise_features(Rows(codes.int(), torch.zeros_like(codes, dtype=torch.float64)))  # (I, K)
    by_state = [slopes.new_zeros(site.width + 1, slopes.shape[1]) for site in kernel.sites]
    for k, n in enumerate(kernel.numbers):
        by_state[n] = torch.outer(features[: len(by_state[n]), k], slopes[k])
    return torch.cat([by_state[n] for n in encoding.order])
