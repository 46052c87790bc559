"""Mean-field analysis: will signals and gradients survive the chain, before any training (paper, Sec. IV)."""

from restt.init.stability import SignalRange, StabilityWarning, signal_range, stable_rates, stable_sigma2
from restt.meanfield.measure import measure
from restt.meanfield.profile import Profile
from restt.meanfield.theory import covariance, predict

__all__ = [
    "Profile",
    "SignalRange",
    "StabilityWarning",
    "covariance",
    "measure",
    "predict",
    "signal_range",
    "stable_rates",
    "stable_sigma2",
]
