"""Initial weights: σ_w² per site, variances per role, and the draw itself (paper, Sec. IV)."""

from restt.init.draw import draw_weights, undrawn, weights_are_drawn
from restt.init.variances import (
    INITS,
    WeightVariances,
    per_site,
    resolve_sigma2,
    stable_sigma2_per_site,
    weight_variances,
)

__all__ = [
    "INITS",
    "WeightVariances",
    "draw_weights",
    "per_site",
    "resolve_sigma2",
    "stable_sigma2_per_site",
    "undrawn",
    "weight_variances",
    "weights_are_drawn",
]
