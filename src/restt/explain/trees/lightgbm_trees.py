"""LightGBM: estimators and boosters, from the booster's own dump."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from restt.explain.trees.boxes import Tree
from restt.explain.trees.columns import columns_of, frame_names, numbers_of
from restt.explain.trees.model import Ensemble

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
    classes = getattr(model, "classes_", None)
    names = None if classes is None else tuple(map(str, classes.tolist()))[-count if count == 1 else 0 :]
    objective = str(dump.get("objective", "")).split()
    identity = bool(objective) and objective[0] in _IDENTITY and "sqrt" not in objective
    outputs = names or (("y",) if count == 1 else tuple(f"output {place}" for place in range(count)))
    share = count / max(1, len(dump["tree_info"])) if dump.get("average_output") else 1.0
    missing: dict[int, str] = {}
    trees = []
    for number, tree in enumerate(dump["tree_info"]):
        trees.append(_tree(tree["tree_structure"], number % count, count, share, missing))
    categories = tuple(sorted({int(tree.column[node]) for tree in trees for node in tree.codes}))
    given = dump["feature_names"]
    columns, named = frame_names(given, len(given))
    named = named and not all(name == f"Column_{place}" for place, name in enumerate(given))
    levels = dump.get("pandas_categorical") or []
    return Ensemble(
        "LightGBM",
        columns,
        outputs,
        "y" if identity else "raw score",
        trees,
        np.zeros(count),
        partial(_numbers, names=columns, named=named, levels=levels, categories=categories, missing=missing),
        categories,
        _level_names(dump, levels),
    )


def _tree(root: dict[str, Any], output: int, outputs: int, share: float, missing: dict[int, str]) -> Tree:
    nodes = [root]
    for node in nodes:  # grows while it is read
        nodes += [node[side] for side in ("left_child", "right_child") if side in node]
        if "leaf_coeff" in node:
            raise ValueError("model must have constant leaves, got LightGBM's linear_tree=True")
    size, place = len(nodes), {id(node): number for number, node in enumerate(nodes)}
    column, left, right = np.full(size, -1), np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    threshold, missing_left, value = np.zeros(size), np.zeros(size, dtype=bool), np.zeros((size, outputs))
    codes = {}
    for number, node in enumerate(nodes):
        if "split_feature" not in node:
            value[number, output] = share * node["leaf_value"]
            continue
        column[number] = node["split_feature"]
        left[number], right[number] = place[id(node["left_child"])], place[id(node["right_child"])]
        if node["decision_type"] == "==":  # missing and unseen codes go right
            codes[number] = np.array([int(code) for code in str(node["threshold"]).split("||")])
            continue
        # The dump writes infinity as 1e300.
        threshold[number] = np.inf if node["threshold"] >= 1e300 else node["threshold"]
        missing_left[number] = node["default_left"]
        kind = missing.setdefault(node["split_feature"], node["missing_type"])
        if kind != node["missing_type"]:
            raise ValueError(
                f"model must treat missing values of a column alike in all trees, got {kind} and "
                f"{node['missing_type']} of column {node['split_feature']}"
            )
    return Tree(column, left, right, threshold, missing_left, value, codes)


def _numbers(
    X: Any,
    names: tuple[str, ...],
    named: bool,
    levels: list[list[Any]],
    categories: tuple[int, ...],
    missing: dict[int, str],
) -> np.ndarray:  # (B, C)
    held = columns_of(X, names, named)
    typed = [place for place, column in enumerate(held) if str(getattr(column, "dtype", "")) == "category"]
    if typed and len(typed) != len(levels):
        raise ValueError(f"X must have {len(levels)} columns of categories as in the fit, got {len(typed)}")
    found = numbers_of(X, names, named, levels=dict(zip(typed, levels, strict=True)) if typed else None)
    found[np.abs(found) <= _ZERO] = 0.0
    for place in categories:
        found[:, place] = np.trunc(found[:, place])
    for place, kind in missing.items():
        column = found[:, place]
        if kind == "Zero":
            column[column == 0.0] = np.nan
        elif kind == "None":
            column[np.isnan(column)] = 0.0
    return found


def _level_names(dump: dict[str, Any], levels: list[list[Any]]) -> dict[int, list[Any]] | None:
    """The levels behind the codes, where it is plain which columns they belong to."""
    infos = dump.get("feature_infos", {})
    places = [place for place, name in enumerate(dump["feature_names"]) if infos.get(name, {}).get("values")]
    return dict(zip(places, levels, strict=True)) if levels and len(places) == len(levels) else None
