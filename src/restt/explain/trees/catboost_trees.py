"""CatBoost: oblivious and other trees, numbers and one-hot categories, from the model's JSON."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from restt.explain.trees.boxes import Tree
from restt.explain.trees.columns import columns_of, frame_names, numbers_of
from restt.explain.trees.model import Ensemble

KINDS = ("CatBoost",)
# Losses whose raw score is y.
_IDENTITY = (
    "RMSE",
    "MAE",
    "MAPE",
    "Quantile",
    "Huber",
    "LogCosh",
    "Lq",
    "MultiRMSE",
    "MultiQuantile",
    "RMSEWithUncertainty",
)


def read(model: Any, kind: str) -> Ensemble:
    """The trees of a fitted model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        stored = json.loads(path.read_text())
    info = stored["features_info"]
    for other in ("text_features", "embedding_features"):
        if info.get(other):
            raise ValueError(f"model must read numbers and categories, got CatBoost with {other.replace('_', ' ')}")
    floats, hashed = info.get("float_features", []), info.get("categorical_features", [])
    scale, bias = stored["scale_and_bias"]
    bias = np.atleast_1d(np.asarray(bias, dtype=np.float64))
    place_of = {
        "FloatFeature": {each["feature_index"]: each["flat_feature_index"] for each in floats},
        "OneHotFeature": {each["feature_index"]: each["flat_feature_index"] for each in hashed},
    }
    values = {each["flat_feature_index"]: list(each.get("values") or []) for each in hashed}
    right = {each["flat_feature_index"] for each in floats if each["nan_value_treatment"] == "AsTrue"}
    if "oblivious_trees" in stored:
        trees = [_oblivious(tree, place_of, values, right, scale, len(bias)) for tree in stored["oblivious_trees"]]
    else:
        trees = [_nested(tree, place_of, values, right, scale, len(bias)) for tree in stored["trees"]]
    asked = tuple(sorted({int(tree.column[node]) for tree in trees for node in tree.codes}))
    if asked and "oblivious_trees" not in stored:
        raise ValueError(
            "model must have oblivious trees where it reads categories, got another grow_policy of CatBoost"
        )
    names, _ = frame_names(model.feature_names_, len(model.feature_names_))
    classes = getattr(model, "classes_", None)
    labels = () if classes is None else tuple(map(str, np.asarray(classes).tolist()))
    outputs = labels[1:] if len(labels) == 2 and len(bias) == 1 else labels
    if len(outputs) != len(bias):
        outputs = ("y",) if len(bias) == 1 else tuple(f"y{place}" for place in range(len(bias)))
    loss = str(stored["model_info"].get("params", {}).get("loss_function", {}).get("type", ""))
    return Ensemble(
        "CatBoost",
        names,
        outputs,
        "y" if loss in _IDENTITY else "raw score",
        trees,
        bias,
        _Numbers(model, names, tuple(each["flat_feature_index"] for each in hashed), asked, stored, place_of, values),
        asked,
    )


def _asked(
    split: dict[str, Any], place_of: dict[str, dict[int, int]], values: dict[int, list[int]]
) -> tuple[int, float, int | None]:
    """The column of a split, and its border or the place of its level."""
    kind = split["split_type"]
    if kind not in place_of:
        raise ValueError(
            f"model must split on numbers and one-hot categories, got CatBoost's {kind}: counters of categories are no "
            "sums over columns' states; a larger one_hot_max_size avoids them"
        )
    if kind == "FloatFeature":
        return place_of[kind][split["float_feature_index"]], float(np.float32(split["border"])), None
    column = place_of[kind][split["cat_feature_index"]]
    if split["value"] not in values[column]:
        values[column].append(split["value"])
    return column, 0.0, values[column].index(split["value"])


def _oblivious(
    tree: dict[str, Any],
    place_of: dict[str, dict[int, int]],
    values: dict[int, list[int]],
    missing_right: set[int],
    scale: float,
    outputs: int,
) -> Tree:
    """A tree with one split per level: node k has the children 2k + 1 and 2k + 2, bit i of a leaf is split i."""
    splits = [_asked(split, place_of, values) for split in tree["splits"] or []]
    depth = len(splits)
    inner, size = 2**depth - 1, 2 ** (depth + 1) - 1
    level = np.log2(np.arange(inner) + 1).astype(int)
    column, threshold, value = np.full(size, -1), np.zeros(size), np.zeros((size, outputs))
    column[:inner] = np.array([split[0] for split in splits], dtype=int)[level]
    threshold[:inner] = np.array([split[1] for split in splits])[level]
    path = np.arange(2**depth)  # the first split is the highest bit of a path
    leaf = sum(((path >> (depth - 1 - bit)) & 1) << bit for bit in range(depth)) if depth else path
    value[inner:] = scale * np.reshape(tree["leaf_values"], (-1, outputs))[leaf]
    codes = {node: np.array([splits[level[node]][2]]) for node in range(inner) if splits[level[node]][2] is not None}
    return _as_tree(column, threshold, value, codes, missing_right, 2 * np.arange(size) + 1, 2 * np.arange(size) + 2)


