"""LightGBM, from the booster's dump, XGBoost and CatBoost, from their JSON: estimators and boosters."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
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
# CatBoost's losses whose raw score is y.
_CATBOOST_IDENTITY = (
    *("RMSE", "MAE", "MAPE", "Quantile", "Huber", "LogCosh", "Lq", "MultiRMSE", "MultiQuantile"),
    "RMSEWithUncertainty",
)
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
    drop = parts.get("weight_drop") or boosted.get("weight_drop") or [1.0] * used  # XGBoost ≥ 3.4, or before
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


def read_catboost(model: Any, kind: str) -> Ensemble:
    """The trees of a fitted model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        stored = json.loads(path.read_text())
    for other in ("text_features", "embedding_features"):
        if stored["features_info"].get(other):
            raise ValueError(f"model must read numbers and categories, got CatBoost with {other.replace('_', ' ')}")
    scale, bias = stored["scale_and_bias"]
    bias = np.atleast_1d(np.asarray(bias, dtype=np.float64))
    reader = _CatBoost(model, stored, scale, len(bias))
    roots = stored.get("trees", [])
    if reader.oblivious:
        roots = [_oblivious(tree["splits"] or [], tree["leaf_values"]) for tree in reader.oblivious]
    trees = [nested_tree(root, reader.node, listed_left=False) for root in roots]
    if not reader.oblivious and any(tree.codes for tree in trees):
        raise ValueError(
            "model must have oblivious trees where it reads categories, got another grow_policy of CatBoost"
        )
    loss = str(stored["model_info"].get("params", {}).get("loss_function", {}).get("type", ""))
    scale = "y" if loss in _CATBOOST_IDENTITY else "raw score"
    return Ensemble("CatBoost", reader.names, output_names(model, len(bias)), scale, trees, bias, reader.numbers)


def _oblivious(splits: list[Any], values: list[float], leaf: int = 0, depth: int = 0) -> dict[str, Any]:
    """An oblivious tree, one split per level, as nested nodes: bit i of a leaf's number is split i."""
    if depth == len(splits):
        outputs = len(values) >> depth
        return {"value": values[leaf * outputs : (leaf + 1) * outputs]}
    left, right = (_oblivious(splits, values, leaf | side << depth, depth + 1) for side in (0, 1))
    return {"split": splits[depth], "left": left, "right": right}


class _CatBoost:
    """Nodes of the model's JSON, and tables as its splits compare them.

    Categories are numbered in the order in which splits name their hashes. A level's hash is not public: the model
    itself says which leaf it goes to.
    """

    def __init__(self, model: Any, stored: dict[str, Any], scale: float, outputs: int) -> None:
        info = stored["features_info"]
        floats, hashed = info.get("float_features", []), info.get("categorical_features", [])
        self.model, self.scale, self.outputs = model, scale, outputs
        self.names = tuple(map(str, model.feature_names_))
        self.oblivious: list[dict[str, Any]] = stored.get("oblivious_trees") or []
        self.places = {each["feature_index"]: each["flat_feature_index"] for each in floats}
        self.categories = {each["feature_index"]: each["flat_feature_index"] for each in hashed}
        self.missing_right = {e["flat_feature_index"] for e in floats if e["nan_value_treatment"] == "AsTrue"}
        self.hashes: dict[int, list[int]] = {column: [] for column in self.categories.values()}
        self.codes: dict[int, dict[str, float]] = {column: {} for column in self.hashes}  # of the levels seen so far

    def node(self, node: dict[str, Any]) -> Split | np.ndarray:
        """A node's split, or at a leaf its value."""
        if "split" not in node:
            return self.scale * np.broadcast_to(np.asarray(node["value"], dtype=np.float64), self.outputs)
        split, children = node["split"], (node["left"], node["right"])
        if split["split_type"] == "FloatFeature":
            column = self.places[split["float_feature_index"]]
            return Split(column, *children, float(np.float32(split["border"])), column not in self.missing_right)
        column, code = self._level(split)
        return Split(column, *children, missing_left=True, codes=[code])

    def _level(self, split: dict[str, Any]) -> tuple[int, int]:
        """The column and the number of the category that a one-hot split asks for."""
        if split["split_type"] != "OneHotFeature":
            raise ValueError(
                f"model must split on numbers and one-hot categories, got CatBoost's {split['split_type']}: counters "
                "of categories are no sums over columns' states; a larger one_hot_max_size avoids them"
            )
        column = self.categories[split["cat_feature_index"]]
        if split["value"] not in self.hashes[column]:
            self.hashes[column].append(split["value"])
        return column, self.hashes[column].index(split["value"])

    def numbers(self, X: Any) -> np.ndarray:  # (B, C)
        """A table as the splits compare it."""
        named = any(name != str(place) for place, name in enumerate(self.names))
        columns = columns_of(X, self.names, named)
        numbers = np.zeros((len(columns[0]), len(columns)))
        for place, column in enumerate(columns):
            if place not in self.hashes:
                part = numbers_of(np.asarray(column)[:, None], (self.names[place],), False, single=True)
                numbers[:, place] = part[:, 0]
            elif self.hashes[place]:
                numbers[:, place] = self._coded(place, [_as_text(value) for value in list(column)])
        return numbers

    def _coded(self, place: int, texts: list[str]) -> list[float]:
        known = self.codes[place]
        fresh = sorted(set(texts) - set(known))
        if fresh:
            row: list[Any] = ["" if other in self.hashes else 0.0 for other in range(len(self.names))]
            leaves = self.model.calc_leaf_indexes([[*row[:place], text, *row[place + 1 :]] for text in fresh])
            codes = np.full(len(fresh), np.inf)  # a code that no split names
            for tree, leaf in zip(self.oblivious, np.asarray(leaves).astype(np.int64).T, strict=True):
                for bit, split in enumerate(tree["splits"] or []):
                    if split["split_type"] == "OneHotFeature":
                        column, code = self._level(split)
                        codes[(column == place) & (leaf >> bit & 1 == 1)] = code
            known.update(zip(fresh, codes.tolist(), strict=True))
        return [known[text] for text in texts]


def _as_text(value: Any) -> str:
    """A category as CatBoost reads it."""
    if isinstance(value, (float, np.floating)):
        raise TypeError(f"X must hold text or integers in columns of categories, got {value!r}")
    return str(value)
