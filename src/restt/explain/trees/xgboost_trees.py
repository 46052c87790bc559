"""XGBoost: estimators and boosters, from the booster's JSON."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from restt.explain.trees.boxes import Tree
from restt.explain.trees.columns import columns_of, frame_names, numbers_of
from restt.explain.trees.model import Ensemble

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
    kept = len(parts["trees"])
    best = None if kind == "Booster" else booster.attr("best_iteration")
    if best is not None and getattr(model, "early_stopping_rounds", None) is not None:
        kept = int(parts["iteration_indptr"][int(best) + 1])
    drop = boosted.get("weight_drop") or [1.0] * kept
    trees = [
        _tree(tree, int(parts["tree_info"][number]), count, drop[number])
        for number, tree in enumerate(parts["trees"][:kept])
    ]
    classes = getattr(model, "classes_", None)
    outputs = _outputs(None if classes is None else tuple(map(str, np.asarray(classes).tolist())), count)
    names, named = frame_names(learner.get("feature_names") or None, int(sizes["num_feature"]))
    levels = _levels(parts.get("cats"))
    identity = link == "identity" and objective.startswith("reg:")
    missing = np.nan if kind == "Booster" else float(model.missing)
    categories = tuple(sorted({int(tree.column[node]) for tree in trees for node in tree.codes}))
    return Ensemble(
        "XGBoost",
        names,
        outputs,
        "y" if identity else "raw score",
        trees,
        np.broadcast_to(_margin(sizes["base_score"], link), count),
        partial(_numbers, names=names, named=named, levels=levels, missing=missing),
        categories,
        levels,
    )


def _margin(base_score: str, link: str) -> np.ndarray:  # (1,) or (D,)
    score = np.array([float(part) for part in base_score.strip("[]").split(",")])
    if link == "logit":
        return np.log(score / (1 - score))
    return np.log(score) if link == "log" else score


def _outputs(classes: tuple[str, ...] | None, count: int) -> tuple[str, ...]:
    if classes is not None and len(classes) == max(2, count):
        return classes[1:] if count == 1 else classes
    return ("y",) if count == 1 else tuple(f"y{place}" for place in range(count))


def _tree(tree: dict[str, Any], output: int, outputs: int, weight: float) -> Tree:
    if int(tree["tree_param"].get("size_leaf_vector", 1)) > 1:
        raise ValueError("model must have one number in a leaf, got XGBoost's multi_strategy='multi_output_tree'")
    left = np.array(tree["left_children"])
    leaf = left < 0
    conditions = np.array(tree["split_conditions"], dtype=np.float32)
    value = np.zeros((len(left), outputs))
    value[:, output] = weight * conditions.astype(np.float64)
    codes = {
        node: np.array(tree["categories"][start : start + size])
        for node, start, size in zip(
            tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True
        )
    }
    return Tree(
        np.where(leaf, -1, tree["split_indices"]),
        left,
        np.array(tree["right_children"]),
        # x < t is x ≤ the float32 before t.
        np.nextafter(conditions, np.float32(-np.inf)).astype(np.float64),
        np.array(tree["default_left"]).astype(bool),
        value,
        codes,
        listed_left=False,
    )


def _numbers(
    X: Any, names: tuple[str, ...], named: bool, levels: dict[int, list[Any]] | None, missing: float
) -> np.ndarray:  # (B, C)
    if levels is None and hasattr(X, "columns"):  # a model that kept no levels reads a frame's own codes
        held = columns_of(X, names, named)
        typed = {place: column for place, column in enumerate(held) if str(column.dtype) == "category"}
        levels = {place: list(column.cat.categories) for place, column in typed.items()}
    found = numbers_of(X, names, named, single=True, levels=levels)
    return np.where(found == np.float32(missing), np.nan, found)


def _levels(kept: dict[str, Any] | None) -> dict[int, list[Any]] | None:
    """The levels that a model keeps of columns of categories: text as bytes and offsets, or numbers."""
    found: dict[int, list[Any]] = {}
    for place, part in enumerate((kept or {}).get("enc", [])):
        values, offsets = part.get("values", []), part.get("offsets")
        if not values:
            continue
        if offsets:
            found[place] = [bytes(values[start:end]).decode() for start, end in pairwise(offsets)]
        else:
            found[place] = list(values)
    return found or None
