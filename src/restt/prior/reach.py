"""How far predictions go beyond every y of the fit: as far as the posterior is sure of it.

Where several columns of a row lie at or beyond their ends, products of what they do alone can be of any size, and the
posterior says by its variance v that it does not know. Against N(m, v) stands what y itself says: that less and less of
it lies beyond its end b, taken as an exponential tail of mean t. Their product is N(m - v/t, v) beyond b, so a
prediction m > b becomes max(b, m - v/t): nearly the same where the posterior is sure, the end where it is not. A little
variance does not count, so that what is sure is exactly the train's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from restt.prior.target import weighted_quantile

# t is this many times the mean of what the largest tenth of y, but of a few rows at least, has beyond the rest: tails
# are longer further out, and a prediction that is drawn back for nothing costs more than one that is not.
_TIMES, _SHARE, _FEWEST = 3.0, 0.1, 3.0
# Of y whose largest tenth is all the same, in standard deviations.
_SHORTEST = 0.1
# Variance that does not count, in y's.
_SURE = 0.1


@dataclass(frozen=True, eq=False)
class Reach:
    """The ends of a standardised target, and how y thins out towards them."""

    low: np.ndarray  # (O,)
    high: np.ndarray  # (O,)
    below: np.ndarray  # (O,): t beyond the lower end
    above: np.ndarray  # (O,)

    @classmethod
    def fit(cls, targets: np.ndarray, weights: np.ndarray) -> Reach:
        """From targets (B, O) and weights (B,).

        >>> reach = Reach.fit(np.arange(100.0)[:, None] / 30, np.ones(100))
        >>> bool(reach.high[0] == 3.3), round(float(reach.above[0]), 2)
        (True, 0.55)
        """
        above, below = (np.array([_tail(sign * column, weights) for column in targets.T]) for sign in (1, -1))
        return cls(targets.min(axis=0), targets.max(axis=0), below, above)

    def beyond(self, outputs: np.ndarray) -> np.ndarray:  # (B, O) -> (B,) bool
        """Rows with an output that no target of the fit has reached."""
        return np.asarray(((outputs < self.low) | (outputs > self.high)).any(axis=1))

    def held(self, outputs: np.ndarray, variances: np.ndarray) -> np.ndarray:  # (B, O), (B,) or (B, O) -> (B, O)
        """Outputs drawn back to the ends, the further the less is known.

        >>> reach = Reach(np.array([-1.0]), np.array([2.0]), np.array([0.5]), np.array([0.5]))
        >>> reach.held(np.array([[1.5], [2.5], [3.0], [9.0]]), np.array([1.0, 0.1, 0.2, 4.0]))[:, 0]
        array([1.5, 2.5, 2.8, 2. ])
        """
        spread = np.maximum(variances.reshape(len(outputs), -1) - _SURE, 0)
        found = np.where(outputs > self.high, np.maximum(self.high, outputs - spread / self.above), outputs)
        return np.where(outputs < self.low, np.minimum(self.low, outputs + spread / self.below), found)

    def to_config(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name).tolist() for name in ("low", "high", "below", "above")}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Reach:
        """The reach that :meth:`to_config` described; ValueError where it is none."""
        low, high, below, above = (np.array(config[name], float) for name in ("low", "high", "below", "above"))
        shapes = {values.shape for values in (low, high, below, above)}
        if len(shapes) != 1 or low.ndim != 1 or not (low <= high).all() or not ((below > 0) & (above > 0)).all():
            raise ValueError(f"the reach of y does not fit together: {config}")
        return cls(low, high, below, above)


def _tail(values: np.ndarray, weights: np.ndarray) -> float:
    """t beyond the largest of values (B,)."""
    share = min(max(_SHARE, _FEWEST / weights.sum()), 1.0)
    start = weighted_quantile(values, weights, (1 - share,))[0]
    over = values > start
    excess = np.average(values[over] - start, weights=weights[over]) if over.any() else 0.0
    return max(_TIMES * float(excess), _SHORTEST)
