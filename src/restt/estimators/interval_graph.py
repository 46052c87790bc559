"""Bounds of a predictive interval as part of an exported graph: :meth:`restt.prior.Predictive.interval` as operations.

The kernel between a row and the inducing rows is a sum of products over columns of x T z, where x and z are their site
vectors and T is a table of the member's. All terms of a member and its prior variance x T x are multiplied up together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from restt.diagonal import DiagonalTT
from restt.estimators.columns import AVERAGE
from restt.estimators.encoding import Encoding, with_rare_unseen
from restt.estimators.encoding_graph import EncodingPart
from restt.interop.exporting import ModelGraph
from restt.interop.graph_parts import summed
from restt.interop.operations import GraphPart, Ops, Value
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
        super().__init__(module, encoding, average=True, head=head, row_shape=encoding.row_shape)
        self.interval = interval

    def build(self, ops: Ops, x: Value) -> tuple[Value, Value, Value]:
        assert isinstance(self.map, EncodingPart)
        assert isinstance(self.head, GraphPart)
        vectors, refused, unseen = self.map.states(ops, x)
        outputs = self.outputs(ops, vectors, refused)
        mean = self.head.build(ops, outputs)
        return mean, *self.interval.build(ops, vectors, unseen, outputs, mean)


class IntervalPart(nn.Module):
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

    def build(
        self,
        ops: Ops,
        vectors: Value,  # (B, N, I)
        unseen: Value,  # (B, N)
        outputs: Value,  # (B, O)
        mean: Value,  # (B, O), or (B,) where y was
    ) -> tuple[Value, Value]:
        columns = [
            cast(ColumnPart, part).build(ops, ops.take(vectors, 1, n), ops.take(unseen, 1, n))
            for n, part in enumerate(self.columns)
        ]
        deviation = self._deviation(ops, columns, outputs)
        low, high = (
            self.ends.build(ops, ops.add(outputs, ops.multiply(deviation, ops.constant(quantile))))
            for quantile in (self.get_buffer("low"), self.get_buffer("high"))
        )
        return ops.minimum(low, mean), ops.maximum(high, mean)

    def _deviation(self, ops: Ops, columns: Sequence[tuple[Value, ...]], outputs: Value) -> Value:  # (B, 1)
        """:meth:`Predictive.deviations`."""
        level = ops.matmul(outputs, ops.constant(self.average))
        level = ops.at_most(ops.at_least(level, -Settings.NOISE_END), Settings.NOISE_END)
        slopes = ops.matmul(ops.join([vector for vector, *_ in columns]), ops.constant(self.slopes))
        slopes = ops.add(slopes, ops.multiply(level, ops.constant(self.level_slopes)))  # (B, S + 1)
        members = [cast(MemberPart, part).build(ops, columns) for part in self.members]
        variance = ops.add(self._noise(ops, slopes), self._between(ops, [mean for _, mean in members]))
        for weight, (known, _) in zip(self.weights, members, strict=True):
            variance = ops.add(variance, ops.multiply(ops.at_least(known, 0.0), ops.number(weight)))
        variance = ops.at_least(ops.add(variance, ops.number(self.extra)), self.least)
        last = ops.cut(slopes, -1, len(self.weights), len(self.weights) + 1)
        grown = ops.power(ops.number(math.e), ops.multiply(last, ops.number(0.5)))
        return ops.multiply(ops.power(variance, ops.number(0.5)), grown)

    def _noise(self, ops: Ops, slopes: Value) -> Value:  # (B, S + 1) -> (B, 1)
        """The members' mean variance of the noise: :func:`restt.prior.objective.log_noise`, exponentiated."""
        base, one, two = ops.number(math.e), ops.number(1.0), ops.number(2.0)
        slope = ops.cut(slopes, -1, 0, len(self.weights))
        # tanh u = 1 - 2/(e^2u + 1)
        power = ops.power(base, ops.multiply(slope, ops.number(2 / Settings.NOISE_RANGE)))
        bounded = ops.subtract(one, ops.divide(two, ops.add(power, one)))
        log = ops.add(ops.constant(self.noise), ops.multiply(bounded, ops.number(Settings.NOISE_RANGE)))
        return ops.add(ops.matmul(ops.power(base, log), ops.constant(self.noise_weights)), ops.number(self.noise_least))

    def _between(self, ops: Ops, means: Sequence[Value]) -> Value:  # S of (B, O) -> (B, 1)
        """Variance of the members' means."""
        weights = [ops.number(weight) for weight in self.weights]
        centre = summed(ops, [ops.multiply(mean, weight) for mean, weight in zip(means, weights, strict=True)])
        away = [ops.subtract(mean, centre) for mean in means]
        squares = [ops.multiply(ops.multiply(a, a), weight) for a, weight in zip(away, weights, strict=True)]
        return ops.matmul(summed(ops, squares), ops.constant(self.average))


class ColumnPart(nn.Module):
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

    def build(self, ops: Ops, vectors: Value, unseen: Value) -> tuple[Value, Value, Value]:  # (B, I), (B,)
        known = ops.matmul(vectors, ops.constant(self.moved))
        found = ops.where(ops.insert_axis(unseen, -1), ops.constant(self.average), known)
        return found, ops.constant(self.inducing), ops.constant(self.ones)


class MemberPart(nn.Module):
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

    def build(self, ops: Ops, columns: Sequence[tuple[Value, ...]]) -> tuple[Value, Value]:
        rows = len(self.root)
        kernel = summed(ops, [self._seen(ops, f"effect_{n}", *column) for n, column in enumerate(columns)])
        if self.products:
            # Written down before they are multiplied: onnxruntime then holds one column's at a time, in place of all.
            product, *factors = [self._seen(ops, f"factors_{n}", *column) for n, column in enumerate(columns)]
            for factor in factors:
                product = ops.multiply(product, factor)
            kernel = summed(ops, [kernel, *(ops.take(product, 0, k) for k in range(self.products))])
        kernel = ops.add(kernel, ops.number(self.constant))
        cross, variance = ops.cut(kernel, -1, 0, rows), ops.cut(kernel, -1, rows, rows + 1)
        solved = ops.matmul(cross, ops.constant(self.root))
        known = ops.matmul(ops.multiply(solved, solved), ops.constant(self.ones))
        return ops.subtract(variance, known), ops.matmul(cross, ops.constant(self.mean))

    def _seen(self, ops: Ops, name: str, vectors: Value, inducing: Value, ones: Value) -> Value:  # (…, B, M + 1)
        """A column's part in the kernel with the inducing rows, and in that of rows with themselves."""
        image = ops.matmul(vectors, ops.constant(self.get_buffer(name)))
        return ops.join([ops.matmul(image, inducing), ops.matmul(ops.multiply(image, vectors), ones)])


def _becomes_unseen(encoding: Encoding, place: int, code: int) -> bool:
    numbers = np.zeros((1, len(encoding.columns)))
    numbers[0, place] = code
    return bool(with_rare_unseen(encoding, numbers)[0, place] == AVERAGE)


def _values(kernel: Kernel) -> Tensor:  # (I, K)
    """What the noise depends on in each state of the columns of numbers."""
    last = torch.tensor([site.seen for site in kernel.sites])
    codes = torch.minimum(torch.arange(int(last.max()) + 1)[:, None], last)
    return kernel.noise_features(Rows(codes.int(), torch.zeros_like(codes, dtype=torch.float64)))
