"""The fitted hyper-parameters in a form that can be read: what each column contributes, and what was averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from restt.prior.fitting import Members
from restt.prior.gp import Process

_ARRAYS = ("relevance", "length", "line", "power")


@dataclass(frozen=True, eq=False)
class Prior:
    """Fitted hyper-parameters of the prior, averaged over the members.

    ``relevance``: prior variance of a column's main effect, for a target of variance 1. ``length``: how far apart two
    values are, in standard deviations of the column, before they say little about each other; ``line`` is the share of
    a straight line; NaN for categories. ``noise``: variance that no column explains.
    """

    names: tuple[str, ...]
    relevance: np.ndarray  # (N,)
    length: np.ndarray  # (N,)
    line: np.ndarray  # (N,)
    noise: float
    power: np.ndarray  # (O,): of Yeo and Johnson's transform of y, 1 for none
    degrees: float  # of Student's noise
    members: dict[str, float]  # weight of each component of the hyper-prior

    @classmethod
    def of(cls, members: Members, names: tuple[str, ...]) -> Prior:
        """The average over the members of a fit."""
        columns, noises = [], []
        for one in members.posteriors:
            process, kernel = one.process, one.process.kernel
            h = kernel.layout.split(process.theta.detach().cpu())
            sizes = np.full((3, len(names)), np.nan)
            sizes[0] = relevance_of(process)
            sizes[1, kernel.numbers] = h["number.length"].exp().numpy()
            sizes[2, kernel.numbers] = torch.sigmoid(h["number.line"]).numpy()
            columns.append(sizes)
            noises.append(float(process.noise(members.data.rows, members.data.level).mean()))
        relevance, length, line = np.tensordot(members.weights, np.stack(columns), 1)
        kinds = [one.process.component.name for one in members.posteriors]
        weights = dict(zip(kinds, members.weights.tolist(), strict=True))
        noise = float(members.weights @ np.array(noises))
        return cls(names, relevance, length, line, noise, members.warp.power, 1 / members.tail, weights)

    def to_config(self) -> dict[str, Any]:
        """Plain values."""
        arrays = {name: [None if np.isnan(v) else v for v in getattr(self, name).tolist()] for name in _ARRAYS}
        plain = {name: getattr(self, name) for name in ("noise", "degrees", "members")}
        return {"names": list(self.names), **arrays, **plain}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Prior:
        """The prior that :meth:`to_config` described; ValueError where its parts do not fit each other."""
        names = tuple(config["names"])
        arrays = {
            name: np.array([np.nan if v is None else v for v in config[name]], dtype=np.float64) for name in _ARRAYS
        }
        for name in ("relevance", "length", "line"):
            if arrays[name].shape != (len(names),):
                raise ValueError(f"{name} must have {len(names)} entries, got {arrays[name].shape}")
        members = {str(name): float(weight) for name, weight in config["members"].items()}
        return cls(names, **arrays, noise=float(config["noise"]), degrees=float(config["degrees"]), members=members)

    def __str__(self) -> str:
        width = max(6, *(len(name) for name in self.names))
        power = ", ".join(f"{value:.2f}" for value in self.power)
        tails = "normal" if self.degrees > 50 else f"Student's t, {self.degrees:.1f} degrees of freedom"
        average = ", ".join(f"{name} {weight:.2f}" for name, weight in self.members.items())
        lines = [f"Prior: noise {self.noise:.3g} ({tails}), power of y {power}; average of {average}"]
        lines.append(f"  {'column':{width}}  relevance  length  line")
        for name, relevance, length, line in zip(self.names, self.relevance, self.length, self.line, strict=True):
            rest = "       –     –" if np.isnan(length) else f"{length:8.3g}{line:6.2f}"
            lines.append(f"  {name:{width}}  {relevance:9.3g}{rest}")
        return "\n".join(lines)

    def plot(self, ax: Any = None) -> Any:
        """Relevance of each column as bars; matplotlib's axes."""
        from matplotlib import pyplot

        axes = pyplot.subplots(figsize=(6, 0.3 * len(self.names) + 1))[1] if ax is None else ax
        axes.barh(range(len(self.names)), self.relevance, tick_label=list(self.names))
        axes.invert_yaxis()
        if self.relevance.any():
            axes.set_xscale("log")
        axes.set_xlabel("relevance")
        return axes


def relevance_of(process: Process) -> np.ndarray:  # (N,)
    """Prior variance of each column's main effect; 0 for a column of one value."""
    kernel = process.kernel
    h = kernel.layout.split(process.theta.detach().cpu())
    products = {"a": process.scale[0], "j": process.scale[1], "b": process.scale[3], "r": process.scale[3]}
    found = np.zeros(len(kernel.sites))
    for kind, places in (("number", kernel.numbers), ("level", kernel.categories)):
        own = {q: torch.exp(h[q] + h[f"{kind}.relevance"] + h[f"{kind}.{q}"]) for q in products}
        found[places] = torch.stack([scale.cpu() * own[q] for q, scale in products.items()]).sum(0).numpy()
    return found * [float(mean.max()) < 1 - 1e-12 for mean in kernel.means]
