"""A fitted estimator as a graph: the encoding's formula, the module, and what turns outputs into predictions."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from restt._common.errors import check_choice, shown
from restt._common.version import __version__
from restt.estimators.columns import AVERAGE, Column
from restt.estimators.encoding import Encoding
from restt.estimators.saved import OldScale
from restt.estimators.targets import Labels, Modelled, Target, Values
from restt.interop.exporting import ModelGraph, checked_format, write_graph
from restt.interop.graph_parts import MapPart, map_part
from restt.interop.onnx_tables import MISSING_TEXTS, ColumnInput, Interface
from restt.interop.operations import GraphPart, Ops, Value
from restt.module import ResTT
from restt.prior import Warp


def export_graph(
    module: ResTT,
    encoding: Encoding,
    target: Target | Modelled,
    path: str | PathLike[str],
    inputs: str = "auto",
    names: Sequence[str] | None = None,
) -> Path:
    """Write table -> predictions of a regressor, or probabilities of a classifier; see :meth:`BaseResTT.export`.

    ``names`` are the columns', where the table of the fit had some.
    """
    kind = checked_format(Path(path))
    check_choice("inputs", inputs, ("auto", "columns", "numbers"))
    if inputs == "columns" and kind != "onnx":
        raise ValueError(f'inputs="columns" is for .onnx files, {Path(path).suffix} takes tensors: inputs="numbers"')
    by_columns = inputs == "columns" or (inputs == "auto" and kind == "onnx" and encoding.holds_categories)
    head: GraphPart
    if isinstance(target, Labels):
        head = Probabilities(target)
    elif isinstance(target, Values):
        head = Rescaled(target, module.first.dtype)
    elif isinstance(target.model, Warp):
        head = Unwarped(target, target.model, module.first.dtype)
    else:
        head = Undone(target, target.model, module.first.dtype)
    part = EncodingPart(encoding, module)
    graph = ModelGraph(module, part, average=True, head=head, row_shape=part.row_shape)
    return write_graph(graph, Path(path), kind, _interface(encoding, target, names, by_columns))


def _interface(
    encoding: Encoding, target: Target | Modelled, names: Sequence[str] | None, by_columns: bool
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
    }
    return Interface(
        [_column_input(name, column) for name, column in pairs] if by_columns else [],
        [] if classes is None else [str(name) for name in classes],
        {key: note if isinstance(note, str) else json.dumps(note) for key, note in notes.items()},
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
    model = target.model if isinstance(target, Modelled) else None
    if isinstance(model, Warp):
        return {"scale": "power", "power": model.power.tolist(), "outputs": target.outputs}
    return {"scale": "identity" if model is None else model.scale, "outputs": target.outputs}


class EncodingPart(MapPart):
    """:meth:`Encoding.vectors` as operations. A row with a value that the encoding refuses is refused."""

    def __init__(self, encoding: Encoding, module: ResTT) -> None:
        super().__init__()
        dtype, sites, width = module.first.dtype, len(encoding.order), max(encoding.widths)
        self.row_shape, self.sites = (len(encoding.columns),), sites
        self.map = map_part(encoding.feature_map, module)
        selection = torch.zeros(sites, sites, dtype=dtype)
        selection[list(encoding.order), torch.arange(sites)] = 1
        in_order = list(encoding.order) == list(range(sites))
        self.selection = None if in_order else nn.Buffer(selection)
        self.shift, self.scale, self.fill = (
            nn.Buffer(part.to(dtype)) for part in (encoding.shift, encoding.scale, encoding.fill)
        )
        self.widening = nn.Buffer(torch.eye(encoding.feature_map.width, width, dtype=dtype))
        self.categorical = nn.Buffer(encoding.categorical)
        states = torch.arange(width)
        counts = torch.tensor([column.states for column in encoding.sites])
        self.levels = nn.Buffer(states.to(dtype).masked_fill(states >= counts[:, None], math.nan))  # (N, I)
        self.missing_state = nn.Buffer(states == encoding.missing_states[:, None])  # (N, I)
        never = encoding.missing_states < 0
        averaged = torch.tensor([column.averages_missing for column in encoding.sites])
        self.missing_refused, self.missing_averaged = nn.Buffer(never & ~averaged), nn.Buffer(never & averaged)
        self.averaged = nn.Buffer(torch.tensor([column.other is False for column in encoding.sites]))
        self.means = None if encoding.means is None else nn.Buffer(encoding.means.to(dtype))
        left = torch.zeros(sites, width) if encoding.site_means is None else encoding.site_means
        self.site_means = nn.Buffer(left.to(dtype))  # (N, I)

    def build(self, ops: Ops, x: Value) -> tuple[Value, Value]:
        zero, finite, nan = ops.number(0.0), ops.less(ops.absolute(x), ops.number(math.inf)), ops.is_nan(x)
        infinite = ops.any_last(ops.negate(ops.either(finite, nan)), self.row_shape[0], keep=True)
        values, missing = ops.where(finite, x, zero), nan
        if self.selection is not None:
            chosen = ops.constant(self.selection)
            values = ops.matmul(values, chosen)
            missing = ops.less(ops.number(0.5), ops.matmul(ops.as_float(nan), chosen))
        categorical = ops.constant(self.categorical)
        state = ops.either(missing, categorical)
        vectors, refused_by_map = self._mapped(ops, values, state)
        hits, unknown = self._levels(ops, values, missing)
        vectors = ops.add(vectors, ops.as_float(hits))
        if self.means is not None:
            vectors = ops.subtract(vectors, ops.constant(self.means))
        unseen = ops.either(unknown, ops.both(missing, ops.constant(self.missing_averaged)))
        vectors = ops.where(ops.insert_axis(unseen, -1), ops.constant(self.site_means), vectors)
        average = ops.both(ops.constant(self.averaged), ops.equal(values, ops.number(AVERAGE)))
        refused = ops.either(
            ops.both(unknown, ops.negate(average)), ops.both(missing, ops.constant(self.missing_refused))
        )
        refused_by_state = ops.any_last(refused, self.sites, keep=True)
        return vectors, ops.either(ops.either(infinite, refused_by_map), refused_by_state)

    def _mapped(self, ops: Ops, values: Value, state: Value) -> tuple[Value, Value]:
        """The feature map's vectors, widened to (B, N, I), 0 where a state stands instead of a number."""
        filled = ops.where(state, ops.constant(self.fill), values)
        scaled = ops.divide(ops.subtract(filled, ops.constant(self.shift)), ops.constant(self.scale))
        vectors, refused = self.map.build(ops, scaled)
        vectors = ops.where(ops.insert_axis(state, -1), ops.number(0.0), vectors)
        return ops.matmul(vectors, ops.constant(self.widening)), refused

    def _levels(self, ops: Ops, values: Value, missing: Value) -> tuple[Value, Value]:
        """Which one-hot entries are 1, (B, N, I), and where a category is none of the levels, (B, N)."""
        absent = ops.insert_axis(missing, -1)
        here = ops.equal(ops.insert_axis(values, -1), ops.constant(self.levels))
        here = ops.both(here, ops.negate(absent))
        known = ops.either(ops.any_last(here, self.levels.shape[1]), missing)
        unknown = ops.both(ops.constant(self.categorical), ops.negate(known))
        return ops.either(here, ops.both(absent, ops.constant(self.missing_state))), unknown


