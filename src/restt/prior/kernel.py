"""The covariance function: tables over the states of every column, from hyper-parameters.

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

import torch
from torch import Tensor

from restt.prior.hyper import Layout
from restt.prior.pairs import Rows
from restt.prior.settings import Settings
from restt.prior.sites import Site

# Less variance is that of a column of one value.
_LEAST = 1e-12


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
        constant = sum(float(mean.max()) > 1 - _LEAST for mean in means)
        self.layout = Layout(len(self.numbers), len(self.categories), outputs, constant)
        like = means[0]
        width = max([sites[n].seen for n in self.numbers], default=1)
        count = len(self.numbers)
        self._value, self._rank, mean = (like.new_zeros(count, width) for _ in range(3))
        self._moment = like.new_zeros(count, width, width)
        known = torch.zeros(count, width, dtype=torch.bool, device=like.device)
        for k, n in enumerate(self.numbers):
            seen, knots = sites[n].seen, len(sites[n].positions)
            value, position = (like.new_tensor(each) for each in (sites[n].values, sites[n].positions))
            self._value[k, :knots], self._rank[k, :knots] = value, 2 * position - value
            mean[k, :seen], self._moment[k, :seen, :seen] = means[n], moments[n]
            known[k, :knots] = True
        eye = torch.eye(width, dtype=like.dtype, device=like.device)
        self._known = known[:, :, None] & known[:, None, :]
        self._same = eye.bool() & ~self._known
        self._mean = mean
        self._line = self._unit(self._value[:, :, None] * self._value[:, None, :] * self._known)

    @classmethod
    def measured(cls, sites: Sequence[Site], rows: Rows, weights: Tensor, outputs: int) -> Kernel:
        """The kernel centred under these rows."""
        share = weights / weights.sum()
        means, moments = [], []
        for n, site in enumerate(sites):
            x = rows.vectors(n, site.seen)
            means.append(share @ x)
            moments.append((x * share[:, None]).T @ x if site.knots is not None else x.new_zeros(0, 0))
        return cls(sites, means, moments, outputs)

    def to(self, device: torch.device) -> Kernel:
        """The kernel on another device."""
        means, moments = ([part.to(device) for part in each] for each in (self.means, self.moments))
        return Kernel(self.sites, means, moments, self.layout.outputs)

    def noise_features(self, rows: Rows) -> Tensor:  # (B, K)
        """Standardised values of the columns of numbers, on which the noise may depend; 0 where one is missing."""
        found = [
            rows.vectors(n, self.sites[n].seen + 1)[:, : len(self.sites[n].values)]  # one state is the average
            @ self._value[k, : len(self.sites[n].values)].clamp(-Settings.NOISE_END, Settings.NOISE_END)
            for k, n in enumerate(self.numbers)
        ]
        return torch.stack(found, 1) if found else rows.share.new_zeros(len(rows), 0)

    def _unit(self, table: Tensor) -> Tensor:  # (K, I, I): centred, mean variance 1
        means = (table @ self._mean[:, :, None])[..., 0]
        whole = (means * self._mean).sum(1)[:, None, None]
        table = table - means[:, :, None] - means[:, None, :] + whole
        variance = (self._moment * table).sum((1, 2))
        return table * torch.where(variance > _LEAST, 1 / variance.clamp(min=_LEAST), 0.0)[:, None, None]

    def tables(self, theta: Tensor, *, average: bool = True) -> tuple[list[Tensor], Tensor]:  # N of (I, I, 4), (4,)
        """Tables, with ``average`` the average of the states as one more of them, and the scales of the four terms."""
        h = self.layout.split(theta)
        found: list[Tensor] = [theta] * len(self.sites)
        if self.numbers:
            mix = torch.sigmoid(h["number.position"])[:, None]
            place = (1 - mix) * self._value + mix * self._rank
            far = place[:, :, None] - place[:, None, :]

            def inside(table: Tensor) -> Tensor:
                return torch.where(self._known, table, self._same.to(table))

            smooth = self._unit(inside(torch.exp(-0.5 * (far * torch.exp(-h["number.length"])[:, None, None]) ** 2)))
            rough = self._unit(inside(torch.exp(-far.abs() * torch.exp(-h["number.rough_length"])[:, None, None])))
            share = torch.sigmoid(h["number.line"])[:, None, None]
            smooth = (1 - share) * smooth + share * self._line
            # A missing value is as far from the middle as others, in a direction of its own: these are distances.
            square = far**2 + (~(self._known | self._same)).to(far)
            joint = torch.exp(-0.5 * square * torch.exp(h["w"] + h["number.relevance"] + h["number.w"])[:, None, None])
            tables = self._combined(h, "number", smooth, rough, joint, self._mean if average else None)
            # Taken apart at once: the gradient of each part alone would be as large as the whole.
            for n, table in zip(self.numbers, tables.unbind(0), strict=True):
                seen = self.sites[n].seen
                keep = [*range(seen), len(table) - 1] if average else slice(seen)
                found[n] = table if seen + average == len(table) else table[keep][:, keep]
        for k, n in enumerate(self.categories):
            p = self.means[n]
            eye = torch.eye(len(p), dtype=theta.dtype, device=theta.device)
            unit = (eye - p - p[:, None] + p.square().sum())[None]
            variance = 1 - p.square().sum()
            unit = unit / variance if variance > _LEAST else unit * 0
            other = torch.exp(-0.5 * torch.exp(h["w"] + h["level.relevance"][k] + h["level.w"][k]))
            joint = (eye + (1 - eye) * other)[None]
            own = {f"level.{name}": h[f"level.{name}"][k : k + 1] for name in ("a", "j", "b", "r", "relevance")}
            found[n] = self._combined({**h, **own}, "level", unit, unit, joint, p[None] if average else None)[0]
        one = torch.ones((), dtype=theta.dtype, device=theta.device)
        return found, torch.stack([h["smooth"].exp(), h["rough"].exp(), h["joint"].exp(), one])

    @staticmethod
    def _combined(
        h: dict[str, Tensor], kind: str, smooth: Tensor, rough: Tensor, joint: Tensor, mean: Tensor | None
    ) -> Tensor:
        logs = {name: h[name] + h[f"{kind}.relevance"] + h[f"{kind}.{name}"] for name in "ajbr"}
        size = {name: log.exp()[:, None, None] for name, log in logs.items()}
        parts = [1 + size["a"] * smooth, 1 + size["j"] * rough, joint, size["b"] * smooth + size["r"] * rough]
        if mean is not None:
            # The average of the states as one more of them, last.
            parts = [torch.cat([part, mean[:, None] @ part], 1) for part in parts]
            parts = [torch.cat([part, part @ mean[:, :, None]], 2) for part in parts]
        return torch.stack(parts, -1)
