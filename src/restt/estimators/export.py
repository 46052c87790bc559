"""Export of a fitted estimator as a graph: its parts as operations, inputs, outputs and metadata."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from restt._common.errors import check_choice, check_positive, shown
from restt._common.version import __version__
from restt.diagonal import DiagonalTT
from restt.estimators.columns import AVERAGE, Column
from restt.estimators.encoding import Encoding
from restt.estimators.export_bounds import bounds_part
from restt.estimators.modelled import Modelled
from restt.estimators.targets import Labels, Target, Values
from restt.interop.exporting import checked_format, model_outputs, write_graph
from restt.interop.graph_parts import Function, map_part
from restt.interop.onnx_graph import ENCODERS, Node, OnnxGraph
from restt.module import ResTT
from restt.prior import Predictive, Warp

# Texts that mean a missing value where they are no level, as ONNX has no missing text: the empty one, and what
# onnxruntime for Python makes of None, of NaN and of pandas' NA.
MISSING_TEXTS = ("", "None", "nan", "<NA>")


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
    labels = [column.label for column in encoding.columns] if names is None else [str(name) for name in names]
    returned = ("output",) if coverage is None else ("output", "lower", "upper")
    if by_columns:
        _check_names(labels, {*returned, "label"})
    classes = [str(name) for name in target.classes.tolist()] if isinstance(target, Labels) else None
    return write_graph(
        path,
        _function(module, encoding, target, spread, coverage),
        (len(encoding.columns),),
        module.dtype,
        (None, target.outputs) if isinstance(target, Labels) or not target.flat else (None,),
        names=returned,
        table=(lambda graph: _table(graph, encoding, labels)) if by_columns else None,
        label=None if classes is None else lambda probabilities: _label(probabilities, classes),
        notes=_notes(encoding, target, labels, names is not None, by_columns, coverage),
    )


def _function(
    module: ResTT | DiagonalTT, encoding: Encoding, target: Target | Modelled, spread: Any, coverage: float | None
) -> Function:
    """The whole graph: numbers (B, C) -> predictions, with a coverage also bounds."""
    outputs, states = model_outputs(module, average=True), encoding_part(encoding, module)
    bounds: Function | None = None
    if isinstance(target, Modelled):
        if not isinstance(target.model, Warp) or not isinstance(spread, Predictive):
            raise ValueError("this model was saved by restt 0.8: fit it again to export it")
        head = _unwarped(target, target.model, module.dtype)
        if coverage is not None:
            if not check_positive("coverage", coverage) < 1:
                raise ValueError(f"coverage must be between 0 and 1, got {coverage}")
            decoded = _unwarped(target, target.model, torch.float64, smeared=False)
            bounds = bounds_part(spread, encoding, decoded, float(coverage))
    elif coverage is not None:
        raise ValueError(
            f"coverage is for ResTTRegressor, whose intervals a graph can hold, got coverage={shown(coverage)} for "
            "an estimator without intervals: leave it out"
        )
    else:
        head = _probabilities(target) if isinstance(target, Labels) else _rescaled(target, module.dtype)

    def predicted(x: Any) -> Any:
        vectors, unseen = states(x)
        latent = outputs(vectors)
        mean = head(latent)
        if bounds is None:
            return mean
        low, high = bounds(vectors, unseen, latent)
        return mean, torch.minimum(low, mean), torch.maximum(high, mean)

    return predicted


def encoding_part(encoding: Encoding, module: ResTT | DiagonalTT) -> Function:
    """:meth:`Encoding.vectors` as operations; NaN where the encoding refuses a value.

    Numbers (B, C) -> site vectors (B, N, I), and where a value is one that the fit did not see (B, N, 1).
    """
    dtype, columns, width = module.dtype, encoding.sites, max(encoding.widths)
    largest, nan = torch.finfo(dtype).max, torch.tensor(math.nan, dtype=dtype)
    mapped, order = map_part(encoding.feature_map, module).vectors, torch.tensor(encoding.order)
    shift, scale, fill = (part.to(dtype) for part in (encoding.shift, encoding.scale, encoding.fill))
    widening = torch.eye(encoding.feature_map.width, width, dtype=dtype)
    # Sums are products with ones: onnxruntime's have a wrong shape for an empty batch.
    ones = torch.ones(width, 1, dtype=dtype)
    numbered, counts = torch.arange(width), torch.tensor([column.states for column in columns])
    levels = numbered.to(dtype).masked_fill(numbered >= counts[:, None], math.nan)  # (N, I)
    missing_state = numbered == encoding.missing_states[:, None]  # (N, I)
    never = encoding.missing_states < 0
    averages = torch.tensor([column.averages_missing for column in columns])
    average_level = torch.tensor([column.other is False for column in columns])
    # (N, 1) each
    categorical, refused_missing, unseen_missing, average_level = (
        part[:, None] for part in (encoding.categorical, never & ~averages, never & averages, average_level)
    )
    means, site_means = (  # (N, I) each
        torch.zeros(len(columns), width, dtype=dtype) if part is None else part.to(dtype)
        for part in (encoding.means, encoding.site_means)
    )

    def states(x: Any) -> tuple[Any, Any]:
        value = x.index_select(1, order).unsqueeze(2)  # (B, N, 1)
        missing, hits = torch.isnan(value), torch.eq(value, levels)
        state = missing | categorical
        number = torch.where(state, fill[:, None], value).select(2, 0)
        # Far beyond the rows of the fit a quotient may overflow.
        scaled = torch.clamp((number - shift) / scale, -largest, largest)
        vectors = torch.where(state, 0.0, mapped(scaled)) @ widening
        vectors = vectors + (hits | (missing & missing_state)).to(dtype) - means
        unknown = torch.eq(hits.to(dtype) @ ones, 0.0) & categorical & ~missing
        unseen = unknown | (missing & unseen_missing)
        infinite = ~(torch.isfinite(value) | missing)
        known = torch.eq(value, AVERAGE) & average_level
        refused = infinite | (unknown & ~known) | (missing & refused_missing)
        vectors = torch.where(unseen, site_means, vectors)
        return torch.where(refused, nan, vectors), unseen

    return states


def _rescaled(target: Values, dtype: torch.dtype) -> Function:
    """Outputs (B, O) -> y, (B,) where y was."""
    mean, scale = (torch.from_numpy(part).to(dtype) for part in (target.mean, target.scale))
    return lambda x: _shaped(x * scale + mean, target)


def _probabilities(target: Labels) -> Function:
    """Outputs (B, K) -> probabilities."""
    return lambda x: torch.softmax(x / target.temperature, dim=1)


def _unwarped(target: Modelled, warp: Warp, dtype: torch.dtype, smeared: bool = True) -> Function:
    """Outputs (B, O) -> predictions of y, (B,) where y was: :meth:`restt.prior.Warp.predict`.

    Not ``smeared``, it is :meth:`~restt.prior.Warp.decode`, which makes quantiles of y out of quantiles of outputs.
    """

    def constants(*parts: np.ndarray) -> list[Tensor]:
        return [torch.from_numpy(np.ascontiguousarray(part)).to(dtype) for part in parts]

    varies = np.isnan(target.constant)
    factor, offset = (np.ldexp(values, target.exponents) for values in (warp.width, warp.shift))
    factor, offset = constants(np.where(varies, factor, 0.0), np.where(varies, offset, target.constant))
    std, mean, above, below = constants(warp.std, warp.mean, warp.power, 2 - warp.power)
    low, high = constants(warp.transformed(warp.low), warp.transformed(warp.high))
    low_slope, high_slope = constants(warp.slope(warp.low), warp.slope(warp.high))
    spread = warp.residuals if smeared and (warp.power != 1).any() else np.zeros_like(warp.residuals[:1])
    (residuals,) = constants(spread[:, None])  # (Q, 1, O)

    def unwarped(x: Any) -> Any:
        value = (x.unsqueeze(0) + residuals) * std + mean  # (Q, B, O)
        inside = torch.minimum(torch.maximum(value, low), high)
        negative = inside < 0.0
        power = torch.where(negative, below, above)
        size = torch.pow(torch.abs(inside) * power + 1.0, 1.0 / power)
        z = torch.where(negative, 1.0 - size, size - 1.0)
        beyond = value - inside
        z = z + beyond / torch.where(beyond < 0.0, low_slope, high_slope)
        return _shaped((z * factor + offset).mean(dim=0), target)

    return unwarped


def _shaped(y: Any, target: Values | Modelled) -> Any:  # (B, O) -> (B,) where flat
    return y.select(1, 0) if target.flat else y


def _check_names(names: Sequence[str], outputs: set[str]) -> None:
    for name, times in Counter(names).items():
        if not name or name in outputs or times > 1:
            why = "is the name of an output" if name in outputs else "names no single column"
            raise ValueError(f"each column must have a name of its own in a graph, and {name!r} {why}: rename it")


def _table(graph: OnnxGraph, encoding: Encoding, names: Sequence[str]) -> Node:  # (B, C)
    """Declare each column (B,) as an input under its name and write them as numbers."""
    columns = [_column(graph, name, column) for name, column in zip(names, encoding.columns, strict=True)]
    return graph.write("cat", columns, 1)


def _column(graph: OnnxGraph, name: str, column: Column) -> Node:  # (B, 1)
    """One column as numbers: NaN is missing, a category is the number of its level.

    Numbers come in the graph's dtype, levels of text as strings, levels that are numbers as doubles.
    """
    if column.levels is None:
        return graph.input(name, graph.dtype).unsqueeze(1)
    unseen = float(len(column.levels)) if column.other else AVERAGE
    is_text = {isinstance(level, str) for level in column.levels or column.rare or ("",)}
    if len(is_text) > 1:
        raise ValueError(
            f"{column.label} has levels of text beside numbers, {shown(list(column.levels))}, and an input of a graph "
            'has one type: make text of all of them before the fit, or export with inputs="numbers"'
        )
    if is_text == {True}:
        known = {*column.levels, *(column.rare or ())}
        missing = [text for text in MISSING_TEXTS if text not in known]
        codes = graph.node(
            "LabelEncoder",
            graph.input(name, None),
            domain=ENCODERS[0],
            keys_strings=[*map(str, column.levels), *missing],
            values_floats=[*map(float, range(len(column.levels))), *[math.nan] * len(missing)],
            default_float=unseen,
        )
        return codes.to(graph.dtype).unsqueeze(1)
    # Compared as doubles, whatever the graph's dtype: two levels may be one in float32. NaN is equal to nothing.
    levels = torch.tensor(column.levels or (math.nan,), dtype=torch.float64)
    value = graph.input(name, torch.float64).unsqueeze(1)
    place = value.eq(levels).to(graph.dtype) @ torch.arange(1, len(levels) + 1, dtype=graph.dtype)[:, None]
    return value.isnan().where(math.nan, place.eq(0.0).where(unseen, place - 1.0))


def _label(probabilities: Node, classes: list[str]) -> Node:  # (B, K) -> (B,)
    """The text of the most probable class; none where the row was refused."""
    graph = probabilities.graph
    # Not ArgMax, which onnxruntime gives a wrong shape for an empty batch.
    order = graph.node("TopK", probabilities, torch.tensor([1]), outputs=2)
    return probabilities.select(1, 0).isnan().where([""], graph.node("Gather", classes, order.select(1, 0)))


def _notes(
    encoding: Encoding,
    target: Target | Modelled,
    names: Sequence[str],
    named: bool,
    by_columns: bool,
    coverage: float | None,
) -> dict[str, str]:
    """The metadata."""
    classes = target.classes.tolist() if isinstance(target, Labels) else None
    scale: dict[str, Any] = {"scale": "identity", "outputs": target.outputs}
    if isinstance(target, Modelled) and isinstance(target.model, Warp):
        scale = {"scale": "power", "power": target.model.power.tolist(), "outputs": target.outputs}
    notes = {
        "columns": [_described(name, column) for name, column in zip(names, encoding.columns, strict=True)],
        "feature_names": list(names) if named else None,
        "classes": classes,
        "target": scale if classes is None else None,
        "coverage": None if coverage is None else float(coverage),
    }
    plain = {"restt_version": __version__, "inputs": "columns" if by_columns else "numbers"}
    return plain | {key: json.dumps(note) for key, note in notes.items()}


def _described(name: str, column: Column) -> dict[str, Any]:
    """A column in the metadata: its kind, its levels, and what becomes of values that are none of them."""
    missing = "learned" if column.missing else "average" if column.averages_missing else "refused"
    if column.levels is None:
        return {"name": name, "kind": "number", "missing": missing}
    unseen = {None: "refused", True: "other", False: "average"}[column.other]
    return {"name": name, "kind": "category", "levels": list(column.levels), "missing": missing, "unseen": unseen}
