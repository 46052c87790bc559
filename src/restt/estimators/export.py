"""A fitted estimator as a graph: the encoding's formula, the module, and what turns outputs into predictions."""

from __future__ import annotations

import json
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
from restt.estimators.encoding import Encoding
from restt.estimators.encoding_graph import EncodingPart
from restt.estimators.interval_graph import IntervalGraph, IntervalPart
from restt.estimators.modelled import Modelled
from restt.estimators.saved import SavedSpread
from restt.estimators.targets import Labels, Target, Values
from restt.interop.exporting import ModelGraph, checked_format, write_graph
from restt.interop.onnx_graph import GraphPart
from restt.interop.onnx_tables import MISSING_TEXTS, ColumnInput, Interface
from restt.module import ResTT
from restt.prior import Predictive, Warp

# What a graph with a coverage returns beside its output.
BOUNDS = ("lower", "upper")


def export_graph(
    module: ResTT | DiagonalTT,
    encoding: Encoding,
    target: Target | Modelled,
    path: str | PathLike[str],
    inputs: str = "auto",
    names: Sequence[str] | None = None,
    spread: Predictive | SavedSpread | None = None,
    coverage: float | None = None,
) -> Path:
    """Write table -> predictions of a regressor, or probabilities of a classifier; see :meth:`BaseResTT.export`.

    ``names`` are the columns', where the table of the fit had some. With a ``coverage``, ``spread`` is where intervals
    come from.
    """
    kind = checked_format(path)
    check_choice("inputs", inputs, ("auto", "columns", "numbers"))
    if inputs == "columns" and kind != "onnx":
        raise ValueError(f'inputs="columns" is for .onnx files, {Path(path).suffix} takes tensors: inputs="numbers"')
    by_columns = inputs == "columns" or (inputs == "auto" and kind == "onnx" and encoding.holds_categories)
    head: GraphPart
    if isinstance(target, Labels):
        head = Probabilities(target)
    elif isinstance(target, Values):
        head = Rescaled(target, module.dtype)
    elif isinstance(target.model, Warp):
        head = Unwarped(target, target.model, module.dtype)
    else:
        raise ValueError("this model was saved by restt 0.8: fit it again to export it")
    part = EncodingPart(encoding, module)
    if coverage is None:
        graph = ModelGraph(module, part, average=True, head=head)
    else:
        graph = IntervalGraph(module, part, head, _interval(encoding, target, spread, coverage))
    return write_graph(graph, path, _interface(encoding, target, names, by_columns, coverage))


def _interval(
    encoding: Encoding, target: Target | Modelled, spread: Predictive | SavedSpread | None, coverage: float
) -> IntervalPart:
    if not isinstance(target, Modelled):
        raise ValueError(
            f"coverage is for ResTTRegressor, whose intervals a graph can hold, got coverage={shown(coverage)} for an "
            "estimator without intervals: leave it out"
        )
    if not isinstance(target.model, Warp) or not isinstance(spread, Predictive):
        raise ValueError("this model was saved by restt 0.8: fit it again to export it")
    if not check_positive("coverage", coverage) < 1:
        raise ValueError(f"coverage must be between 0 and 1, got {coverage}")
    ends = Unwarped(target, target.model, torch.float64, smeared=False)
    return IntervalPart(spread, encoding, float(coverage), ends)


def _interface(
    encoding: Encoding,
    target: Target | Modelled,
    names: Sequence[str] | None,
    by_columns: bool,
    coverage: float | None,
) -> Interface:
    called = [column.label for column in encoding.columns] if names is None else [str(name) for name in names]
    pairs = list(zip(called, encoding.columns, strict=True))
    classes = target.classes.tolist() if isinstance(target, Labels) else None
    notes = {
        "restt_version": __version__,
        "inputs": "columns" if by_columns else "numbers",
        "columns": [_described(name, column) for name, column in pairs],
        "feature_names": None if names is None else called,
        "classes": classes,
        "target": None if classes is not None else _scale(target),
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
    levels = list(column.levels)
    return {"name": name, "kind": "category", "levels": levels, "missing": missing, "unseen": unseen}


def _scale(target: Target | Modelled) -> dict[str, Any]:
    """The scale on which y was modelled, and its number of outputs."""
    if isinstance(target, Modelled) and isinstance(target.model, Warp):
        return {"scale": "power", "power": target.model.power.tolist(), "outputs": target.outputs}
    return {"scale": "identity", "outputs": target.outputs}


class Rescaled(GraphPart):
    """Outputs (B, O) in the units of y, (B,) where y was."""

    def __init__(self, target: Values, dtype: torch.dtype) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.from_numpy(target.mean).to(dtype))
        self.scale = nn.Buffer(torch.from_numpy(target.scale).to(dtype))
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
        found = (z * buffers["factor"] + buffers["offset"]).mean(dim=0)
        return found.select(-1, 0) if self.flat else found


class Probabilities(GraphPart):
    """Outputs (B, K) as probabilities."""

    def __init__(self, target: Labels) -> None:
        super().__init__()
        self.temperature = target.temperature

    def forward(self, x: Tensor) -> Tensor:
        """Softmax at the fitted temperature."""
        return torch.softmax(x / self.temperature, dim=-1)