def _nested(
    root: dict[str, Any],
    place_of: dict[str, dict[int, int]],
    values: dict[int, list[int]],
    missing_right: set[int],
    scale: float,
    outputs: int,
) -> Tree:
    nodes = [root]
    for node in nodes:  # grows while it is read
        nodes += [node[side] for side in ("left", "right") if side in node]
    place, size = {id(node): number for number, node in enumerate(nodes)}, len(nodes)
    column, threshold, value = np.full(size, -1), np.zeros(size), np.zeros((size, outputs))
    left, right = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    codes = {}
    for number, node in enumerate(nodes):
        if "split" not in node:
            value[number] = scale * np.asarray(node["value"])
            continue
        column[number], threshold[number], level = _asked(node["split"], place_of, values)
        left[number], right[number] = place[id(node["left"])], place[id(node["right"])]
        if level is not None:
            codes[number] = np.array([level])
    return _as_tree(column, threshold, value, codes, missing_right, left, right)


def _as_tree(
    column: np.ndarray,
    threshold: np.ndarray,
    value: np.ndarray,
    codes: dict[int, np.ndarray],
    missing_right: set[int],
    left: np.ndarray,
    right: np.ndarray,
) -> Tree:
    missing_left = ~np.isin(column, sorted(missing_right))
    return Tree(column, left, right, threshold, missing_left, value, codes, listed_left=False)


class _Numbers:
    """Tables as the splits compare them. A level's hash is not public: the model itself says which leaf it goes to."""

    def __init__(
        self,
        model: Any,
        names: tuple[str, ...],
        categories: tuple[int, ...],
        asked: tuple[int, ...],
        stored: dict[str, Any],
        place_of: dict[str, dict[int, int]],
        values: dict[int, list[int]],
    ) -> None:
        self.model, self.names, self.categories, self.asked = model, names, categories, asked
        self._known: dict[int, dict[str, float]] = {column: {} for column in asked}
        # For each level that a split names, a tree and the bit of its leaf that says so.
        self._bits: dict[int, dict[int, tuple[int, int]]] = {column: {} for column in asked}
        for number, tree in enumerate(stored.get("oblivious_trees", [])):
            for bit, split in enumerate(tree["splits"] or []):
                column, _, level = _asked(split, place_of, values)
                if level is not None:
                    self._bits[column].setdefault(level, (number, bit))

    def __call__(self, X: Any) -> np.ndarray:  # (B, C)
        held = columns_of(X, self.names, not all(name == str(place) for place, name in enumerate(self.names)))
        numbers = np.zeros((len(held[0]), len(self.names)))
        for place, column in enumerate(held):
            if place in self.asked:
                numbers[:, place] = self._codes(place, [_as_text(value) for value in list(column)])
            elif place not in self.categories:
                name = (self.names[place],)
                numbers[:, place] = numbers_of(np.asarray(column)[:, None], name, False, single=True)[:, 0]
        return numbers

    def _codes(self, place: int, texts: list[str]) -> list[float]:
        known = self._known[place]
        fresh = sorted(set(texts) - set(known))
        if fresh:
            rows = [
                ["" if other in self.categories else 0.0 for other in range(place)]
                + [text]
                + ["" if other in self.categories else 0.0 for other in range(place + 1, len(self.names))]
                for text in fresh
            ]
            leaves = np.asarray(self.model.calc_leaf_indexes(rows))  # (B, trees)
            found = np.full(len(fresh), np.inf)  # a code that no split names
            for level, (tree, bit) in self._bits[place].items():
                found[(leaves[:, tree].astype(np.int64) >> bit) & 1 == 1] = level
            known.update(zip(fresh, found.tolist(), strict=True))
        return [known[text] for text in texts]


def _as_text(value: Any) -> str:
    """A category as CatBoost reads it."""
    if isinstance(value, (float, np.floating)):
        raise TypeError(f"X must hold text or integers in columns of categories, got {value!r}")
    return str(value)
