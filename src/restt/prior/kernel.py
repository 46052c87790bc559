"""The covariance function: tables over the states of every column, from hyper-parameters, and a report of these.

    k(x, x') = c + s1 Π_n (1 + a_n k_n) + s2 Π_n (1 + j_n r_n) + s3 Π_n exp(-w_n d_n²/2) + Σ_n (b_n k_n + r'_n r_n)

k_n is a squared exponential of the distance d_n with a length, and a straight line, in learned shares; r_n is an
exponential (Matérn ½) kernel, whose functions are rough; both are centred under the rows of the fit, with a mean
variance of 1, so that main effects and interactions are separate. A level of a category covaries with itself alone.
Distances are those of a learned position between a value and its rank. Every column has one relevance, from which its
part in each term departs a little. Values between two knots are interpolated, so that the kernel is that of the site
vectors and a posterior mean is a tensor train over them without error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from restt._common.drawing import require_matplotlib
from restt.prior.columns import LEAST_VARIANCE, NumberColumns
from restt.prior.pairs import Rows, Tables
from restt.prior.settings import GLOBAL, NUMBER, Layout, Settings
from restt.prior.sites import Site

if TYPE_CHECKING:
    from restt.prior.fitting import Members
    from restt.prior.gp import Process

# Places of hyper-parameters: scales of the products, relevances that columns share and their own, lengths, shares.
_SCALES = slice(GLOBAL.index("smooth"), GLOBAL.index("joint") + 1)
_SHARED = slice(GLOBAL.index("a"), GLOBAL.index("w") + 1)
_OWN = slice(NUMBER.index("a"), NUMBER.index("w") + 1)
_LENGTHS = slice(NUMBER.index("length"), NUMBER.index("rough_length") + 1)
_SHARES = slice(NUMBER.index("line"), NUMBER.index("position") + 1)
# Arrays of the reported prior.
_COLUMNS = ("relevance", "length", "line", "power")


class Kernel:
    """The covariance function of a table's columns.

    Parameters
    ----------
    sites : N of them
    means : N of (I_n,)
        Mean site vectors of the fit's rows, under which columns are centred.
    moments : N of (I_n, I_n)
        Their second moments; of a category nothing is read.
    outputs : int
    """

    def __init__(self, sites: Sequence[Site], means: Sequence[Tensor], moments: Sequence[Tensor], outputs: int) -> None:
        self.sites, self.means, self.moments = tuple(sites), tuple(means), tuple(moments)
        self.numbers = [n for n, site in enumerate(sites) if site.knots is not None]
        self.categories = [n for n, site in enumerate(sites) if site.knots is None]
        self.varies = [float(mean.max()) < 1 - LEAST_VARIANCE for mean in means]
        self.layout = Layout(len(self.numbers), len(self.categories), outputs, self.varies.count(False))
        like, count = means[0], len(self.numbers)
        own_means, own_moments = ([each[n] for n in self.numbers] for each in (means, moments))
        self.columns = NumberColumns([sites[n] for n in self.numbers], own_means, own_moments, like)
        width = self.columns.width
        # Of the levels, entry by entry: the table is a constant plus a multiple of another one.
        sizes = [len(means[n]) for n in self.categories]
        parts = [_level_parts(means[n]) for n in self.categories]
        self._level_base, self._level_rise = (
            torch.cat([like.new_zeros(0, 4), *(part[k].reshape(-1, 4) for part in parts)]) for k in (0, 1)
        )
        entries = torch.tensor([size**2 for size in sizes], dtype=torch.int64)
        self._entries = torch.repeat_interleave(torch.arange(len(sizes)), entries).to(like.device)
        places = {n: (width, k * width**2) for k, n in enumerate(self.numbers)}
        for n, size, start in zip(self.categories, sizes, entries.cumsum(0) - entries, strict=True):
            places[n] = size, count * width**2 + int(start)
        self._widths, self._starts = zip(*(places[n] for n in range(len(sites))), strict=True)

    @classmethod
    def measured(cls, sites: Sequence[Site], rows: Rows, weights: Tensor, outputs: int) -> Kernel:
        """The kernel centred under these rows."""
        share = weights / weights.sum()
        means, moments = [], []
        for n, site in enumerate(sites):
            x = rows.vectors(n, site.width)
            means.append(share @ x)
            moments.append((x * share[:, None]).T @ x if site.knots is not None else x.new_zeros(0, 0))
        return cls(sites, means, moments, outputs)

    def to(self, device: torch.device) -> Kernel:
        """The kernel on another device."""
        means, moments = ([part.to(device) for part in each] for each in (self.means, self.moments))
        return Kernel(self.sites, means, moments, self.layout.outputs)

    def with_levels(self, levels: Sequence[tuple[int, int]]) -> Kernel:
        """The kernel with more levels: (place, count) of those inserted among the states of each column."""
        sites, means = list(self.sites), list(self.means)
        for n, (place, count) in enumerate(levels):
            if count:
                sites[n] = replace(sites[n], levels=sites[n].levels + count)
                means[n] = torch.cat([means[n][:place], means[n].new_zeros(count), means[n][place:]])
        return Kernel(sites, means, self.moments, self.layout.outputs)

    def vectors(self, rows: Rows) -> list[Tensor]:  # N of (B, I_n)
        """Site vectors of rows; what the fit did not see is the average of its column."""
        found = []
        for n, mean in enumerate(self.means):
            states = rows.vectors(n, len(mean) + 1)
            found.append(states[:, :-1] + states[:, -1:] * mean)
        return found

    def widened_moments(self, rows: float) -> list[Tensor]:  # N of (I_n, I_n), or (I_n,) where it is diagonal
        """The mean of x xᵀ over so many rows and a new one, which may be beyond the ends of a column."""
        found = []
        for site, mean, moment in zip(self.sites, self.means, self.moments, strict=True):
            widened, (below, above) = moment.clone() if site.knots is not None else mean, site.beyond
            for place in (*range(below), *range(len(site.positions) - above, len(site.positions))):
                widened[place, place] += 1 / (rows + 1)
            found.append(widened)
        return found

    def noise_features(self, rows: Rows) -> Tensor:  # (B, K)
        """Standardised values of the columns of numbers, on which the noise may depend; 0 where one is missing."""
        found = [
            rows.vectors(n, self.sites[n].width + 1)[:, : len(self.sites[n].values)]  # one state more is the average
            @ self.columns.value[k, : len(self.sites[n].values)].clamp(-Settings.NOISE_END, Settings.NOISE_END)
            for k, n in enumerate(self.numbers)
        ]
        return torch.stack(found, 1) if found else rows.share.new_zeros(len(rows), 0)

    def tables(self, theta: Tensor) -> tuple[Tables, Tensor]:  # (4,)
        """Tables over the states that rows of the fit can be in, and the scales of the four terms."""
        common, _, numbers, levels = self.layout.blocks(theta)
        scale = torch.cat([common[_SCALES].exp(), torch.ones_like(common[:1])])
        parts = []
        if self.numbers:
            sizes = (common[_SHARED, None] + numbers[:1] + numbers[_OWN]).exp()
            shape = (-numbers[_LENGTHS]).exp(), numbers[_SHARES].sigmoid()
            parts.append(self.columns.tables(torch.cat([sizes, *shape])))
        if self.categories:
            a, j, b, r, w = (common[_SHARED, None] + levels[:1] + levels[_OWN]).exp()
            factors = torch.stack([a, j, (-0.5 * w).exp(), b + r], -1)  # (L, 4)
            parts.append(torch.addcmul(self._level_base, self._level_rise, factors[self._entries]))
        return Tables(torch.cat(parts), self._widths, self._starts), scale

    def tables_with_average(self, theta: Tensor) -> tuple[list[Tensor], Tensor]:  # N of (I, I, 4), (4,)
        """Tables that have the average of the states as one more of them, last, and the scales of the four terms."""
        tables, scale = self.tables(theta)
        found = []
        for table, mean in zip(tables.split(), self.means, strict=True):
            part = table[: len(mean), : len(mean)]
            part = torch.cat([part, torch.tensordot(mean, part, 1)[None]])
            found.append(torch.cat([part, torch.einsum("ijk,j->ik", part, mean)[:, None]], 1))
        return found, scale


def _level_parts(mean: Tensor) -> tuple[Tensor, Tensor]:  # (I,) -> (I, I, 4), (I, I, 4)
    """Base and rise of a category's table, which is linear in the four sizes of its terms."""
    eye = torch.eye(len(mean)).to(mean)
    unit, variance = eye - mean - mean[:, None] + mean.square().sum(), 1 - mean.square().sum()
    unit = unit / variance if variance > LEAST_VARIANCE else 0 * unit
    one, none = torch.ones_like(eye), torch.zeros_like(eye)
    return torch.stack([one, one, eye, none], -1), torch.stack([unit, unit, 1 - eye, unit], -1)


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
        arrays = {name: [None if np.isnan(v) else v for v in getattr(self, name).tolist()] for name in _COLUMNS}
        plain = {name: getattr(self, name) for name in ("noise", "degrees", "members")}
        return {"names": list(self.names), **arrays, **plain}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Prior:
        """The prior that :meth:`to_config` described; ValueError where its parts do not fit each other."""
        names = tuple(config["names"])
        arrays = {
            name: np.array([np.nan if v is None else v for v in config[name]], dtype=np.float64) for name in _COLUMNS
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
        size = 6, 0.3 * len(self.names) + 1
        axes = require_matplotlib().subplots(figsize=size)[1] if ax is None else ax
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
    return found * kernel.varies
