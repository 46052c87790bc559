"""Explanations as the objects of shap and shapiq, for their plots."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from restt._common.errors import check_int

if TYPE_CHECKING:
    from restt.explain.results import LocalExplanation


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"to_{name}() needs the package {name}: pip install {name}") from None


def as_shap(found: LocalExplanation) -> Any:
    """A ``shap.Explanation``: values (B, N), or (B, N, O) of several outputs."""
    shap, one = _imported("shap"), len(found.outputs) == 1
    values, base = found.values, np.tile(found.base, (len(found), 1))
    return shap.Explanation(
        values[..., 0] if one else values,
        base_values=base[:, 0] if one else base,
        data=found.data,
        feature_names=list(found.names),
        output_names=found.outputs[0] if one else list(found.outputs),
    )


def as_shapiq(found: LocalExplanation, row: int, output: int) -> Any:
    """The ``shapiq.InteractionValues`` of one row and output: Shapley values, and the base as that of no column."""
    shapiq = _imported("shapiq")
    one = found[row]
    place = check_int("output", output, minimum=0, maximum=len(found.outputs) - 1)
    base, count = float(found.base[place]), len(found.names)
    scores = {(): base} | {(n,): float(one.values[0, n, place]) for n in range(count)}
    return shapiq.InteractionValues(
        scores,
        index="SV",
        min_order=0,
        max_order=1,
        n_players=count,
        estimated=False,
        baseline_value=base,
    )
