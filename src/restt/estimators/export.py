"""Export of a fitted estimator as a graph: its parts, inputs, outputs and metadata.

The bounds are :meth:`restt.prior.Predictive.interval` as operations. The kernel between a row and the inducing rows is
a sum of products over columns of x T z, where x and z are their site vectors and T is a table of the member's. All
terms of a member and its prior variance x T x are multiplied up together.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from restt._common.errors import check_choice, check_positive, shown
from restt._common.version import __version__
from restt.diagonal import DiagonalTT
from restt.estimators.columns import AVERAGE, Column
from restt.estimators.encoding import Encoding, columns_with_few_rare
from restt.estimators.modelled import Modelled
from restt.estimators.targets import Labels, Target, Values
from restt.interop.exporting import ModelGraph, checked_format, write_graph
from restt.interop.graph_parts import MapPart, map_part
from restt.interop.onnx_graph import MISSING_TEXTS, ColumnInput, GraphPart, Interface
from restt.module import ResTT
from restt.prior import Predictive, Warp
from restt.prior.gp import Process
from restt.prior.pairs import Rows
from restt.prior.settings import Settings

# What a graph with a coverage returns beside its output.
BOUNDS = ("lower", "upper")


def export_graph(
    module: ResTT | DiagonalTT,
    encoding: Encoding,
    target: Target | Modelled,
    path: str | PathLike[str],
    inputs: str = "auto",
    names: Sequence[str] | None = None,
    spread: Any = None,
    coverage: float | None = None,
) -> Path:
    """Write table -> predictions of a regressor, or probabilities of a classifier; see :meth:`BaseResTT.export`.

    ``names`` are the columns', where the table of the fit had some. With a ``coverage``, ``spread`` is the predictive
    distribution.
    """
    kind = checked_format(path)
    check_choice("inputs", inputs, ("auto", "columns", "numbers"))
    if inputs == "columns" and kind != "onnx":
        raise ValueError(f'inputs="columns" is for .onnx files, {Path(path).suffix} takes tensors: inputs="numbers"')
    by_columns = inputs == "columns" or (inputs == "auto" and kind == "onnx" and encoding.holds_categories)
    graph = _graph(module, encoding, target, spread, coverage)
    return write_graph(graph, path, _interface(encoding, target, names, by_columns, coverage))


def _graph(
    module: ResTT | DiagonalTT, encoding: Encoding, target: Target | Modelled, spread: Any, coverage: float | None
) -> ModelGraph:
    part = EncodingPart(encoding, module)
    if not isinstance(target, Modelled):
        if coverage is not None:
            raise ValueError(
                f"coverage is for ResTTRegressor, whose intervals a graph can hold, got coverage={shown(coverage)} for "
                "an estimator without intervals: leave it out"
            )
        link = Probabilities(target) if isinstance(target, Labels) else Rescaled(target, module.dtype)
        return ModelGraph(module, part, average=True, head=link)
    if not isinstance(target.model, Warp) or not isinstance(spread, Predictive):
        raise ValueError("this model was saved by restt 0.8: fit it again to export it")
    head = Unwarped(target, target.model, module.dtype)
    if coverage is None:
        return ModelGraph(module, part, average=True, head=head)
    if not check_positive("coverage", coverage) < 1:
        raise ValueError(f"coverage must be between 0 and 1, got {coverage}")
    ends = Unwarped(target, target.model, torch.float64, smeared=False)
    return IntervalGraph(module, part, head, ends, spread, encoding, float(coverage))


def _interface(
    encoding: Encoding, target: Target | Modelled, names: Sequence[str] | None, by_columns: bool, coverage: float | None
) -> Interface:
    labels = [column.label for column in encoding.columns] if names is None else [str(name) for name in names]
    pairs = list(zip(labels, encoding.columns, strict=True))
    classes = target.classes.tolist() if isinstance(target, Labels) else None
    scale: dict[str, Any] = {"scale": "identity", "outputs": target.outputs}
    if isinstance(target, Modelled) and isinstance(target.model, Warp):
        scale = {"scale": "power", "power": target.model.power.tolist(), "outputs": target.outputs}
    notes = {
        "restt_version": __version__,
        "inputs": "columns" if by_columns else "numbers",
        "columns": [_described(name, column) for name, column in pairs],
        "feature_names": None if names is None else labels,
        "classes": classes,
        "target": scale if classes is None else None,
        "coverage": None if coverage is None else float(coverage),
    }
    return Interface(
        [_column_input(name, column) for name, column in pairs] if by_columns else [],
        [] if classes is None else [str(name) for name in classes],
        {key: note if isinstance(note, str) else json.dumps(note) for key, note in notes.items()},
        () if coverage is None else BOUNDS,
    )


def _column_input(name: str, column: Column) -> ColumnInput:
    if column.levels is None:
        return ColumnInput(name)
    unseen = float(len(column.levels)) if column.other else AVERAGE
    texts = {isinstance(level, str) for level in column.levels or column.rare or ("",)}
    if len(texts) > 1:
        raise ValueError(
            f"{column.label} has levels of text beside numbers, {shown(list(column.levels))}, and an input of a graph "
            'has one type: make text of all of them before the fit, or export with inputs="numbers"'
        )
    known = {*column.levels, *(column.rare or ())}
    missing = tuple(text for text in MISSING_TEXTS if text not in known)
    return ColumnInput(name, column.levels, unseen, texts == {True}, missing if texts == {True} else ())


def _described(name: str, column: Column) -> dict[str, Any]:
    """A column in the metadata: its kind, its levels, and what becomes of values that are none of them."""
    missing = "learned" if column.missing else "average" if column.averages_missing else "refused"
    if column.levels is None:
        return {"name": name, "kind": "number", "missing": missing}
    unseen = {None: "refused", True: "other", False: "average"}[column.other]
    return {"name": name, "kind": "category", "levels": list(column.levels), "missing": missing, "unseen": unseen}


class EncodingPart(MapPart):
    """:meth:`Encoding.vectors` as operations; NaN where the encoding refuses a value."""

    def __init__(self, encoding: Encoding, module: ResTT | DiagonalTT) -> None:
        super().__init__(module.dtype)
        dtype, columns, width = module.dtype, encoding.sites, max(encoding.widths)
        self.row_shape, self.largest = (len(columns),), torch.finfo(dtype).max
        self.map = map_part(encoding.feature_map, module)
        self.order = None if encoding.in_order else nn.Buffer(torch.tensor(encoding.order))
        self.shift, self.scale, self.fill = (
            nn.Buffer(part.to(dtype)) for part in (encoding.shift, encoding.scale, encoding.fill)
        )
        self.widening = nn.Buffer(torch.eye(encoding.feature_map.width, width, dtype=dtype))
        self.ones = nn.Buffer(torch.ones(width, 1, dtype=dtype))
        states, counts = torch.arange(width), torch.tensor([column.states for column in columns])
        self.levels = nn.Buffer(states.to(dtype).masked_fill(states >= counts[:, None], math.nan))  # (N, I)
        self.missing_state = nn.Buffer(states == encoding.missing_states[:, None])  # (N, I)
        never, averaged = encoding.missing_states < 0, torch.tensor([column.averages_missing for column in columns])
        # (N, 1) each
        self.categorical = nn.Buffer(encoding.categorical[:, None])
        self.missing_refused, self.missing_averaged = (
            nn.Buffer((never & flag)[:, None]) for flag in (~averaged, averaged)
        )
        self.averaged = nn.Buffer(torch.tensor([[column.other is False] for column in columns]))
        zeros = torch.zeros(len(columns), width)
        self.means, self.site_means = (  # (N, I) each
            nn.Buffer((zeros if part is None else part).to(dtype)) for part in (encoding.means, encoding.site_means)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Site vectors (B, N, I)."""
        return self.states(x)[0]

    def states(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Site vectors (B, N, I), and where a value is one that the fit did not see (B, N, 1)."""
        x = x if self.order is None else x.index_select(-1, self.order)
        value = x.unsqueeze(-1)
        missing, hits = torch.isnan(value), torch.eq(value, self.levels)
        state = torch.isnan(x) | self.categorical.squeeze(-1)
        # Far beyond the rows of the fit a quotient may overflow.
        scaled = torch.clamp((torch.where(state, self.fill, x) - self.shift) / self.scale, -self.largest, self.largest)
        vectors = torch.where(missing | self.categorical, 0.0, self.map(scaled)) @ self.widening
        vectors = vectors + (hits | (missing & self.missing_state)).to(self.dtype) - self.means
        unknown = (hits.to(self.dtype) @ self.ones < 0.5) & self.categorical & ~missing
        unseen = unknown | (missing & self.missing_averaged)
        average = torch.eq(value, AVERAGE) & self.averaged
        infinite = ~(torch.isfinite(value) | missing)
        refused = infinite | (unknown & ~average) | (missing & self.missing_refused)
        vectors = torch.where(unseen, self.site_means, vectors)
        return torch.where(refused, self.nan, vectors), unseen


class Rescaled(GraphPart):
    """Outputs (B, O) in the units of y, (B,) where y was."""

    def __init__(self, target: Values, dtype: torch.dtype) -> None:
        super().__init__()
        self.mean, self.scale = (nn.Buffer(torch.from_numpy(part).to(dtype)) for part in (target.mean, target.scale))
        self.flat = target.flat

    def forward(self, x: Tensor) -> Tensor:
        """Undo the scaling of y."""
        values = x * self.scale + self.mean
        return values.select(-1, 0) if self.flat else values


class Unwarped(GraphPart):
    """Predictions of y, (B, O), or (B,) where y was, from outputs: :meth:`restt.prior.Warp.predict` as operations.

    Not ``smeared``, it is :meth:`~restt.prior.Warp.decode`, which makes quantiles of y out of quantiles of outputs.
    """

    def __init__(self, target: Modelled, warp: Warp, dtype: torch.dtype, smeared: bool = True) -> None:
        super().__init__()
        varies = np.isnan(target.constant)
        factor, offset = (np.ldexp(values, target.exponents) for values in (warp.width, warp.shift))
        low, high = (warp.transformed(end) for end in (warp.low, warp.high))
        residuals = warp.residuals if smeared and (warp.power != 1).any() else np.zeros_like(warp.residuals[:1])
        values = {
            "std": warp.std, "mean": warp.mean, "low": low, "high": high, "above": warp.power, "below": 2 - warp.power,
            "low_slope": warp.slope(warp.low), "high_slope": warp.slope(warp.high), "residuals": residuals[:, None],
            "factor": np.where(varies, factor, 0.0), "offset": np.where(varies, offset, target.constant),
        }  # fmt: skip
        for name, value in values.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(value)).to(dtype))
        self.flat = target.flat

    def forward(self, x: Tensor) -> Tensor:
        """Undo the warp of y."""
        buffers = dict(self.named_buffers())
        value = x.unsqueeze(0) + buffers["residuals"]  # (Q, B, O)
        value = value * buffers["std"] + buffers["mean"]
        inside = torch.minimum(torch.maximum(value, buffers["low"]), buffers["high"])
        negative = inside < 0.0
        power = torch.where(negative, buffers["below"], buffers["above"])
        size = torch.pow(torch.abs(inside) * power + 1.0, 1.0 / power)
        z = torch.where(negative, 1.0 - size, size - 1.0)
        beyond = value - inside
        z = z + beyond / torch.where(beyond < 0.0, buffers["low_slope"], buffers["high_slope"])
        y = (z * buffers["factor"] + buffers["offset"]).mean(dim=0)
        return y.select(-1, 0) if self.flat else y


class Probabilities(GraphPart):
    """Outputs (B, K) as probabilities."""

    def __init__(self, target: Labels) -> None:
        super().__init__()
        self.temperature = target.temperature

    def forward(self, x: Tensor) -> Tensor:
        """Softmax at the fitted temperature."""
        return torch.softmax(x / self.temperature, dim=-1)


class IntervalGraph(ModelGraph):
    """Table -> predictions, lower and upper bounds, each (B,) or (B, O).

    ``ends`` turns quantiles of outputs into quantiles of y.
    """

    def __init__(
        self,
        module: ResTT | DiagonalTT,
        part: EncodingPart,
        head: GraphPart,
        ends: GraphPart,
        predictive: Predictive,
        encoding: Encoding,
        coverage: float,
    ) -> None:
        super().__init__(module, part, average=True, head=head)
        self.ends, self.weights, self.extra = ends, predictive.weights.tolist(), predictive.extra
        self.least = predictive.settings.least_noise
        self.columns = nn.ModuleList(ColumnPart(predictive, encoding, n) for n in range(len(encoding.order)))
        slopes = _state_slopes(predictive, encoding)
        self.members = nn.ModuleList(
            MemberPart(encoding.order, *member[1:], slopes[:, s]) for s, member in enumerate(predictive.members)
        )
        levels = [(1 - coverage) / 2, (1 + coverage) / 2]
        self.low, self.high = (nn.Buffer(torch.from_numpy(predictive.quantile(level))) for level in levels)  # (O,)
        self.mean = nn.Buffer(torch.full((len(self.low), 1), 1 / len(self.low), dtype=torch.float64))
        self.slopes, self.level_slope = nn.Buffer(slopes[:, -1:].contiguous()), float(predictive.slopes[-1])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Predictions and bounds of rows."""
        assert isinstance(self.map, EncodingPart)
        assert isinstance(self.head, GraphPart)
        vectors, unseen = self.map.states(x)
        outputs = self.outputs(vectors)
        mean = self.head(outputs)
        columns = [part(vectors.select(1, n), unseen.select(1, n)) for n, part in enumerate(self.columns)]
        deviation = self._deviation(columns, outputs)
        low, high = (self.ends(outputs + deviation * quantile) for quantile in (self.low, self.high))
        return mean, torch.minimum(low, mean), torch.maximum(high, mean)

    def _deviation(self, columns: Sequence[tuple[Tensor, ...]], outputs: Tensor) -> Tensor:  # (B, 1)
        """:meth:`Predictive.deviations`."""
        level = torch.clamp(outputs @ self.mean, -Settings.NOISE_END, Settings.NOISE_END)
        states = torch.cat([vector for vector, *_ in columns], dim=-1)  # (B, Σ I_n)
        variances, means = zip(*(part(columns, states, level) for part in self.members), strict=True)
        centre = self._weighted(means)
        between = self._weighted([(mean - centre) * (mean - centre) for mean in means]) @ self.mean
        variance = torch.clamp(self._weighted(variances) + between + self.extra, self.least)
        return variance**0.5 * torch.exp((states @ self.slopes + level * self.level_slope) * 0.5)

    def _weighted(self, values: Sequence[Tensor]) -> Tensor:
        first, *others = [value * weight for value, weight in zip(values, self.weights, strict=True)]
        return sum(others, first)


class ColumnPart(GraphPart):
    """One column's vectors in the states of the predictive distribution, whose last is the average of the others.

    Values that the fit did not see are that state, and so are rare levels, see :func:`columns_with_few_rare`.
    """

    def __init__(self, predictive: Predictive, encoding: Encoding, n: int) -> None:
        super().__init__()
        place, seen = encoding.order[n], predictive.kernel.sites[encoding.order[n]].width
        eye = torch.eye(seen + 1, dtype=torch.float64)
        moved = torch.eye(max(encoding.widths), seen + 1, dtype=torch.float64)
        if place in columns_with_few_rare(encoding):
            moved[len(encoding.columns[place].levels or ())] = eye[seen]
        self.moved, self.average = nn.Buffer(moved), nn.Buffer(eye[seen])
        self.inducing = nn.Buffer(predictive.inducing.vectors(place, seen + 1).T.contiguous())  # (I + 1, M)
        self.ones = nn.Buffer(torch.ones(seen + 1, 1, dtype=torch.float64))

    def forward(self, vectors: Tensor, unseen: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # (B, I), (B, 1)
        """The column's vectors, those of the inducing rows, and ones."""
        return torch.where(unseen, self.average, vectors @ self.moved), self.inducing, self.ones


class MemberPart(GraphPart):
    """One member's variance of a new observation (B, 1), and mean (B, O)."""

    def __init__(self, order: Sequence[int], process: Process, root: Tensor, mean: Tensor, slopes: Tensor) -> None:
        super().__init__()
        terms = [k for k in range(3) if float(process.scale[k]) > 0]
        self.products, self.constant, self.least = len(terms), process.settings.constant, process.settings.least_noise
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
        theta = process.kernel.layout.split(process.theta)
        self.slopes = nn.Buffer(slopes[:, None].contiguous())  # (Σ I_n, 1): of the log noise in the states
        self.log_noise, self.level_slope = float(theta["noise"]), float(theta["noise_mean"])

    def forward(self, columns: Sequence[tuple[Tensor, ...]], states: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
        """Variance and mean of rows."""
        rows = len(self.root)
        kernel, *effects = [self._covariance(f"effect_{n}", *column) for n, column in enumerate(columns)]
        kernel = sum(effects, kernel)
        if self.products:
            # Written down before they are multiplied: onnxruntime then holds one column's at a time, in place of all.
            product, *factors = [self._covariance(f"factors_{n}", *column) for n, column in enumerate(columns)]
            for factor in factors:
                product = product * factor
            kernel = sum((product.select(0, k) for k in range(self.products)), kernel)
        kernel = kernel + self.constant
        cross, prior = kernel.narrow(-1, 0, rows), kernel.narrow(-1, rows, 1)
        solved = cross @ self.root
        slope = torch.tanh((states @ self.slopes + level * self.level_slope) / Settings.NOISE_RANGE)
        noise = torch.exp(slope * Settings.NOISE_RANGE + self.log_noise) + self.least
        return torch.clamp(prior - (solved * solved) @ self.ones, 0.0) + noise, cross @ self.mean

    def _covariance(self, name: str, vectors: Tensor, inducing: Tensor, ones: Tensor) -> Tensor:  # (…, B, M + 1)
        """A column's part in the kernel with the inducing rows, and in that of rows with themselves."""
        image = vectors @ self.get_buffer(name)
        return torch.cat([image @ inducing, (image * vectors) @ ones], dim=-1)


def _state_slopes(predictive: Predictive, encoding: Encoding) -> Tensor:  # (Σ I_n, S + 1)
    """Slopes of each member's log noise, then of log s², in the states of all columns in the sites' order."""
    kernel = predictive.kernel
    own = [kernel.layout.split(theta)["number.noise"] for theta in predictive.thetas]
    slopes = torch.stack([*own, torch.from_numpy(predictive.slopes[:-1])], 1)  # (K, S + 1)
    last = torch.tensor([site.width for site in kernel.sites])
    codes = torch.minimum(torch.arange(int(last.max()) + 1)[:, None], last)
    features = kernel.noise_features(Rows(codes.int(), torch.zeros_like(codes, dtype=torch.float64)))  # (I, K)
    by_state = [slopes.new_zeros(site.width + 1, slopes.shape[1]) for site in kernel.sites]
    for k, n in enumerate(kernel.numbers):
        by_state[n] = torch.outer(features[: len(by_state[n]), k], slopes[k])
    return torch.cat([by_state[n] for n in encoding.order])
