"""scikit-learn: single trees, forests, gradient boosting and histogram gradient boosting."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from restt.explain.trees.boxes import Tree
from restt.explain.trees.columns import frame_names, numbers_of
from restt.explain.trees.model import Ensemble

_SINGLE = ("DecisionTree", "ExtraTree")
_FORESTS = ("RandomForest", "ExtraTrees")
_BOOSTED = ("GradientBoosting",)
_HISTOGRAM = ("HistGradientBoosting",)
KINDS = tuple(
    f"{kind}{task}" for kind in (*_SINGLE, *_FORESTS, *_BOOSTED, *_HISTOGRAM) for task in ("Regressor", "Classifier")
)


def read(model: Any, kind: str) -> Ensemble:
    """The trees of a fitted estimator; ``kind`` is its class's name."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    family = kind.removesuffix("Regressor").removesuffix("Classifier")
    if family in _HISTOGRAM:
        return _histogram(model, kind)
    if family in _BOOSTED:
        return _boosted(model, kind)
    return _averaged(model, kind, [model] if family in _SINGLE else list(model.estimators_))


def _averaged(model: Any, kind: str, members: list[Any]) -> Ensemble:
    """The mean of values, or of the classes' shares in each leaf."""
    classes = kind.endswith("Classifier")
    if classes and model.n_outputs_ > 1:
        raise ValueError(f"model must have one output of classes, got {kind} with {model.n_outputs_}")
    trees = []
    for member in members:
        value = member.tree_.value[:, 0, :] if classes else member.tree_.value[:, :, 0]  # (K, D)
        if classes:
            value = value / value.sum(1, keepdims=True)
            value = value[:, 1:] if value.shape[1] == 2 else value
        trees.append(_tree(member.tree_, value / len(members)))
    if classes:
        outputs, scale = _class_names(model.classes_), "probability"
    else:
        outputs, scale = _target_names(model.n_outputs_), "y"
    return _ensemble(model, kind, outputs, scale, trees, np.zeros(len(outputs)))


def _boosted(model: Any, kind: str) -> Ensemble:
    if model.init is not None and model.init != "zero":
        raise ValueError(f"model must start from a constant, got {kind} with init={model.init!r}")
    stages = model.estimators_  # (stages, D)
    outputs = _class_names(model.classes_) if kind.endswith("Classifier") else ("y",)
    trees = []
    for stage in stages:
        for place, member in enumerate(stage):
            value = np.zeros((member.tree_.node_count, len(outputs)))
            value[:, place] = model.learning_rate * member.tree_.value[:, 0, 0]
            trees.append(_tree(member.tree_, value))
    start = model._raw_predict_init(np.zeros((1, model.n_features_in_), dtype=np.float32))[0]
    scale = "raw score" if kind.endswith("Classifier") else "y"
    return _ensemble(model, kind, outputs, scale, trees, np.asarray(start, dtype=np.float64))


def _histogram(model: Any, kind: str) -> Ensemble:
    classes = kind.endswith("Classifier")
    outputs = _class_names(model.classes_) if classes else ("y",)
    names, _ = frame_names(getattr(model, "feature_names_in_", None), model.n_features_in_)
    # Encoded columns of categories stand first in what the trees read.
    encoded = model.is_categorical_ if model.is_categorical_ is not None else np.zeros(len(names), dtype=bool)
    order = np.concatenate([np.flatnonzero(encoded), np.flatnonzero(~encoded)]) if _recodes(model) else None
    places = np.arange(len(names)) if order is None else order
    trees = []
    for stage in model._predictors:
        for place, predictor in enumerate(stage):
            nodes = predictor.nodes
            leaf = nodes["is_leaf"].astype(bool)
            value = np.zeros((len(nodes), len(outputs)))
            value[:, place] = nodes["value"]
            codes = {
                int(node): _set_bits(predictor.raw_left_cat_bitsets[nodes["bitset_idx"][node]])
                for node in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~leaf)
            }
            column = np.where(leaf, -1, places[nodes["feature_idx"]])
            trees.append(
                Tree(
                    column,
                    nodes["left"].astype(np.int64),
                    nodes["right"].astype(np.int64),
                    nodes["num_threshold"].astype(np.float64),
                    nodes["missing_go_to_left"].astype(bool),
                    value,
                    codes,
                )
            )
    levels = _levels(model, np.flatnonzero(encoded))
    linked = classes or model.loss in ("poisson", "gamma")
    return Ensemble(
        f"scikit-learn's {kind}",
        names,
        outputs,
        "raw score" if linked else "y",
        trees,
        np.asarray(model._baseline_prediction, dtype=np.float64).reshape(-1),
        partial(_histogram_numbers, model, places, tuple(np.flatnonzero(encoded).tolist())),
        tuple(np.flatnonzero(encoded).tolist()),
        levels,
    )


def _histogram_numbers(model: Any, places: np.ndarray, categories: tuple[int, ...], X: Any) -> np.ndarray:
    """Numbers that the trees compare, in the table's order; an unseen category goes where a missing one does."""
    read = model._preprocess_X(X, reset=False)
    numbers = np.empty(read.shape, dtype=np.float64)
    numbers[:, places] = read
    if categories:
        known_bits, rows = model._bin_mapper.make_known_categories_bitsets()
        for column in categories:
            place = int(np.flatnonzero(places == column)[0])
            known = _set_bits(known_bits[rows[place]])
            numbers[~np.isin(numbers[:, column], known), column] = np.nan
    return numbers


def _recodes(model: Any) -> bool:
    return getattr(model, "_preprocessor", None) is not None


def _levels(model: Any, categories: np.ndarray) -> dict[int, list[Any]] | None:
    """The levels behind the codes, where the model encodes them itself."""
    if not _recodes(model) or not len(categories):
        return None
    encoder = model._preprocessor.named_transformers_["encoder"]
    found = zip(categories.tolist(), encoder.categories_, strict=True)
    return {column: [level for level in levels.tolist() if level == level] for column, levels in found}


def _set_bits(words: np.ndarray) -> np.ndarray:  # (W,) uint32 -> (K,) int
    bits = (np.asarray(words, dtype=np.uint32)[:, None] >> np.arange(32, dtype=np.uint32)) & 1
    return np.flatnonzero(bits.ravel())


def _tree(tree: Any, value: np.ndarray) -> Tree:
    leaf = tree.children_left < 0
    missing = getattr(tree, "missing_go_to_left", None)
    return Tree(
        np.where(leaf, -1, tree.feature),
        tree.children_left,
        tree.children_right,
        tree.threshold,
        np.zeros(len(leaf), dtype=bool) if missing is None else np.asarray(missing).astype(bool),
        value,
    )


def _ensemble(
    model: Any, kind: str, outputs: tuple[str, ...], scale: str, trees: list[Tree], constant: np.ndarray
) -> Ensemble:
    names, named = frame_names(getattr(model, "feature_names_in_", None), model.n_features_in_)
    missing = bool(model.__sklearn_tags__().input_tags.allow_nan)
    numbers = partial(numbers_of, names=names, named=named, single=True, missing=missing)
    return Ensemble(f"scikit-learn's {kind}", names, outputs, scale, trees, constant, numbers)


def _class_names(classes: np.ndarray) -> tuple[str, ...]:
    """One output for two classes, that of the second, as decision_function has it."""
    names = tuple(map(str, classes.tolist()))
    return names[1:] if len(names) == 2 else names


def _target_names(count: int) -> tuple[str, ...]:
    return ("y",) if count == 1 else tuple(f"y{place}" for place in range(count))