class Rescaled(GraphPart):
    """Outputs (B, O) in the units of y, (B,) where y was."""

    def __init__(self, target: Values, dtype: torch.dtype) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.from_numpy(target.mean).to(dtype))
        self.scale = nn.Buffer(torch.from_numpy(target.scale).to(dtype))
        self.flat = target.flat

    def build(self, ops: Ops, x: Value) -> Value:
        values = ops.add(ops.multiply(x, ops.constant(self.scale)), ops.constant(self.mean))
        return ops.take(values, -1, 0) if self.flat else values


class Unwarped(GraphPart):
    """Predictions of y, (B, O), or (B,) where y was, from outputs: :meth:`restt.prior.Warp.predict` as operations."""

    def __init__(self, target: Modelled, warp: Warp, dtype: torch.dtype) -> None:
        super().__init__()
        varies = np.isnan(target.constant)
        factor, offset = (np.ldexp(values, target.exponents) for values in (warp.width, warp.shift))
        low, high = (warp.transformed(end) for end in (warp.low, warp.high))
        residuals = np.zeros_like(warp.residuals[:1]) if (warp.power == 1).all() else warp.residuals
        values = {
            "std": warp.std, "mean": warp.mean, "low": low, "high": high, "above": warp.power, "below": 2 - warp.power,
            "low_slope": warp.slope(warp.low), "high_slope": warp.slope(warp.high), "residuals": residuals[:, None],
            "factor": np.where(varies, factor, 0.0), "offset": np.where(varies, offset, target.constant),
        }  # fmt: skip
        for name, value in values.items():
            self.register_buffer(name, torch.from_numpy(np.ascontiguousarray(value)).to(dtype))
        self.flat = target.flat

    def build(self, ops: Ops, x: Value) -> Value:
        def held(name: str) -> Value:
            return ops.constant(self.get_buffer(name))

        one, zero = ops.number(1.0), ops.number(0.0)
        value = ops.add(ops.insert_axis(x, 0), held("residuals"))  # (Q, B, O)
        value = ops.add(ops.multiply(value, held("std")), held("mean"))
        inside = ops.minimum(ops.maximum(value, held("low")), held("high"))
        negative = ops.less(inside, zero)
        power = ops.where(negative, held("below"), held("above"))
        size = ops.power(ops.add(ops.multiply(ops.absolute(inside), power), one), ops.divide(one, power))
        z = ops.where(negative, ops.subtract(one, size), ops.subtract(size, one))
        beyond = ops.subtract(value, inside)
        z = ops.add(z, ops.divide(beyond, ops.where(ops.less(beyond, zero), held("low_slope"), held("high_slope"))))
        found = ops.mean_first(ops.add(ops.multiply(z, held("factor")), held("offset")))
        return ops.take(found, -1, 0) if self.flat else found


