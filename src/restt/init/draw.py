"""Drawing one run's weights."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from restt.init.orthogonal import orthogonal_cores
from restt.init.variances import WeightVariances


def draw_weights(
    shapes: Mapping[str, tuple[int, ...]],  # role -> shape without the runs axis
    variances: WeightVariances,
    init: str,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> dict[str, Tensor]:
    """Random weights of one run, role by role in the order of ``shapes``, on the CPU in float32 or float64.

    All are Gaussian but for ``init="orthogonal"``, whose chain cores of sites 2…N-1 rotate the state. Entries that the
    model does not use (padding, absent connections) are drawn too; the caller clears them.
    """
    drawn = torch.float64 if dtype == torch.float64 else torch.float32
    weights = {}
    for role, shape in shapes.items():
        if role == "chain" and init == "orthogonal":
            # An orthogonal matrix has entries of mean square 1/r; like randn's they are to have mean square 1 here.
            noise = orthogonal_cores(shape, generator, drawn) * shape[-1] ** 0.5
        else:
            noise = torch.randn(shape, generator=generator, dtype=drawn)
        weights[role] = noise * _deviation(role, variances, noise.dim()).to(drawn)
    return weights


def _deviation(role: str, variances: WeightVariances, dimensions: int) -> Tensor:
    """The standard deviation, shaped to broadcast against the role's tensor."""
    if role in ("chain", "linear"):
        per_site: Tensor = getattr(variances, role)
        return per_site.sqrt().view(-1, *[1] * (dimensions - 1))
    return torch.tensor(variances.first if role == "first" else variances.last, dtype=torch.float64).sqrt()
