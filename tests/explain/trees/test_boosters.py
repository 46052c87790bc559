"""Models of boosting libraries as they write them down, read without the library: splits, codes and leaves by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from restt.explain import Trees
from restt.explain.trees.boosters import _xgboost_levels, read_catboost, read_lightgbm, read_xgboost


def leaf(value):
    return {"leaf_value": value}


def split(feature, left, right, threshold, missing="NaN", default_left=False, kind="<="):
    own = {"split_feature": feature, "decision_type": kind, "threshold": threshold, "missing_type": missing}
    return {**own, "default_left": default_left, "left_child": left, "right_child": right}


def lightgbm(*roots, **changes):
    """What a booster of columns a, b and, of categories, k says of its trees."""
    dump = {"num_tree_per_iteration": 1, "objective": "regression", "feature_names": ["a", "b", "k"]}
    dump |= {"pandas_categorical": [["u", "v", "w"]], "feature_infos": {"a": {"values": []}, "k": {"values": [0, 2]}}}
    dump |= {"tree_info": [{"tree_structure": root} for root in roots], **changes}
    return read_lightgbm(type("Booster", (), {"dump_model": lambda self: dump})(), "Booster")


def frame(a, b=0.0, k="u"):
    columns = {"a": np.array(a, dtype=float), "b": b, "k": pd.Categorical([k] * len(a), categories=["u", "v", "w"])}
    return pd.DataFrame(columns)


def test_lightgbm_goes_left_up_to_a_threshold_and_with_listed_codes():
    root = split(0, leaf(1.0), split(2, leaf(2.0), leaf(4.0), "0||2", kind="=="), 0.5)
    ensemble = lightgbm(root, split(1, leaf(10.0), leaf(20.0), 1e300, default_left=True))
    trees = Trees.read(ensemble)
    assert (ensemble.scale, ensemble.outputs, ensemble.levels) == ("y", ("y",), {2: ["u", "v", "w"]})
    rows = pd.concat([frame([0.5, 0.6, np.nan], k=level) for level in "uv"], ignore_index=True)
    assert trees.predict(rows)[:, 0].tolist() == [11.0, 12.0, 12.0, 11.0, 14.0, 14.0]
    other = rows.assign(k=pd.Categorical(["w", "x", None] * 2))  # levels of another order and a new one
    assert trees.predict(other.assign(a=1.0))[:, 0].tolist() == [12.0, 14.0, 14.0] * 2
    assert trees.predict(frame([0.0], b=np.inf))[:, 0].tolist() == [11.0]
    codes = np.array([[1.0, 0.0, code] for code in (2.9, 1.0, -0.5, 3.0)])  # codes are cut to whole numbers
    assert ensemble.numbers(codes)[:, 2].tolist() == [2.0, 1.0, 0.0, 3.0]
    with pytest.raises(ValueError, match="X must have 1 columns of categories as in the fit, got 2"):
        trees.predict(rows.assign(b=rows.k))


@pytest.mark.parametrize(
    ("missing", "values"),
    [("NaN", [2.0, 2.0, 1.0, 2.0]), ("Zero", [1.0, 1.0, 1.0, 2.0]), ("None", [2.0, 2.0, 2.0, 2.0])],
)
def test_lightgbm_has_three_kinds_of_missing_values(missing, values):
    trees = Trees.read(lightgbm(split(0, leaf(1.0), leaf(2.0), -1.0, missing, default_left=True)))
    assert trees.predict(frame([0.0, 1e-35, np.nan, 1e-34]))[:, 0].tolist() == values
    with pytest.raises(ValueError, match="alike in all trees, got NaN and Zero of column 0"):
        lightgbm(split(0, leaf(1.0), split(0, leaf(1.0), leaf(2.0), 0.0, "Zero"), -1.0))


def test_lightgbm_classes_take_turns_and_averages_are_of_each():
    roots = [split(0, leaf(value), leaf(-value), 0.0) for value in (1.0, 2.0, 4.0, 8.0)]
    for average, values in (({}, [5.0, 10.0]), ({"average_output": 1}, [2.5, 5.0])):
        ensemble = lightgbm(*roots, num_tree_per_iteration=2, objective="multiclass num_class:2", **average)
        assert Trees.read(ensemble).predict(frame([-1.0, 1.0])).tolist() == [values, [-value for value in values]]
        assert (ensemble.scale, ensemble.outputs) == ("raw score", ("y0", "y1"))
    assert lightgbm(leaf(1.0), objective="regression sqrt").scale == "raw score"
    unnamed = lightgbm(roots[0], feature_names=["Column_0", "Column_1"], pandas_categorical=None)
    assert unnamed.numbers(frame([1.0])[["a", "b"]]).tolist() == [[1.0, 0.0]]  # by place, as it made its names itself
    assert lightgbm(roots[0], feature_infos={}).levels == {}


TREE = {
    "tree_param": {"size_leaf_vector": "1"},
    "left_children": [1, -1, 3, -1, -1],
    "right_children": [2, -1, 4, -1, -1],
    "split_indices": [0, 0, 1, 0, 0],
    "split_conditions": [0.5, 1.0, 0.0, 2.0, 4.0],
    "default_left": [1, 0, 0, 0, 0],
    **{"categories": [0, 2], "categories_nodes": [2], "categories_segments": [0], "categories_sizes": [2]},
}


def xgboost(kind="Booster", objective="reg:squarederror", base="[5E-1]", classes="0", drop=None, trees=2, **known):
    """What a booster of columns a and, of categories, k writes."""
    model = {"trees": [TREE] * trees, "tree_info": [place % max(1, int(classes)) for place in range(trees)]}
    model["iteration_indptr"] = list(range(trees + 1))
    model |= {"weight_drop": known.pop("weight_drop")} if "weight_drop" in known else {}
    parts = {"name": "gbtree", "model": model} if drop is None else {"name": "dart", "gbtree": {"model": model}}
    sizes = {"num_class": classes, "num_feature": "2", "base_score": base}
    learner = {"gradient_booster": {**parts, "weight_drop": drop}, "objective": {"name": objective}}
    learner |= {"learner_model_param": sizes, "feature_names": ["a", "k"]}
    booster = type("Booster", (), {})()
    booster.save_raw = lambda form: json.dumps({"learner": learner}).encode()
    booster.attr = {"best_iteration": "0"}.get
    model = type("Model", (), {"missing": np.nan, **known})()
    model.get_booster = lambda: booster
    return read_xgboost(booster if kind == "Booster" else model, kind)


def test_xgboost_goes_left_below_a_threshold_and_right_with_listed_codes():
    below = float(np.nextafter(np.float32(0.5), np.float32(0)))
    rows = np.array([[below, 0], [0.5, 0], [0.5, 1], [0.5, 2], [np.nan, 1], [0.5, np.nan]])
    trees = Trees.read(xgboost())
    assert trees.predict(rows)[:, 0].tolist() == [2.5, 8.5, 4.5, 8.5, 2.5, 8.5]
    table = pd.DataFrame({"k": pd.Categorical(["x", "y"]), "a": [1.0, 1.0]})  # a frame's own codes, by name
    assert trees.predict(table)[:, 0].tolist() == [8.5, 4.5]
    assert repr(trees) == "Trees of XGBoost: 2 trees, 3 distinct boxes of up to 2 of 2 columns with up to 4 states, y"
    dropped = Trees.read(xgboost(drop=[1.0, 0.25]))
    assert dropped.predict(rows[:3])[:, 0].tolist() == [0.5 + 1.25 * value for value in (1, 4, 2)]
    newer = Trees.read(xgboost(weight_drop=[1.0, 0.25]))  # 3.4 has them beside the trees
    assert (newer.predict(rows) == dropped.predict(rows)).all()
    several = Trees.read(xgboost(objective="multi:softprob", classes="3", trees=4, base="[1E0,2E0,3E0]"))
    assert several.predict(rows[:2]).tolist() == [[3.0, 3.0, 4.0], [9.0, 6.0, 7.0]]
    assert (several.scale, several.outputs) == ("raw score", ("y0", "y1", "y2"))


@pytest.mark.parametrize(
    ("objective", "margin", "scale"),
    [
        ("reg:squarederror", 0.2, "y"),
        ("reg:logistic", np.log(0.25), "raw score"),
        ("binary:logistic", np.log(0.25), "raw score"),
        ("count:poisson", np.log(0.2), "raw score"),
        ("rank:ndcg", 0.2, "raw score"),
    ],
)
def test_xgboosts_base_score_is_put_on_the_margin(objective, margin, scale):
    ensemble = xgboost(objective=objective, base="2E-1")
    assert (ensemble.constant.tolist(), ensemble.scale) == ([pytest.approx(margin)], scale)


def test_what_xgboost_writes_and_no_sum_of_boxes_has_is_refused(monkeypatch):
    monkeypatch.setitem(TREE, "tree_param", {"size_leaf_vector": "2"})
    with pytest.raises(ValueError, match="one number in a leaf"):
        xgboost()
    with pytest.raises(ValueError, match=r"model must have an objective of .*, got 'survival:cox'"):
        xgboost(objective="survival:cox")


def test_xgboosts_estimators_stop_early_and_have_their_own_missing_value():
    assert len(xgboost("XGBRegressor", early_stopping_rounds=2).trees) == 1
    assert len(xgboost("XGBRegressor").trees) == 2  # the best iteration is of a fit that did not stop
    numbers = xgboost("XGBRegressor", missing=1.0).numbers(np.array([[1.0, 2.0]]))
    np.testing.assert_array_equal(numbers, [[np.nan, 2.0]])


def test_levels_that_xgboost_keeps_are_texts_or_numbers():
    stored = {"enc": [{}, {"values": [*b"redblue"], "offsets": [0, 3, 7]}, {"values": [3, 5]}]}
    assert _xgboost_levels(stored) == {1: ["red", "blue"], 2: [3, 5]}
    assert _xgboost_levels(None) == {}


class CatBoost:
    """A model of columns a, k and j, of which the last two are categories; hashes are lengths."""

    feature_names_ = ("a", "k", "j")

    def __init__(self, nan="AsIs", outputs=1, **changes):
        number = {"split_type": "FloatFeature", "float_feature_index": 0, "border": 0.5}
        splits = [number, self.hot(0, 2), self.hot(1, 3)]
        values = [float(leaf + 100 * output) for leaf in range(8) for output in range(outputs)]
        hashed = [{"feature_index": place, "flat_feature_index": 1 + place} for place in (0, 1)]
        floats = [{"feature_index": 0, "flat_feature_index": 0, "nan_value_treatment": nan}]
        self.stored = {
            "features_info": {"float_features": floats, "categorical_features": hashed},
            "scale_and_bias": [2.0, [0.5 * (1 + output) for output in range(outputs)]],
            "oblivious_trees": [
                {"splits": splits, "leaf_values": values},
                {"splits": None, "leaf_values": [1] * outputs},
            ],
            "model_info": {"params": {"loss_function": {"type": "RMSE"}}},
            **changes,
        }
        self.asked = []

    @staticmethod
    def hot(column, value):
        return {"split_type": "OneHotFeature", "cat_feature_index": column, "value": value}

    def save_model(self, path, format):
        Path(path).write_text(json.dumps(self.stored))

    def calc_leaf_indexes(self, rows):
        self.asked += rows
        return [[(row[0] > 0.5) + 2 * (len(row[1]) == 2) + 4 * (len(row[2]) == 3), 0] for row in rows]


def test_catboosts_leaves_are_numbered_by_the_bits_of_their_splits():
    model = CatBoost()
    ensemble = read_catboost(model, "CatBoostRegressor")
    trees = Trees.read(ensemble)
    cells = [(0.5, "uu", "v"), (0.6, "uu", "v"), (0.5, "u", "vvv"), (0.6, "uu", "vvv"), (np.nan, "u", "v")]
    rows = pd.DataFrame(cells, columns=["a", "k", "j"])
    assert trees.predict(rows)[:, 0].tolist() == [0.5 + 2 * (leaf + 1) for leaf in (2, 3, 4, 7, 0)]
    assert model.asked == [[0.0, "u", ""], [0.0, "uu", ""], [0.0, "", "v"], [0.0, "", "vvv"]]
    trees.predict(rows)
    assert len(model.asked) == 4  # a level is asked for once
    assert (ensemble.scale, ensemble.outputs) == ("y", ("y",))
    right = Trees.read(read_catboost(CatBoost("AsTrue"), "CatBoostRegressor"))
    assert right.predict(rows)[-1, 0] == 0.5 + 2 * (1 + 1)
    assert trees.predict(rows[["j", "k", "a"]]).tolist() == trees.predict(rows).tolist()
    model.feature_names_ = ("0", "1", "2")  # those of an array: the columns of a frame are taken by place
    assert Trees.read(read_catboost(model, "CatBoostRegressor")).predict(rows).tolist() == trees.predict(rows).tolist()
    several = Trees.read(read_catboost(CatBoost(outputs=2), "CatBoostClassifier"))
    assert several.predict(rows)[1].tolist() == [0.5 + 2 * (3 + 1), 1.0 + 2 * (103 + 1)]
    with pytest.raises(TypeError, match=r"text or integers in columns of categories, got 1\.5"):
        trees.predict(rows.assign(k=1.5))


def test_catboosts_other_trees_are_nested():
    number = {"split_type": "FloatFeature", "float_feature_index": 0, "border": 0.5}
    root = {"split": number, "left": {"value": 1.0}, "right": {"value": 3.0}}
    other = {"oblivious_trees": None, "trees": [root], "model_info": {"params": {"loss_function": {"type": "Logloss"}}}}
    ensemble = read_catboost(CatBoost(**other), "CatBoostClassifier")
    rows = pd.DataFrame({"a": [0.5, 0.6], "k": "u", "j": "v"})
    assert Trees.read(ensemble).predict(rows)[:, 0].tolist() == [2.5, 6.5]
    assert ensemble.scale == "raw score"
    with pytest.raises(ValueError, match="oblivious trees where it reads categories"):
        read_catboost(CatBoost(**{**other, "trees": [{**root, "split": CatBoost.hot(0, 2)}]}), "CatBoostClassifier")
    with pytest.raises(ValueError, match="CatBoost with text features"):
        read_catboost(CatBoost(features_info={"text_features": [1]}), "CatBoostClassifier")
