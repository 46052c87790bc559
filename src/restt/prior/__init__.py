"""A prior learned in closed form at infinite bond, and its posterior as a residual train of bond r.

>>> import numpy as np
>>> from restt import prior
>>> x = np.random.default_rng(0).random((50, 2))
>>> prior.fit(x, x[:, 0] * x[:, 1]).module.topology.name
'residual'
"""

from restt.prior.fit import Fitted, fit
from restt.prior.learning import Prior
from restt.prior.rounding import Rounding
from restt.prior.sites import Site, hat_map, site_vectors
from restt.prior.spread import Spread
from restt.prior.target import Target

__all__ = ["Fitted", "Prior", "Rounding", "Site", "Spread", "Target", "fit", "hat_map", "site_vectors"]
