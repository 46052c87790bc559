"""Stable values of σ_w² and stable learning rates, and a warning where signals explode or vanish."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from restt._common.errors import check_positive, warn_caller
from restt.init.variances import per_site, resolve_sigma2, slopes, stable_sigma2_per_site
from restt.topology import Topology

# Changes of a signal's variance between two sites. Read off one measured map of σ_w² and N (Gaussian weights, r = 20,
# one seed, Adam at 1e-3; `restt reproduce fig-meanfield`), between cells that trained and cells that did not. Growth is
# the sharper limit; some chains still train a little beyond the other, since Adam makes up for small gradients.
LARGEST_LOG_GROWTH = math.log(1e3)
LARGEST_LOG_SHRINKAGE = math.log(1e5)

Phase = Literal["vanish", "trainable", "explode"]


class StabilityWarning(UserWarning):
    """σ_w² makes signals explode or vanish along the chain."""


@dataclass(frozen=True)
class SignalRange:
    """The largest growth and shrinkage of a state's variance between two sites, as natural logarithms ≥ 0."""

    log_growth: float
    log_shrinkage: float

    @property
    def phase(self) -> Phase:
        """Phase of the phase diagram that this lies in; of two that apply, the one further beyond its limit."""
        exploding = self.log_growth / LARGEST_LOG_GROWTH
        vanishing = self.log_shrinkage / LARGEST_LOG_SHRINKAGE
        if max(exploding, vanishing) <= 1:
            return "trainable"
        return "explode" if exploding > vanishing else "vanish"


def stable_sigma2(topology: Topology, second_moment: float | Sequence[float] | Tensor = 1.0) -> float | Tensor:
    """σ_w² under which signals and gradients neither explode nor vanish: what ``sigma2="auto"`` uses.

    With s = σ²·second_moment: s = 1/(number of full skips) at sites with a full skip, where the signal is multiplied by
    1 + s (paper, Sec. IV-B: s ≪ 1), and s = 1 elsewhere, where it is multiplied by s (paper, Sec. IV-A).

    Returns
    -------
    float or Tensor
        One number where all sites share it, otherwise a float64 tensor (N,).

    Examples
    --------
    >>> from restt import Topology, meanfield
    >>> meanfield.stable_sigma2(Topology.residual(101)), meanfield.stable_sigma2(Topology.plain(101), 0.5)
    (0.01, 2.0)
    >>> meanfield.stable_sigma2(Topology.residual(4).without_skip(3)).tolist()
    [0.5, 0.5, 1.0, 0.5]
    """
    values = stable_sigma2_per_site(topology, second_moment)
    return values[0].item() if bool((values == values[0]).all()) else values


def signal_range(
    topology: Topology,
    second_moment: float | Sequence[float] | Tensor,
    sigma2: str | float | Sequence[float] | Tensor,
) -> SignalRange:
    """Largest growth and shrinkage of a signal through sites 2…N-1 by the mean-field theory, in either direction.

    A state's variance, and a gradient's, is multiplied by [full skip] + [chain]·s(n) at site n. Sites that pass nothing
    on end one stretch and begin another.

    >>> from restt import Topology, meanfield
    >>> meanfield.signal_range(Topology.plain(198), 1.0, 0.9).phase
    'vanish'
    """
    moments = per_site("second_moment", second_moment, topology.sites)
    inner = resolve_sigma2(sigma2, topology, moments)[1:-1]
    gains = slopes(topology, 1, inner, inner, moments).log_gain if topology.sites > 2 else ()
    return SignalRange(_largest_sum(gains), _largest_sum(-gain for gain in gains))


def warn_if_unstable(
    topology: Topology,
    second_moment: float | Sequence[float] | Tensor,
    sigma2: str | float | Sequence[float] | Tensor,
) -> None:
    """Emit a :class:`StabilityWarning` with the suggested value where ``sigma2`` explodes or vanishes at this length.

    ``sigma2="auto"`` never warns.
    """
    if isinstance(sigma2, str):
        return
    span = signal_range(topology, second_moment, sigma2)
    if span.phase == "trainable":
        return
    exploding = span.phase == "explode"
    log_change = span.log_growth if exploding else -span.log_shrinkage
    suggested = stable_sigma2(topology, second_moment)
    values = (
        f"{suggested:.3g}"
        if isinstance(suggested, float)
        else f"{suggested.min().item():.3g} to {suggested.max().item():.3g} by site"
    )
    warn_caller(
        f"sigma2 makes signals {span.phase}: their variance changes by a factor 1e{log_change / math.log(10):+.0f} "
        f'along the {topology.sites} sites; sigma2="auto" would take {values}',
        StabilityWarning,
    )


def largest_rates(sites: int, bond_dim: int) -> dict[str, float]:
    """Largest rate of each parameter of a module whose step is multiplied along the chain, by name.

    A step of Adam moves an entry by at most about the rate η, so a core (r, r) by a matrix of norm up to rη, and the
    product of N cores by a factor of up to exp(Nrη). The N linear entries move each of the r components of the last
    state by up to Nη, and the output by √r times that.

    >>> largest_rates(100, 4)
    {'chain': 0.0025, 'linear': 0.005}
    """
    return {"chain": 1 / (sites * bond_dim), "linear": 1 / (sites * math.sqrt(bond_dim))}


def stable_rates(module: Any, lr: float) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer of torch under which a module of any length trains stably.

    The chain's rate is at most 1/(N r), that of its linear entries at most 1/(N √r), all others have ``lr``: one step
    of Adam then multiplies the signal by at most a constant, whatever the number of sites. ``restt.train`` does the
    same by default (``TrainConfig(rates="stable")``).

    Parameters
    ----------
    module : restt.ResTT
        The module to train.
    lr : float
        The rate of all other parameters, and of these where it is below their limit.

    Examples
    --------
    >>> import torch, restt
    >>> module = restt.ResTT(sites=1000, feature_dim=2, bond_dim=20, outputs=10)
    >>> optimizer = torch.optim.Adam(restt.meanfield.stable_rates(module, lr=1e-2))
    >>> [round(group["lr"], 6) for group in optimizer.param_groups]
    [0.01, 5e-05, 0.000224]
    """
    check_positive("lr", lr)
    limits = largest_rates(module.sites, module.bond_dim)
    groups: dict[float, list[Any]] = {}
    for name, parameter in module.named_parameters():
        groups.setdefault(min(lr, limits.get(name, lr)), []).append(parameter)
    return [{"params": parameters, "lr": rate} for rate, parameters in groups.items()]


def _largest_sum(steps: Iterable[float]) -> float:
    """The largest sum of consecutive steps, at least 0; an infinite step separates stretches."""
    largest = current = 0.0
    for step in steps:
        current = max(0.0, current + step) if math.isfinite(step) else 0.0
        largest = max(largest, current)
    return largest
