"""scikit-learn's ensembles equal their own predictions on every row."""

import numpy as np
import pandas as pd
import pytest
from sklearn import ensemble, tree

from restt import explain
from restt.explain.trees.sklearn_trees import _set_bits
from tests.explain.trees.rows import hard_rows, table

REGRESSORS = {
    "DecisionTreeRegressor": {},
    "ExtraTreeRegressor": {},
    "RandomForestRegressor": {"n_estimators": 5},
    "ExtraTreesRegressor": {"n_estimators": 5},
    "GradientBoostingRegressor": {"n_estimators": 10, "learning_rate": 0.3, "loss": "huber"},
    "HistGradientBoostingRegressor": {"max_iter": 10},
}
CLASSIFIERS = {name.replace("Regressor", "Classifier"): {**settings} for name, settings in REGRESSORS.items()}
CLASSIFIERS["GradientBoostingClassifier"].pop("loss")


def _made(name, settings):
    return getattr(tree if hasattr(tree, name) else ensemble, name)(random_state=0, **settings)


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name):
    x, y = table(missing=name != "GradientBoostingRegressor")
    model = _made(name, REGRESSORS[name]).fit(x, y)
    trees = explain.from_trees(model)
    rows = hard_rows(trees, x)
    np.testing.assert_allclose(trees.predict(rows)[:, 0], model.predict(rows), rtol=0, atol=1e-12)
    assert trees.scale == "y"


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name, classes):
    x, y = table(missing=name != "GradientBoostingClassifier")
    model = _made(name, CLASSIFIERS[name]).fit(x, np.array(["a", "b", "c"])[np.digitize(y, [-1, 1][: classes - 1])])
    trees = explain.from_trees(model)
    rows = hard_rows(trees, x)
    if trees.scale == "raw score":
        own = model.decision_function(rows).reshape(len(rows), -1)
    else:
        own = model.predict_proba(rows)[:, -1:] if classes == 2 else model.predict_proba(rows)
    assert trees.outputs == (("b",) if classes == 2 else ("a", "b", "c"))
    np.testing.assert_allclose(trees.predict(rows), own, rtol=0, atol=1e-12)


def test_missing_values_that_the_fit_did_not_see():
    x, y = table(missing=False)
    model = ensemble.RandomForestRegressor(5, random_state=0).fit(x, y)
    rows, _ = table()
    np.testing.assert_allclose(explain.from_trees(model).predict(rows)[:, 0], model.predict(rows), atol=1e-12)
    boosted = ensemble.GradientBoostingRegressor(n_estimators=3).fit(x, y)
    with pytest.raises(ValueError, match="missing value in column 'x"):
        explain.from_trees(boosted).predict(rows)


def test_several_outputs():
    x, y = table()
    model = ensemble.RandomForestRegressor(5, random_state=0).fit(x, np.stack([y, -2 * y], 1))
    trees = explain.from_trees(model)
    np.testing.assert_allclose(trees.predict(x), model.predict(x), atol=1e-12)
    values = explain.shapley_values(trees, x[:3], x)
    np.testing.assert_allclose(values[..., 1], -2 * values[..., 0], atol=1e-12)


def test_categories_of_histogram_boosting():
    x, y = table(200)
    frame = pd.DataFrame(x, columns=list("abcde"))
    rng = np.random.default_rng(0)
    frame.insert(2, "k", pd.Categorical(rng.choice(list("uvwxyz"), len(x))))
    frame.loc[3:9, "k"] = np.nan
    y = y + 3.0 * frame["k"].isin(["u", "x"])
    model = ensemble.HistGradientBoostingRegressor(max_iter=20, categorical_features="from_dtype").fit(frame, y)
    trees = explain.from_trees(model)
    other = frame.assign(k=pd.Categorical(rng.choice(list("uvwxyzq"), len(x))))
    for rows in (frame, other):
        np.testing.assert_allclose(trees.predict(rows)[:, 0], model.predict(rows), atol=1e-12)
    curve = explain.effect(trees, "k", frame, grid=["u", "v"])
    assert float(curve.values[0] - curve.values[1]) > 2.0
    assert explain.explain_local(trees, frame[:1], frame).data[0, 2] == frame["k"][0]
    codes = np.where(frame["k"].isna(), np.nan, frame["k"].cat.codes)
    numbers = np.column_stack([x, codes])
    model = ensemble.HistGradientBoostingRegressor(max_iter=20, categorical_features=[5]).fit(numbers, y)
    rows = np.concatenate([numbers, np.column_stack([x, np.arange(len(x)) % 9])])
    np.testing.assert_allclose(explain.from_trees(model).predict(rows)[:, 0], model.predict(rows), atol=1e-12)


def test_words_of_bits_hold_32_categories_each():
    assert _set_bits(np.array([1 | 1 << 31, 0b10])).tolist() == [0, 31, 33]


def test_columns_by_name():
    x, y = table(missing=False)
    frame = pd.DataFrame(x, columns=list("abcde"))
    trees = explain.from_trees(ensemble.RandomForestRegressor(3, random_state=0).fit(frame, y))
    assert trees.names == tuple("abcde")
    turned = explain.shapley_values(trees, frame[:2][list("edcba")], frame)
    np.testing.assert_array_equal(turned, explain.shapley_values(trees, frame[:2], frame))
    unnamed = explain.from_trees(ensemble.RandomForestRegressor(3, random_state=0).fit(x, y))
    np.testing.assert_array_equal(unnamed.predict(frame.set_axis(list("aabcc"), axis=1)), unnamed.predict(x))
    with pytest.raises(ValueError, match=r"without .*'c'"):
        trees.predict(frame.drop(columns="c"))


def test_what_does_not_fit_is_refused_by_name():
    x, y = table(missing=False)
    start = ensemble.GradientBoostingRegressor(n_estimators=2, init=tree.DecisionTreeRegressor()).fit(x, y)
    with pytest.raises(ValueError, match="init=DecisionTreeRegressor"):
        explain.from_trees(start)
    classes = np.stack([y > 0, y > 1], 1)
    with pytest.raises(ValueError, match="one output of classes"):
        explain.from_trees(ensemble.RandomForestClassifier(2).fit(x, classes))
    with pytest.raises(Exception, match="not fitted"):
        explain.from_trees(ensemble.RandomForestClassifier())
