"""scikit-learn: single trees, forests, gradient boosting and histogram gradient boosting."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from restt.explain.trees.reader import Ensemble, Tree, column_names, numbers_of, output_names

_FAMILIES = ("DecisionTree", "ExtraTree", "RandomForest", "ExtraTrees", "GradientBoosting", "HistGradientBoosting")
KINDS = tuple(f"{family}{task}" for family in _FAMILIES for task in ("Regressor", "Classifier"))


def read_sklearn(model: Any, kind: str) -> Ensemble:
    """The trees of a fitted estimator; ``kind`` is its class's name."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    if kind.startswith("Hist"):
        return _histogram(model, kind)
    scale, trees, constant = (_boosted if kind.startswith("Gradient") else _averaged)(model, kind)
    given = getattr(model, "feature_names_in_", None)
    names = column_names(given, model.n_features_in_)
    missing = bool(model.__sklearn_tags__().input_tags.allow_nan)
    numbers = partial(numbers_of, names=names, named=given is not None, single=True, missing=missing)
    outputs = output_names(model, len(constant))
    return Ensemble(f"scikit-learn's {kind}", names, outputs, scale, trees, constant, numbers)


def _averaged(model: Any, kind: str) -> tuple[str, list[Tree], np.ndarray]:
    """The mean of values, or of the classes' shares in each leaf."""
    classes = kind.endswith("Classifier")
    if classes and model.n_outputs_ > 1:
        raise ValueError(f"model must have one output of classes, got {kind} with {model.n_outputs_}")
    members, trees = [model] if hasattr(model, "tree_") else list(model.estimators_), []
    for member in members:
        value = member.tree_.value[:, 0, :] if classes else member.tree_.value[:, :, 0]  # (K, D)
        if classes:
            value = value[:, 1:] if value.shape[1] == 2 else value
        trees.append(_tree(member.tree_, value / len(members)))
    return "probability" if classes else "y", trees, np.zeros(trees[0].value.shape[1])


def _boosted(model: Any, kind: str) -> tuple[str, list[Tree], np.ndarray]:
    if model.init is not None and model.init != "zero":
        raise ValueError(f"model must start from a constant, got {kind} with init={model.init!r}")
    units = model.learning_rate * np.eye(model.estimators_.shape[1])  # of (stages, D)
    trees = [
        _tree(member.tree_, member.tree_.value[:, 0] * unit)
        for stage in model.estimators_
        for member, unit in zip(stage, units, strict=True)
    ]
    start = model._raw_predict_init(np.zeros((1, model.n_features_in_), dtype=np.float32))[0]
    return "raw score" if kind.endswith("Classifier") else "y", trees, np.asarray(start, dtype=np.float64)


def _tree(tree: Any, value: np.ndarray) -> Tree:
    missing = np.asarray(tree.missing_go_to_left).astype(bool)
    return Tree(tree.feature, tree.children_left, tree.children_right, tree.threshold, missing, value)


def _histogram(model: Any, kind: str) -> Ensemble:
    names = column_names(getattr(model, "feature_names_in_", None), model.n_features_in_)
    encoded = np.zeros(len(names), dtype=bool) if model.is_categorical_ is None else model.is_categorical_
    categories = np.flatnonzero(encoded)
    recodes = getattr(model, "_preprocessor", None) is not None
    # Encoded columns of categories stand first in what the trees read.
    places = np.concatenate([categories, np.flatnonzero(~encoded)]) if recodes else np.arange(len(names))
    constant = np.asarray(model._baseline_prediction, dtype=np.float64).reshape(-1)
    levels = {}
    if recodes and len(categories):
        encoders = model._preprocessor.named_transformers_["encoder"].categories_
        levels = {
            int(column): [level for level in own.tolist() if level == level]
            for column, own in zip(categories, encoders, strict=True)
        }
    known_bits, rows = model._bin_mapper.make_known_categories_bitsets() if len(categories) else ((), ())
    known = {column: _set_bits(known_bits[rows[np.flatnonzero(places == column)[0]]]) for column in categories}

    def numbers(X: Any) -> np.ndarray:  # (B, C)
        """Values that the trees compare, in the table's order; an unseen category goes where a missing one does."""
        read = model._preprocess_X(X, reset=False)
        found = np.empty(read.shape, dtype=np.float64)
        found[:, places] = read
        for column, codes in known.items():
            found[~np.isin(found[:, column], codes), column] = np.nan
        return found

    return Ensemble(
        f"scikit-learn's {kind}",
        names,
        output_names(model, len(constant)),
        "raw score" if kind.endswith("Classifier") or model.loss in ("poisson", "gamma") else "y",
        [
            _histogram_tree(predictor, places, unit)
            for stage in model._predictors
            for predictor, unit in zip(stage, np.eye(len(constant)), strict=True)
        ],
        constant,
        numbers,
        levels,
    )


def _histogram_tree(predictor: Any, places: np.ndarray, unit: np.ndarray) -> Tree:
    nodes = predictor.nodes
    leaf = nodes["is_leaf"].astype(bool)
    listed = np.flatnonzero(nodes["is_categorical"].astype(bool) & ~leaf).tolist()
    return Tree(
        np.where(leaf, -1, places[nodes["feature_idx"]]),
        nodes["left"].astype(np.int64),
        nodes["right"].astype(np.int64),
        nodes["num_threshold"].astype(np.float64),
        nodes["missing_go_to_left"].astype(bool),
        nodes["value"][:, None] * unit,
        {node: _set_bits(predictor.raw_left_cat_bitsets[nodes["bitset_idx"][node]]) for node in listed},
    )


def _set_bits(words: np.ndarray) -> np.ndarray:  # (W,) uint32 -> (K,) int
    bits = (np.asarray(words, dtype=np.uint32)[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    return np.flatnonzero(bits.ravel())
