"""Learning rates under which a chain of any length trains."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from restt._common.errors import check_positive

if TYPE_CHECKING:
    from restt.module import ResTT


def largest_rates(module: ResTT) -> dict[str, float]:
    """Largest rate of each parameter whose step is multiplied along the chain, by name.

    A step of Adam moves an entry by at most about the rate η, so a core (r, r) by a matrix of norm up to rη, and the
    product of N cores by a factor of up to exp(Nrη). The N linear entries move each of the r components of the last
    state by up to Nη, and the output by √r times that.
    """
    sites, bond = module.sites, module.bond_dim
    return {"chain": 1 / (sites * bond), "linear": 1 / (sites * math.sqrt(bond))}


def stable_rates(module: ResTT, lr: float) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer of torch under which a module of any length trains stably.

    The chain's rate is at most 1/(N r), that of its linear entries at most 1/(N √r), all others have ``lr``: one step
    of Adam then multiplies the signal by at most a constant, whatever the number of sites. ``restt.train`` does the
    same by default (``TrainConfig(rates="stable")``).

    Parameters
    ----------
    module : restt.ResTT
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
    limits = largest_rates(module)
    groups: dict[float, list[Any]] = {}
    for name, parameter in module.named_parameters():
        groups.setdefault(min(lr, limits.get(name, lr)), []).append(parameter)
    return [{"params": parameters, "lr": rate} for rate, parameters in groups.items()]
