"""A Gaussian process over the columns of a table, fitted in closed form, and its posterior mean as a residual train.

>>> import numpy as np
>>> from restt import prior
>>> x = np.random.default_rng(0).random((50, 2))
>>> prior.fit(x, x[:, 0] * x[:, 1]).module.topology.name
'residual'
"""

from restt.prior.kernel import Prior
from restt.prior.model import Fitted, fit
from restt.prior.predictive import Predictive
from restt.prior.rounding import Rounding
from restt.prior.settings import Settings
from restt.prior.sites import Site, hat_map
from restt.prior.warp import Warp

__all__ = [
    "Fitted",
    "Predictive",
    "Prior",
    "Rounding",
    "Settings",
    "Site",
    "Warp",
    "fit",
    "hat_map",
]
