"""LightGBM: estimators and boosters, from the booster's own dump."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from restt.explain.trees.reader import Ensemble, Split, columns_of, nested_tree, numbers_of, output_names

KINDS = ("LGBMModel", "Booster")
# Numbers that LightGBM takes for 0 (kZeroThreshold, a float32).
_ZERO = float(np.float32(1e-35))
# Objectives whose raw score is y.
_IDENTITY = ("regression", "regression_l1", "huber", "fair", "quantile", "mape")


def read(model: Any, kind: str) -> Ensemble:
    """The trees of an estimator or a booster, up to the best iteration where it stopped early."""
    booster = model if kind == "Booster" else model.booster_
    dump = booster.dump_model()
    count = int(dump["num_tree_per_iteration"])
    objective = str(dump.get("objective", "")).split()
    identity = bool(objective) and objective[0] in _IDENTITY and "sqrt" not in objective
    share = count / max(1, len(dump["tree_info"])) if dump.get("average_output") else 1.0
    missing: dict[int, str] = {}
    trees = [
        nested_tree(tree["tree_structure"], partial(_node, leaf=share * np.eye(count)[number % count], missing=missing))
        for number, tree in enumerate(dump["tree_info"])
    ]
    names = tuple(dump["feature_names"])
    named = any(name != f"Column_{place}" for place, name in enumerate(names))
    levels = dump.get("pandas_categorical") or []
    # Levels are listed without their columns: those whose dump lists values.
    infos = dump.get("feature_infos", {})
    places = [place for place, name in enumerate(names) if infos.get(name, {}).get("values")]
    codes = sorted({int(tree.column[node]) for tree in trees for node in tree.codes})
    return Ensemble(
        "LightGBM",
        names,
        output_names(getattr(model, "classes_", None), count),
        "y" if identity else "raw score",
        trees,
        np.zeros(count),
        partial(_numbers, names=names, named=named, levels=levels, codes=codes, missing=missing),
        dict(zip(places, levels, strict=True)) if len(places) == len(levels) else None,
    )


def _node(node: dict[str, Any], leaf: np.ndarray, missing: dict[int, str]) -> Split | np.ndarray:
    if "leaf_coeff" in node:
        raise ValueError("model must have constant leaves, got LightGBM's linear_tree=True")
    if "split_feature" not in node:
        return node["leaf_value"] * leaf
    column, children = node["split_feature"], (node["left_child"], node["right_child"])
    if node["decision_type"] == "==":  # missing and unseen codes go right
        return Split(column, *children, codes=[int(code) for code in str(node["threshold"]).split("||")])
    kind = missing.setdefault(column, node["missing_type"])
    if kind != node["missing_type"]:
        raise ValueError(
            f"model must treat missing values of a column alike in all trees, got {kind} and {node['missing_type']} "
            f"of column {column}"
        )
    # The dump writes infinity as 1e300.
    return Split(column, *children, np.inf if node["threshold"] >= 1e300 else node["threshold"], node["default_left"])


def _numbers(
    X: Any,
    names: tuple[str, ...],
    named: bool,
    levels: list[list[Any]],
    codes: list[int],
    missing: dict[int, str],
) -> np.ndarray:  # (B, C)
    columns = columns_of(X, names, named)
    typed = [place for place, column in enumerate(columns) if str(getattr(column, "dtype", "")) == "category"]
    if typed and len(typed) != len(levels):
        raise ValueError(f"X must have {len(levels)} columns of categories as in the fit, got {len(typed)}")
    numbers = numbers_of(X, names, named, levels=dict(zip(typed, levels, strict=True)) if typed else None)
    numbers[np.abs(numbers) <= _ZERO] = 0.0
    numbers[:, codes] = np.trunc(numbers[:, codes])
    for place, kind in missing.items():
        column = numbers[:, place]
        if kind == "Zero":
            column[column == 0.0] = np.nan
        elif kind == "None":
            column[np.isnan(column)] = 0.0
    return numbers
