"""Bounds of a predictive interval as part of an exported graph: :meth:`restt.prior.Predictive.interval` as operations.

The kernel between a row and the inducing rows is a sum of products over columns of x T z, where x and z are their site
vectors and T is a table of the member's. All terms of a member and its prior variance x T x are multiplied up together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from restt.diagonal import DiagonalTT
from restt.estimators.columns import AVERAGE
from restt.estimators.encoding import Encoding, with_rare_unseen
from restt.estimators.encoding_graph import EncodingPart
from restt.interop.exporting import ModelGraph
from restt.interop.graph_parts import summed
from restt.interop.onnx_graph import GraphPart
from restt.module import ResTT
from restt.prior import Predictive
from restt.prior.gp import Process
from restt.prior.kernel import Kernel
from restt.prior.pairs import Rows
from restt.prior.settings import Settings


class IntervalGraph(ModelGraph):
    """Table -> predictions, lower and upper bounds, each (B,) or (B, O)."""

    def __init__(
        self, module: ResTT | DiagonalTT, encoding: EncodingPart, head: GraphPart, interval: IntervalPart
    ) -> None:
        super().__init__(module, encoding, average=True, head=head)
        self.interval = interval

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Predictions and bounds of rows."""
        assert isinstance(self.map, EncodingPart)
        assert isinstance(self.head, GraphPart)
        vectors, refused, unseen = self.map.states(x)
        outputs = self.outputs(vectors, refused)
        mean = self.head(outputs)
        return mean, *self.interval(vectors, unseen, outputs, mean)


class IntervalPart(GraphPart):
    """Site vectors, outputs and predictions -> bounds. ``ends`` turns quantiles of outputs into quantiles of y."""

    def __init__(self, predictive: Predictive, encoding: Encoding, coverage: float, ends: GraphPart) -> None:
        super().__init__()
        self.ends, self.extra, self.weights = ends, predictive.extra, predictive.weights.tolist()
        kernel, settings = predictive.kernel, predictive.settings
        for name, level in (("low", (1 - coverage) / 2), ("high", (1 + coverage) / 2)):
            self.register_buffer(name, torch.from_numpy(predictive.quantile(level)))  # (O,)
        self.columns = nn.ModuleList(ColumnPart(predictive, encoding, n) for n in range(len(encoding.order)))
        self.members = nn.ModuleList(MemberPart(encoding.order, *one[1:]) for one in predictive.members)
        outputs, self.least = len(predictive.quantile(0.5)), settings.least_noise
        self.average = nn.Buffer(torch.full((outputs, 1), 1 / outputs, dtype=torch.float64))
        held = [kernel.layout.split(theta) for theta in predictive.thetas]
        self.noise = nn.Buffer(torch.stack([h["noise"] for h in held]))  # (S,)
        self.noise_weights = nn.Buffer(torch.from_numpy(predictive.weights)[:, None])  # (S, 1)
        self.noise_least = float(predictive.weights.sum()) * settings.least_noise
        # Slopes in the columns and in the prediction: of each member's log noise, then of log s².
        slopes = torch.from_numpy(predictive.slopes)
        in_columns = torch.stack([*(h["number.noise"] for h in held), slopes[:-1]], 1)  # (K, S + 1)
        self.level_slopes = nn.Buffer(torch.stack([*(h["noise_mean"] for h in held), slopes[-1]]))  # (S + 1,)
        by_state, values = [slopes.new_zeros(site.seen + 1, len(held) + 1) for site in kernel.sites], _values(kernel)
        for k, n in enumerate(kernel.numbers):
            by_state[n] = torch.outer(values[: len(by_state[n]), k], in_columns[k])
        self.slopes = nn.Buffer(torch.cat([by_state[n] for n in encoding.order]))  # (Σ I_n, S + 1)

    def forward(
        self,
        vectors: Tensor,  # (B, N, I)
        unseen: Tensor,  # (B, N)
        outputs: Tensor,  # (B, O)
        mean: Tensor,  # (B, O), or (B,) where y was
    ) -> tuple[Tensor, Tensor]:
        """Lower and upper bounds."""
        columns = [part(vectors.select(1, n), unseen.select(1, n)) for n, part in enumerate(self.columns)]
        deviation = self._deviation(columns, outputs)
        low, high = (self.ends(outputs + deviation * self.get_buffer(name)) for name in ("low", "high"))
        return torch.minimum(low, mean), torch.maximum(high, mean)

    def _deviation(self, columns: Sequence[tuple[Tensor, ...]], outputs: Tensor) -> Tensor:  # (B, 1)
        """:meth:`Predictive.deviations`."""
        level = torch.clamp(outputs @ self.average, -Settings.NOISE_END, Settings.NOISE_END)
        slopes = torch.cat([vector for vector, *_ in columns], dim=-1) @ self.slopes
        slopes = slopes + level * self.level_slopes  # (B, S + 1)
        members = [part(columns) for part in self.members]
        variance = self._noise(slopes) + self._between([mean for _, mean in members])
        for weight, (known, _) in zip(self.weights, members, strict=True):
            variance = variance + torch.clamp(known, 0.0) * weight
        variance = torch.clamp(variance + self.extra, self.least)
        return variance**0.5 * torch.exp(slopes.narrow(-1, len(self.weights), 1) * 0.5)

    def _noise(self, slopes: Tensor) -> Tensor:  # (B, S + 1) -> (B, 1)
        """The members' mean variance of the noise: :func:`restt.prior.objective.log_noise`, exponentiated."""
        slope = slopes.narrow(-1, 0, len(self.weights))
        # tanh u = 1 - 2/(e^2u + 1)
        bounded = 1.0 - 2.0 / (torch.exp(slope * (2 / Settings.NOISE_RANGE)) + 1.0)
        return torch.exp(bounded * Settings.NOISE_RANGE + self.noise) @ self.noise_weights + self.noise_least

    def _between(self, means: Sequence[Tensor]) -> Tensor:  # S of (B, O) -> (B, 1)
        """Variance of the members' means."""
        centre = summed([mean * weight for mean, weight in zip(means, self.weights, strict=True)])
        away = [mean - centre for mean in means]
        return summed([a * a * weight for a, weight in zip(away, self.weights, strict=True)]) @ self.average


