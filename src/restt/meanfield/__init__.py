"""Mean-field analysis: will signals and gradients survive the chain, before any training (paper, Sec. IV)."""

from restt.meanfield.compare import Comparison, compare
from restt.meanfield.covariance import covariance
from restt.meanfield.gradients import site_gradients
from restt.meanfield.measure import measure
from restt.meanfield.phases import PhaseDiagram, phase_diagram, typical_log_decay
from restt.meanfield.profile import Profile
from restt.meanfield.rules import SignalRange, StabilityWarning, signal_range, stable_sigma2, warn_if_unstable
from restt.meanfield.theory import predict

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
    "stable_sigma2",
    "typical_log_decay",
    "warn_if_unstable",
]
