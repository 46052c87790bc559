"""CatBoost: oblivious and other trees, numbers and one-hot categories, from the model's JSON."""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from restt.explain.trees.reader import Ensemble, Split, columns_of, nested_tree, numbers_of, output_names

KINDS = ("CatBoost",)
# Losses whose raw score is y.
_IDENTITY = (
    *("RMSE", "MAE", "MAPE", "Quantile", "Huber", "LogCosh", "Lq", "MultiRMSE", "MultiQuantile"),
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
    scale, bias = stored["scale_and_bias"]
    bias = np.atleast_1d(np.asarray(bias, dtype=np.float64))
    splits = _Splits(info, scale, len(bias))
    oblivious = stored.get("oblivious_trees")
    roots = stored["trees"] if oblivious is None else [_nested(t["splits"] or [], t["leaf_values"]) for t in oblivious]
    trees = [nested_tree(root, splits.read, listed_left=False) for root in roots]
    if oblivious is None and any(tree.codes for tree in trees):
        raise ValueError(
            "model must have oblivious trees where it reads categories, got another grow_policy of CatBoost"
        )
    names = tuple(map(str, model.feature_names_))
    loss = str(stored["model_info"].get("params", {}).get("loss_function", {}).get("type", ""))
    return Ensemble(
        "CatBoost",
        names,
        output_names(getattr(model, "classes_", None), len(bias)),
        "y" if loss in _IDENTITY else "raw score",
        trees,
        bias,
        _Numbers(model, names, splits, oblivious or []),
    )


def _nested(splits: list[Any], values: list[float], leaf: int = 0, depth: int = 0) -> dict[str, Any]:
    """An oblivious tree, one split per level, as nested nodes: bit i of a leaf's number is split i."""
    if depth == len(splits):
        outputs = len(values) >> depth
        return {"value": values[leaf * outputs : (leaf + 1) * outputs]}
    left, right = (_nested(splits, values, leaf | side << depth, depth + 1) for side in (0, 1))
    return {"split": splits[depth], "left": left, "right": right}


class _Splits:
    """Nodes of the model's JSON; categories are numbered in the order in which splits name their hashes."""

    def __init__(self, info: dict[str, Any], scale: float, outputs: int) -> None:
        floats, hashed = info.get("float_features", []), info.get("categorical_features", [])
        self.scale, self.outputs = scale, outputs
        self.numbers = {each["feature_index"]: each["flat_feature_index"] for each in floats}
        self.categories = {each["feature_index"]: each["flat_feature_index"] for each in hashed}
        self.missing_right = {e["flat_feature_index"] for e in floats if e["nan_value_treatment"] == "AsTrue"}
        self.hashes: dict[int, list[int]] = {column: [] for column in self.categories.values()}

    def read(self, node: dict[str, Any]) -> Split | np.ndarray:
        """A node's split, or at a leaf its value."""
        if "split" not in node:
            return self.scale * np.broadcast_to(np.asarray(node["value"], dtype=np.float64), self.outputs)
        split, children = node["split"], (node["left"], node["right"])
        if split["split_type"] == "FloatFeature":
            column = self.numbers[split["float_feature_index"]]
            border = float(np.float32(split["border"]))
            return Split(column, *children, border, column not in self.missing_right)
        column, code = self.level(split)
        return Split(column, *children, missing_left=True, codes=[code])

    def level(self, split: dict[str, Any]) -> tuple[int, int]:
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


@dataclass(eq=False)
class _Numbers:
    """Tables as the splits compare them. A level's hash is not public: the model itself says which leaf it goes to."""

    model: Any
    names: tuple[str, ...]
    splits: _Splits
    trees: list[dict[str, Any]]  # oblivious
    codes: dict[int, dict[str, float]] = field(default_factory=dict)  # by column, of the levels seen so far

    def __call__(self, X: Any) -> np.ndarray:  # (B, C)
        named = any(name != str(place) for place, name in enumerate(self.names))
        columns, categories = columns_of(X, self.names, named), self.splits.hashes
        numbers = np.zeros((len(columns[0]), len(columns)))
        for place, column in enumerate(columns):
            if place not in categories:
                part = numbers_of(np.asarray(column)[:, None], (self.names[place],), False, single=True)
                numbers[:, place] = part[:, 0]
            elif categories[place]:
                numbers[:, place] = self._codes(place, [_as_text(value) for value in list(column)])
        return numbers

    def _codes(self, place: int, texts: list[str]) -> list[float]:
        known = self.codes.setdefault(place, {})
        fresh = sorted(set(texts) - set(known))
        if fresh:
            row: list[Any] = ["" if other in self.splits.hashes else 0.0 for other in range(len(self.names))]
            leaves = self.model.calc_leaf_indexes([[*row[:place], text, *row[place + 1 :]] for text in fresh])
            codes = np.full(len(fresh), np.inf)  # a code that no split names
            for tree, leaf in zip(self.trees, np.asarray(leaves).astype(np.int64).T, strict=True):
                for bit, split in enumerate(tree["splits"] or []):
                    if split["split_type"] == "OneHotFeature":
                        column, code = self.splits.level(split)
                        codes[(column == place) & (leaf >> bit & 1 == 1)] = code
            known.update(zip(fresh, codes.tolist(), strict=True))
        return [known[text] for text in texts]


def _as_text(value: Any) -> str:
    """A category as CatBoost reads it."""
    if isinstance(value, (float, np.floating)):
        raise TypeError(f"X must hold text or integers in columns of categories, got {value!r}")
    return str(value)