class ColumnPart(GraphPart):
    """One column's vectors in the states of the predictive distribution, whose last is the average of the others.

    Values that the fit did not see are that state, and so are rare levels, see :func:`with_rare_unseen`.
    """

    def __init__(self, predictive: Predictive, encoding: Encoding, n: int) -> None:
        super().__init__()
        place, seen = encoding.order[n], predictive.kernel.sites[encoding.order[n]].seen
        moved = torch.eye(max(encoding.widths), seen + 1, dtype=torch.float64)
        levels = encoding.columns[place].levels
        if levels is not None and _becomes_unseen(encoding, place, len(levels)):
            moved[len(levels)] = moved.new_zeros(seen + 1).index_fill(0, torch.tensor(seen), 1.0)
        self.moved = nn.Buffer(moved)
        self.average = nn.Buffer(torch.eye(seen + 1, dtype=torch.float64)[seen])
        self.inducing = nn.Buffer(predictive.inducing.vectors(place, seen + 1).T.contiguous())  # (I + 1, M)
        self.ones = nn.Buffer(torch.ones(seen + 1, 1, dtype=torch.float64))

    def forward(self, vectors: Tensor, unseen: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # (B, I), (B,)
        """The column's vectors, those of the inducing rows, and ones."""
        return torch.where(unseen.unsqueeze(-1), self.average, vectors @ self.moved), self.inducing, self.ones


class MemberPart(GraphPart):
    """One member's posterior variance (B, 1), not yet bounded by 0, and mean (B, O)."""

    def __init__(self, order: Sequence[int], process: Process, root: Tensor, mean: Tensor) -> None:
        super().__init__()
        terms = [k for k in range(3) if float(process.scale[k]) > 0]
        self.products, self.constant = len(terms), process.settings.constant
        for n, place in enumerate(order):
            table = process.tables[place].clone()
            # No inducing row is in the average state, so this entry is read by the variance alone.
            table[-1, -1] = process.kernel.means[place] @ table.diagonal().T[:-1]
            scale = process.scale if n == 0 else torch.ones_like(process.scale)
            factors = (table * scale)[..., terms].permute(2, 0, 1)
            self.register_buffer(f"factors_{n}", factors.contiguous())  # (terms, I + 1, I + 1)
            self.register_buffer(f"effect_{n}", (table[..., 3] * process.scale[3]).contiguous())  # (I + 1, I + 1)
        self.root, self.mean = nn.Buffer(root.T.contiguous()), nn.Buffer(mean.contiguous())
        self.ones = nn.Buffer(torch.ones(len(root), 1, dtype=torch.float64))

    def forward(self, columns: Sequence[tuple[Tensor, ...]]) -> tuple[Tensor, Tensor]:
        """Variance and mean of rows."""
        rows = len(self.root)
        kernel = summed([self._seen(f"effect_{n}", *column) for n, column in enumerate(columns)])
        if self.products:
            # Written down before they are multiplied: onnxruntime then holds one column's at a time, in place of all.
            product, *factors = [self._seen(f"factors_{n}", *column) for n, column in enumerate(columns)]
            for factor in factors:
                product = product * factor
            kernel = summed([kernel, *(product.select(0, k) for k in range(self.products))])
        kernel = kernel + self.constant
        cross, variance = kernel.narrow(-1, 0, rows), kernel.narrow(-1, rows, 1)
        solved = cross @ self.root
        return variance - (solved * solved) @ self.ones, cross @ self.mean

    def _seen(self, name: str, vectors: Tensor, inducing: Tensor, ones: Tensor) -> Tensor:  # (…, B, M + 1)
        """A column's part in the kernel with the inducing rows, and in that of rows with themselves."""
        image = vectors @ self.get_buffer(name)
        return torch.cat([image @ inducing, (image * vectors) @ ones], dim=-1)


def _becomes_unseen(encoding: Encoding, place: int, code: int) -> bool:
    numbers = np.zeros((1, len(encoding.columns)))
    numbers[0, place] = code
    return bool(with_rare_unseen(encoding, numbers)[0, place] == AVERAGE)


def _values(kernel: Kernel) -> Tensor:  # (I, K)
    """Features of the noise in each state of the columns of numbers."""
    last = torch.tensor([site.seen for site in kernel.sites])
    codes = torch.minimum(torch.arange(int(last.max()) + 1)[:, None], last)
    return kernel.noise_features(Rows(codes.int(), torch.zeros_like(codes, dtype=torch.float64)))
