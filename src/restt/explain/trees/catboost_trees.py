"""CatBoost: oblivious and other trees, numbers and one-hot categories, from the model's JSON."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from restt.explain.trees.reader import Ensemble, Split, columns_of, nested_tree, numbers_of, output_names

# Losses whose raw score is y.
_IDENTITY = (
    *("RMSE", "MAE", "MAPE", "Quantile", "Huber", "LogCosh", "Lq", "MultiRMSE", "MultiQuantile"),
    "RMSEWithUncertainty",
)


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
    reader = _Reader(model, stored, scale, len(bias))
    roots = stored.get("trees", [])
    if reader.oblivious:
        roots = [_nested(tree["splits"] or [], tree["leaf_values"]) for tree in reader.oblivious]
    trees = [nested_tree(root, reader.node, listed_left=False) for root in roots]
    if not reader.oblivious and any(tree.codes for tree in trees):
        raise ValueError(
            "model must have oblivious trees where it reads categories, got another grow_policy of CatBoost"
        )
    loss = str(stored["model_info"].get("params", {}).get("loss_function", {}).get("type", ""))
    scale = "y" if loss in _IDENTITY else "raw score"
    return Ensemble("CatBoost", reader.names, output_names(model, len(bias)), scale, trees, bias, reader.numbers)


def _nested(splits: list[Any], values: list[float], leaf: int = 0, depth: int = 0) -> dict[str, Any]:
    """An oblivious tree, one split per level, as nested nodes: bit i of a leaf's number is split i."""
    if depth == len(splits):
        outputs = len(values) >> depth
        return {"value": values[leaf * outputs : (leaf + 1) * outputs]}
    left, right = (_nested(splits, values, leaf | side << depth, depth + 1) for side in (0, 1))
    return {"split": splits[depth], "left": left, "right": right}


class _Reader:
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
