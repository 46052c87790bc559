"""XGBoost: estimators and boosters, from the booster's JSON."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from restt.explain.trees.reader import Ensemble, Tree, column_names, columns_of, numbers_of, output_names

KINDS = ("XGBModel", "Booster")
# The link from base_score to the margin, by the beginning of an objective's name.
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


def read(model: Any, kind: str) -> Ensemble:
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
    outputs = np.eye(count)[np.array(parts["tree_info"], dtype=int)]  # (trees, D)
    trees = [_tree(tree, drop[number] * outputs[number]) for number, tree in enumerate(parts["trees"][:used])]
    names = column_names(learner.get("feature_names") or None, int(sizes["num_feature"]))
    levels = _levels(parts.get("cats"))
    score = np.array([float(part) for part in sizes["base_score"].strip("[]").split(",")])
    margin = {"logit": lambda: np.log(score / (1 - score)), "log": lambda: np.log(score), "identity": lambda: score}
    missing = np.nan if kind == "Booster" else float(model.missing)
    return Ensemble(
        "XGBoost",
        names,
        output_names(getattr(model, "classes_", None), count),
        "y" if link == "identity" and objective.startswith("reg:") else "raw score",
        trees,
        np.broadcast_to(margin[link](), count),
        partial(_numbers, names=names, named=bool(learner.get("feature_names")), levels=levels, missing=missing),
        levels,
    )


def _tree(tree: dict[str, Any], weight: np.ndarray) -> Tree:
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


def _numbers(
    X: Any, names: tuple[str, ...], named: bool, levels: dict[int, list[Any]] | None, missing: float
) -> np.ndarray:  # (B, C)
    if levels is None and hasattr(X, "columns"):  # a model that kept no levels reads a frame's own codes
        columns = enumerate(columns_of(X, names, named))
        levels = {place: list(c.cat.categories) for place, c in columns if str(c.dtype) == "category"}
    numbers = numbers_of(X, names, named, single=True, levels=levels)
    return np.where(numbers == np.float32(missing), np.nan, numbers)


def _levels(stored: dict[str, Any] | None) -> dict[int, list[Any]] | None:
    """The levels that a model keeps of columns of categories: text as bytes and offsets, or numbers."""
    levels: dict[int, list[Any]] = {}
    for place, part in enumerate((stored or {}).get("enc", [])):
        values, offsets = part.get("values", []), part.get("offsets")
        if values:
            texts = [bytes(values[start:end]).decode() for start, end in pairwise(offsets or [])]
            levels[place] = texts if offsets else list(values)
    return levels or None
