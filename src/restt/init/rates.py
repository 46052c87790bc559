"""Learning rates under which a chain of any length trains."""

from __future__ import annotations

import math


def largest_rates(sites: int, bond_dim: int) -> dict[str, float]:
    """Largest rate of each parameter of a module whose step is multiplied along the chain, by name.

    A step of Adam moves an entry by at most about the rate η, so a core (r, r) by a matrix of norm up to rη, and the
    product of N cores by a factor of up to exp(Nrη). The N linear entries move each of the r components of the last
    state by up to Nη, and the output by √r times that.

    >>> largest_rates(100, 4)
    {'chain': 0.0025, 'linear': 0.005}
    """
    return {"chain": 1 / (sites * bond_dim), "linear": 1 / (sites * math.sqrt(bond_dim))}
