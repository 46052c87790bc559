"""LightGBM, from the booster's own dump, and XGBoost, from the booster's JSON: estimators and boosters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from restt.explain.trees.reader import (
    Ensemble,
    Split,
    Tree,
    column_names,
    columns_of,
    nested_tree,
    numbers_of,
    output_names,
)

# Numbers that LightGBM takes for 0 (kZeroThreshold, a float32), and its objectives whose raw score is y.
_ZERO = float(np.float32(1e-35))
_IDENTITY = ("regression", "regression_l1", "huber", "fair", "quantile", "mape")
# XGBoost's links from base_score to the margin, by the beginning of an objective's name.
_LINKS = {
    "reg:logistic": "logit",
    "binary:": "logit",
    "count:poisson": "log",
    "reg:gamma": "log",
    "reg:tweedie": "log",
    "reg:": "identity",
    "multi:": "identity",
    "rank:": "identity",
}


def read_lightgbm(model: Any, kind: str) -> Ensemble:
    """The trees of an estimator or a booster, up to the best iteration where it stopped early."""
    dump = (model if kind == "Booster" else model.booster_).dump_model()
    count, infos = int(dump["num_tree_per_iteration"]), dump["tree_info"]
    objective = str(dump.get("objective", "")).split()
    identity = bool(objective) and objective[0] in _IDENTITY and "sqrt" not in objective
    units = np.eye(count) * (count / max(1, len(infos)) if dump.get("average_output") else 1.0)
    missing: dict[int, str] = {}
    trees = [
        nested_tree(info["tree_structure"], partial(_lightgbm_node, unit=units[number % count], missing=missing))
        for number, info in enumerate(infos)
    ]
    names = tuple(dump["feature_names"])
    named = any(name != f"Column_{place}" for place, name in enumerate(names))
    levels = dump.get("pandas_categorical") or []
    # Levels are listed without their columns: those whose dump lists values.
    ranges = dump.get("feature_infos", {})
    places = [place for place, name in enumerate(names) if ranges.get(name, {}).get("values")]
    codes = sorted({int(tree.column[node]) for tree in trees for node in tree.codes})

    def numbers(X: Any) -> np.ndarray:  # (B, C)
        columns = columns_of(X, names, named)
        typed = [place for place, column in enumerate(columns) if str(getattr(column, "dtype", "")) == "category"]
        if typed and len(typed) != len(levels):
            raise ValueError(f"X must have {len(levels)} columns of categories as in the fit, got {len(typed)}")
        found = numbers_of(X, names, named, levels=dict(zip(typed, levels, strict=True)) if typed else None)
        found[np.abs(found) <= _ZERO] = 0.0
        found[:, codes] = np.trunc(found[:, codes])
        for place, treatment in missing.items():
            column = found[:, place]
            if treatment == "Zero":
                column[column == 0.0] = np.nan
            elif treatment == "None":
                column[np.isnan(column)] = 0.0
        return found

    return Ensemble(
        "LightGBM",
        names,
        output_names(model, count),
        "y" if identity else "raw score",
        trees,
        np.zeros(count),
        numbers,
        dict(zip(places, levels, strict=True)) if len(places) == len(levels) else {},
    )


def _lightgbm_node(node: dict[str, Any], unit: np.ndarray, missing: dict[int, str]) -> Split | np.ndarray:
    if "leaf_coeff" in node:
        raise ValueError("model must have constant leaves, got LightGBM's linear_tree=True")
    if "split_feature" not in node:
        return node["leaf_value"] * unit
    column, children = node["split_feature"], (node["left_child"], node["right_child"])
    if node["decision_type"] == "==":  # missing and unseen codes go right
        return Split(column, *children, codes=[int(code) for code in str(node["threshold"]).split("||")])
    treatment = missing.setdefault(column, node["missing_type"])
    if treatment != node["missing_type"]:
        raise ValueError(
            f"model must treat missing values of a column alike in all trees, got {treatment} and "
            f"{node['missing_type']} of column {column}"
        )
    # The dump writes infinity as 1e300.
    return Split(column, *children, np.inf if node["threshold"] >= 1e300 else node["threshold"], node["default_left"])


def read_xgboost(model: Any, kind: str) -> Ensemble:
    """The trees of an estimator or a booster, up to the best iteration where an estimator stopped early."""
    booster = model if kind == "Booster" else model.get_booster()
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    boosted, name = learner["gradient_booster"], learner["gradient_booster"]["name"]
    if name not in ("gbtree", "dart"):
        raise ValueError(f"model must be of trees, got XGBoost's booster {name!r}")
    parts = boosted["gbtree"]["model"] if name == "dart" else boosted["model"]
    objective = learner["objective"]["name"]
    link = next((link for start, link in _LINKS.items() if objective.startswith(start)), None)
    if link is None:
        raise ValueError(f"model must have an objective of {sorted(_LINKS)}, got {objective!r}")
    sizes = learner["learner_model_param"]
    count = max(1, int(sizes["num_class"]), int(sizes.get("num_target", 1)))
    used = len(parts["trees"])
    best = None if kind == "Booster" else booster.attr("best_iteration")
    if best is not None and getattr(model, "early_stopping_rounds", None) is not None:
        used = int(parts["iteration_indptr"][int(best) + 1])
    drop = boosted.get("weight_drop") or [1.0] * used
    units = np.eye(count)[np.array(parts["tree_info"], dtype=int)]  # (trees, D)
    given = learner.get("feature_names") or None
    names, levels = column_names(given, int(sizes["num_feature"])), _xgboost_levels(parts.get("cats"))
    score = np.array([float(part) for part in sizes["base_score"].strip("[]").split(",")])
    margin = {"logit": lambda: np.log(score / (1 - score)), "log": lambda: np.log(score), "identity": lambda: score}
    missing = np.float32(np.nan if kind == "Booster" else model.missing)

    def numbers(X: Any) -> np.ndarray:  # (B, C)
        known: Mapping[int, list[Any]] = levels
        if not known and hasattr(X, "columns"):  # a model that kept no levels reads a frame's own codes
            columns = enumerate(columns_of(X, names, given is not None))
            known = {place: list(column.cat.categories) for place, column in columns if str(column.dtype) == "category"}
        found = numbers_of(X, names, given is not None, single=True, levels=known)
        return np.where(found == missing, np.nan, found)

    return Ensemble(
        "XGBoost",
        names,
        output_names(model, count),
        "y" if link == "identity" and objective.startswith("reg:") else "raw score",
        [_xgboost_tree(tree, drop[number] * units[number]) for number, tree in enumerate(parts["trees"][:used])],
        np.broadcast_to(margin[link](), count),
        numbers,
        levels,
    )


def _xgboost_tree(tree: dict[str, Any], weight: np.ndarray) -> Tree:
    if int(tree["tree_param"].get("size_leaf_vector", 1)) > 1:
        raise ValueError("model must have one number in a leaf, got XGBoost's multi_strategy='multi_output_tree'")
    left = np.array(tree["left_children"])
    conditions = np.array(tree["split_conditions"], dtype=np.float32)
    segments = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
    return Tree(
        np.where(left < 0, -1, tree["split_indices"]),
        left,
        np.array(tree["right_children"]),
        np.nextafter(conditions, np.float32(-np.inf)).astype(np.float64),  # x < t is x ≤ the float32 before t
        np.array(tree["default_left"]).astype(bool),
        conditions.astype(np.float64)[:, None] * weight,
        {node: np.array(tree["categories"][start : start + size]) for node, start, size in segments},
        listed_left=False,
    )


def _xgboost_levels(stored: dict[str, Any] | None) -> dict[int, list[Any]]:
    """The levels that a model keeps of columns of categories: text as bytes and offsets, or numbers."""
    levels: dict[int, list[Any]] = {}
    for place, part in enumerate((stored or {}).get("enc", [])):
        values, offsets = part.get("values", []), part.get("offsets")
        if values:
            texts = [bytes(values[start:end]).decode() for start, end in pairwise(offsets or [])]
            levels[place] = texts if offsets else list(values)
    return levels
