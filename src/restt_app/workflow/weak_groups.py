"""Where a model does worse than on average: fifths of a column of numbers, levels of a category, missing values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

PARTS = 5
LEAST_ROWS = 10  # of a group: fewer say nothing
ERROR_RATE = 0.05  # chance that any group is listed where none is worse, shared by all groups (Bonferroni)
LISTED = 8


def weak_groups(x: Any, losses: np.ndarray, residuals: np.ndarray | None = None) -> list[dict[str, Any]]:
    """Groups of held-out rows whose mean loss is above that of all others by more than chance, the worst first.

    Parameters
    ----------
    x : data frame (B, C)
    losses : (B,)
    residuals : (B,), optional
        Observed less predicted; their mean in a group is its ``bias``.

    Returns
    -------
    list of dict
        ``column``, ``values`` (what the group has there, in words), ``rows``, ``loss`` and ``others``, mean losses.

    Examples
    --------
    >>> x = pd.DataFrame({"kind": pd.Categorical(["a"] * 30 + ["b"] * 30)})
    >>> losses = np.where(x.kind == "b", 4.0, 1.0) + np.tile([0.1, -0.1], 30)
    >>> [(one["column"], one["values"], round(one["loss"], 3)) for one in weak_groups(x, losses)]
    [('kind', 'b', 4.0)]
    """
    tested = []
    for name in x.columns:
        for words, there in _groups(x[name]):
            if LEAST_ROWS <= there.sum() <= len(losses) - LEAST_ROWS:
                inside, outside = losses[there], losses[~there]
                gap = inside.mean() - outside.mean()
                error = np.sqrt(inside.var(ddof=1) / len(inside) + outside.var(ddof=1) / len(outside))
                found = {"column": str(name), "values": words, "rows": int(there.sum())}
                found |= {"loss": float(inside.mean()), "others": float(outside.mean())}
                if residuals is not None:
                    found["bias"] = float(residuals[there].mean())
                tested.append((gap / error if error > 0 else 0.0, found))
    least = norm.isf(ERROR_RATE / max(1, len(tested)))
    ranked = sorted(tested, key=lambda pair: -pair[0])
    return [found for distance, found in ranked[:LISTED] if distance > least]


def _groups(series: Any) -> list[tuple[str, np.ndarray]]:
    missing = np.asarray(series.isna())
    found = [("missing", missing)]
    if series.dtype == "category":
        codes = np.asarray(series.cat.codes)
        found += [(str(level), codes == place) for place, level in enumerate(series.cat.categories)]
        return found
    numbers = np.asarray(series, dtype=np.float64)
    if missing.all():
        return found
    cuts = np.unique(np.quantile(numbers[~missing], np.linspace(0, 1, PARTS + 1)[1:-1]))
    places = np.searchsorted(cuts, numbers, side="left")
    for place in range(len(cuts) + 1):
        there = (places == place) & ~missing
        if there.any():
            low, high = numbers[there].min(), numbers[there].max()
            found.append((f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}", there))
    return found


def as_categories(frame: Any) -> Any:
    """The frame with its columns of text as categories, which chunks or files of their own had apart."""
    texts = [name for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name].dtype)]
    return frame.astype(dict.fromkeys(texts, "category"))
