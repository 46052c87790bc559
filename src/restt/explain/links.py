"""From the latent scale, on which a model adds up, to y's units or probabilities.

A prediction is a function of the latent value alone: of a closed-form regressor the inverse of its learned transform,
averaged over the leave-one-out residuals of the fit, the same for every row, so that the posterior variance of a row
has no part in it; of a classifier the softmax.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import softmax

from restt._common.errors import shown
from restt.prior import Warp

# Of a central difference of slopes, in standard deviations of the transformed y.
_STEP = 1e-4


@dataclass(frozen=True, eq=False)
class Link:
    """The identity: y is what the model adds up to."""

    unit: str = "y"  # what y's units are
    latent: str = "y"  # what the latent scale is of

    @property
    def identical(self) -> bool:
        """True where the latent scale is y's own."""
        return type(self) is Link

    def outputs(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Names of outputs on the latent scale as they are in y's units."""
        return names

    def __call__(self, latent: np.ndarray) -> np.ndarray:  # (…, D) -> (…, D)
        """Predictions in y's units."""
        return latent

    def slopes(self, latent: np.ndarray) -> np.ndarray:  # (…, D) -> (…, D, D)
        """Derivative of each prediction by each latent value."""
        return np.broadcast_to(np.eye(latent.shape[-1]), (*latent.shape, latent.shape[-1]))


@dataclass(frozen=True, eq=False)
class WarpLink(Link):
    """The mean of y of a closed-form regressor."""

    target: Any = None  # restt.estimators.targets.Modelled

    def outputs(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Names with y in the place of its transform."""
        return tuple(name.replace(self.latent, self.unit, 1) for name in names)

    def __call__(self, latent: np.ndarray) -> np.ndarray:
        """Predictions in y's units."""
        return np.asarray(self.target.decode(self._outputs(latent))).reshape(latent.shape)

    def slopes(self, latent: np.ndarray) -> np.ndarray:
        """Derivative of each prediction by each latent value, 0 off the diagonal."""
        return self._slope(latent)[..., None] * np.eye(latent.shape[-1])

    def bends(self, latent: np.ndarray) -> np.ndarray:  # (…, D) -> (…, D)
        """Second derivative of each prediction by its own latent value, by central differences."""
        step = _STEP * np.where(self.target.scale > 0, self.target.scale, 1.0)
        return (self._slope(latent + step) - self._slope(latent - step)) / (2 * step)

    def _slope(self, latent: np.ndarray) -> np.ndarray:  # (…, D)
        warp: Warp = self.target.model
        slope = warp.prediction_slope(self._outputs(latent)) / (warp.std * warp.width)
        return np.where(self.target.scale > 0, slope, 0.0)

    def _outputs(self, latent: np.ndarray) -> np.ndarray:
        scale = self.target.scale
        return (latent - self.target.mean) / np.where(scale > 0, scale, 1.0)


@dataclass(frozen=True, eq=False)
class SoftmaxLink(Link):
    """Probabilities of classes from logits; of two classes the second's from its log-odds."""

    def __call__(self, latent: np.ndarray) -> np.ndarray:
        """Probabilities."""
        if latent.shape[-1] == 1:
            return softmax(np.concatenate([np.zeros_like(latent), latent], axis=-1), axis=-1)[..., 1:]
        return softmax(latent, axis=-1)

    def slopes(self, latent: np.ndarray) -> np.ndarray:
        """Derivative of each probability by each latent value."""
        p = self(latent)
        return p[..., None] * (np.eye(p.shape[-1]) - p[..., None, :])


def link_of(estimator: Any) -> Link | None:
    """The link of a fitted estimator, the identity for None (a module); None for a transformed y as 0.8 saved it.

    Predictions of such a model also depend on the posterior variance of a row.
    """
    target: Any = getattr(estimator, "target_", None)
    if hasattr(target, "classes"):
        return SoftmaxLink("probability", "log-odds" if len(target.classes) == 2 else "logit")
    label = getattr(target, "label", "y")
    if label == "y":
        return Link()
    return WarpLink("y", label, target) if isinstance(target.model, Warp) else None


def measured(link: Link | None, scale: str, output: str) -> str:
    """The quantity that an output is measured in on a scale."""
    if isinstance(link, SoftmaxLink):
        return f"{link.unit if scale == 'y' else link.latent} of {output}"
    return output if scale == "y" or link is None or link.identical else f"{output} (latent scale)"


class Scaled:
    """A result on the latent scale or in y's units, either of which leads to the other."""

    outputs: tuple[str, ...]
    scale: str
    latent: Any  # the result on the latent scale, of one in y's units
    link: Link | None

    @cached_property
    def _y(self) -> Self:
        raise NotImplementedError

    def on(self, scale: str | None = None) -> Self:
        """Convert to the scale ``"y"`` (y's units, or probabilities) or ``"latent"``; by default y's units."""
        if scale is None:
            scale = "latent" if self.link is None else "y"
        if scale not in ("y", "latent"):
            raise ValueError(f'scale must be "y" (y\'s units, or probabilities) or "latent", got {shown(scale)}')
        if scale == self.scale:
            return self
        if self.link is None:
            raise ValueError(
                'scale="y" needs a model of restt 0.9 or later, and this one was saved by 0.8: fit it again, or ask '
                'for scale="latent"'
            )
        result: Self = self._y if self.latent is None else self.latent
        return result

    def measured(self, output: int) -> str:
        """The quantity that an output is measured in, for titles and axes."""
        return measured(self.link, self.scale, self.outputs[output])
