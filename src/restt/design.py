"""The choice of rows to label next: those expected to lower the posterior variance of all others most.

With the joint covariance C of rows (:mod:`restt.prior.functionals`), an observation at j, with noise σ_j², lowers the
variance at i by C_ij²/(C_jj + σ_j²) whatever its value: the sum over rows is known before the label is (Cohn,
Ghahramani and Jordan, 1996). A batch is chosen greedily: C after each row is a rank-one update.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_int, shown
from restt.estimators import ResTTRegressor
from restt.prior import Predictive, Warp
from restt.prior.functionals import Joint, with_centre

__all__ = ["next_rows"]

# Rows over which the variance is averaged, unless given: with 30,000 candidates their covariance takes 0.5 GB.
_MOST_ROWS = 2048


def next_rows(
    model: ResTTRegressor,
    candidates: Any,  # (B, C)
    k: int,
    *,
    over: Any = None,  # (R, C)
) -> np.ndarray:  # (k,)
    """Places of the k candidates whose labels are expected to lower the model's variance most, the first choice first.

    The variance is that of the predictions of y, in y's units, averaged over the rows of ``over``. No label is needed,
    and the scales of the model are taken as they are: fit again with the new labels, and choose again.

    Parameters
    ----------
    model : ResTTRegressor
        Fitted to the rows labelled so far; about 20 are enough to begin.
    candidates : table of shape (B, C)
        Rows that could be labelled, with the columns of the fit.
    k : int
        How many to choose.
    over : table of shape (R, C), optional
        Rows that the model is to predict; the candidates by default (evenly spaced 2,048 of them where there are more).

    Returns
    -------
    ndarray (k,) of int
        Places among the candidates, all different.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (60, 1))
    >>> model = ResTTRegressor(effort="quick", random_state=0).fit(X, np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=60))
    >>> next_rows(model, np.array([[0.0], [3.0], [0.1]]), 1)  # where there are no rows yet
    array([1])
    """
    spread = _spread_of(model)
    outputs, numbers = model._outputs_and_numbers(candidates)
    count = check_int("k", k, minimum=1)
    if count > len(numbers):
        raise ValueError(f"k must be at most the number of candidates, {len(numbers)}, got {shown(k)}")
    if over is None:
        places = np.linspace(0, len(numbers) - 1, min(len(numbers), _MOST_ROWS)).astype(np.int64)
        wanted, wanted_outputs = numbers[places], outputs[places]
    else:
        wanted_outputs, wanted = model._outputs_and_numbers(over)
        if not len(wanted):
            raise ValueError("over must have at least one row, got none")
    warp = cast(Warp, model.target_.model)
    slopes = np.exp(-2 * warp.log_slope(warp.decode(wanted_outputs)))  # dy/dt squared
    importance = torch.from_numpy((slopes / slopes.mean(axis=0)).mean(axis=1))
    posterior = with_centre(spread)
    joint = Joint(posterior, numbers)
    choice = _Choice(joint, Joint(posterior, wanted), joint.noise(torch.from_numpy(outputs.mean(axis=1))), importance)
    return np.array([choice.next() for _ in range(count)])


def _spread_of(model: Any) -> Predictive:
    if not isinstance(model, ResTTRegressor):
        raise TypeError(
            f"model must be a ResTTRegressor, whose posterior has a closed form, got {type(model).__name__}"
        )
    model._check_fitted()
    if not isinstance(model.spread_, Predictive):
        raise ValueError("model must be of restt 0.9 or later, and this one was saved by 0.8: fit it again")
    return model.spread_


@dataclass(eq=False)
class _Choice:
    """The greedy choice: C(over, candidates) and C(j, j), updated by each row chosen."""

    candidates: Joint
    over: Joint
    noise: Tensor  # (B,)
    importance: Tensor  # (R,)
    chosen: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cross = self.over.covariance(self.candidates) * self.importance.sqrt()[:, None]  # (R, B)
        self.variance = self.candidates.variance()
        self.updates = self.variance.new_zeros(0, len(self.variance))  # (chosen, B): C lost their squares

    def next(self) -> int:
        """The row of the largest reduction, which C is then conditioned on."""
        gain = self.cross.square().sum(0) / (self.variance + self.noise)
        gain[self.chosen] = -1
        row = int(gain.argmax())
        total = (self.variance[row] + self.noise[row]).sqrt()
        own = self.candidates.covariance(self.candidates, [row])[:, 0] - self.updates.T @ self.updates[:, row]
        self.cross -= torch.outer(self.cross[:, row], own / total**2)
        self.variance = (self.variance - (own / total).square()).clamp(min=0)
        self.updates = torch.cat([self.updates, (own / total)[None]])
        self.chosen.append(row)
        return row
