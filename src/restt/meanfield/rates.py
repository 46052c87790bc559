"""Parameter groups for optimizers of torch."""

from __future__ import annotations

from typing import Any

from restt._common.errors import check_positive
from restt.init.rates import largest_rates
from restt.module import ResTT


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
    limits = largest_rates(module.sites, module.bond_dim)
    groups: dict[float, list[Any]] = {}
    for name, parameter in module.named_parameters():
        groups.setdefault(min(lr, limits.get(name, lr)), []).append(parameter)
    return [{"params": parameters, "lr": rate} for rate, parameters in groups.items()]
