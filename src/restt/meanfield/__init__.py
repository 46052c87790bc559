"""Mean-field analysis: will signals and gradients survive the chain, before any training (paper, Sec. IV)."""

from restt.init.stability import SignalRange, StabilityWarning, signal_range, stable_sigma2, warn_if_unstable
from restt.meanfield.comparison import Comparison, compare
from restt.meanfield.covariance import covariance
from restt.meanfield.measure import measure, site_gradients
from restt.meanfield.profile import Profile
from restt.meanfield.rates import stable_rates
from restt.meanfield.theory import PhaseDiagram, phase_diagram, predict, typical_log_decay

__all__ = [
    "Comparison",
    "PhaseDiagram",
    "Profile",
    "SignalRange",
    "StabilityWarning",
    "compare",
    "covariance",
    "measure",
    "phase_diagram",
    "predict",
    "signal_range",
    "site_gradients",
    "stable_rates",
    "stable_sigma2",
    "typical_log_decay",
    "warn_if_unstable",
]