class Undone(GraphPart):
    """Predictions of models saved by 0.8: factor · g(outputs · std + mean) + offset, (B, O), or (B,) where y was."""

    def __init__(self, target: Modelled, model: OldScale, dtype: torch.dtype) -> None:
        super().__init__()
        varies = np.isnan(target.constant)
        longer = model.scale == "asinh"
        factor = np.ldexp(model.width if longer else np.full_like(model.width, model.smear), target.exponents)
        offset = np.ldexp(model.shift if longer else model.lift, target.exponents)
        values = (model.std, model.mean, np.where(varies, factor, 0.0), np.where(varies, offset, target.constant))
        self.std, self.mean, self.factor, self.offset = (nn.Buffer(torch.from_numpy(v).to(dtype)) for v in values)
        self.base = nn.Buffer(torch.full((target.outputs,), math.e, dtype=dtype))
        self.scale, self.flat = model.scale, target.flat

    def build(self, ops: Ops, x: Value) -> Value:
        values = ops.add(ops.multiply(x, ops.constant(self.std)), ops.constant(self.mean))
        if self.scale == "sqrt":
            positive = ops.multiply(ops.add(values, ops.absolute(values)), ops.number(0.5))
            values = ops.multiply(positive, positive)
        elif self.scale != "identity":
            base = ops.constant(self.base)
            up, down = ops.power(base, values), ops.power(base, ops.subtract(ops.number(0.0), values))
            values = up if self.scale == "log" else ops.multiply(ops.subtract(up, down), ops.number(0.5))
        values = ops.add(ops.multiply(values, ops.constant(self.factor)), ops.constant(self.offset))
        return ops.take(values, -1, 0) if self.flat else values


class Probabilities(GraphPart):
    """Outputs (B, K) as probabilities."""

    def __init__(self, target: Labels) -> None:
        super().__init__()
        self.temperature = target.temperature

    def build(self, ops: Ops, x: Value) -> Value:
        return ops.softmax_last(ops.divide(x, ops.number(self.temperature)))
