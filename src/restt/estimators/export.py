"""Export of a fitted estimator: which graph, and its inputs, outputs and metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from restt._common.errors import check_choice, check_positive, shown
from restt._common.version import __version__
from restt.diagonal import DiagonalTT
from restt.estimators.columns import AVERAGE, Column
from restt.estimators.encoding import Encoding
from restt.estimators.modelled import Modelled
from restt.estimators.prediction_graph import EncodingPart, IntervalGraph, Probabilities, Rescaled, Unwarped
from restt.estimators.targets import Labels, Target
from restt.interop.exporting import ModelGraph, checked_format, write_graph
from restt.interop.onnx_graph import MISSING_TEXTS, ColumnInput, Interface
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
