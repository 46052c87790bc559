"""The plane of σ_w² and N: where the theory has a chain's signals vanish, survive or explode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from restt._common.errors import check_int
from restt.init.slopes import slopes
from restt.init.stability import Phase, SignalRange
from restt.init.variances import per_site
from restt.topology import Topology


@dataclass(frozen=True)
class PhaseDiagram:
    """The signal's change along chains of one preset, for every σ_w² and N of a grid."""

    preset: str
    sigma2: Tensor  # (K,), rows
    sites: Tensor  # (M,), columns
    log_change: Tensor  # (K, M), log of the variance after the inner sites over the one before

    def phase(self, row: int, column: int) -> Phase:
        """The phase of one cell."""
        change = float(self.log_change[row, column])
        return SignalRange(max(change, 0.0), max(-change, 0.0)).phase


def phase_diagram(
    preset: str,
    sigma2: Sequence[float] | Tensor,  # (K,)
    sites: Sequence[int] | Tensor,  # (M,)
    second_moment: float = 1.0,
) -> PhaseDiagram:
    """How much a preset's signal changes over its N-2 inner sites, for every σ_w² and N (paper, Sec. IV).

    >>> from restt_paper.meanfield.phases import phase_diagram
    >>> plain = phase_diagram("plain", [0.9, 1.0, 1.1], [20, 200])
    >>> [plain.phase(row, 1) for row in range(3)], plain.phase(0, 0)
    (['vanish', 'trainable', 'explode'], 'trainable')
    >>> residual = phase_diagram("residual", [0.01, 0.1], [200])
    >>> residual.phase(0, 0), residual.phase(1, 0)
    ('trainable', 'explode')
    """
    values = per_site("sigma2", sigma2, len(sigma2))
    lengths = torch.tensor([check_int("sites", int(n), minimum=2) for n in sites])
    one_site = Topology.preset(preset, 3)
    moments = per_site("second_moment", second_moment, 3)
    gains = [slopes(one_site, 1, value.view(1), value.view(1), moments).log_gain[0] for value in values]
    change = torch.tensor(gains, dtype=torch.float64)[:, None] * (lengths - 2)
    return PhaseDiagram(preset, values, lengths, change)


def typical_log_decay(bond_dim: int) -> float:
    """Drift per site of the typical log q of a plain tensor train at s = 1: ψ(r/2) − log(r/2) ≈ −1/r.

    A Gaussian core multiplies the squared length by χ²_r/r: mean 1, but its logarithm has a negative mean, which adds
    up over the sites. The mean over runs stays; the median shrinks like exp(−N/r).

    >>> round(typical_log_decay(20), 4)
    -0.0508
    """
    half = torch.tensor(check_int("bond_dim", bond_dim, minimum=1) / 2, dtype=torch.float64)
    return float(torch.digamma(half)) - math.log(float(half))
