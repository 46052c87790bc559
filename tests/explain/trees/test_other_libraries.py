"""LightGBM, XGBoost and CatBoost models equal their own predictions on every row; each is left out where missing."""

import warnings

import numpy as np
import pandas as pd
import pytest

from restt import explain
from tests.explain.trees.rows import hard_rows, table


@pytest.fixture(scope="module")
def frame():
    """Numbers, and a column of categories with missing ones."""
    x, y = table(300)
    found = pd.DataFrame(x, columns=list("abcde"))
    rng = np.random.default_rng(0)
    found["k"] = pd.Categorical(rng.choice(list("uvwxyz"), len(x)))
    found.loc[3:9, "k"] = np.nan
    return found, y + 3.0 * found["k"].isin(["u", "x"])


@pytest.fixture
def lightgbm():
    return pytest.importorskip("lightgbm")


@pytest.fixture
def xgboost():
    return pytest.importorskip("xgboost")


@pytest.fixture
def catboost():
    return pytest.importorskip("catboost")


def _agrees(trees, rows, own, tolerance=1e-12):
    own = np.asarray(own, dtype=np.float64).reshape(len(rows), -1)
    np.testing.assert_allclose(trees.predict(rows), own, rtol=0, atol=tolerance * np.abs(own).max())


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_lightgbm_numbers(lightgbm, missing, zero):
    x, y = table(missing=missing)
    model = lightgbm.LGBMRegressor(n_estimators=15, verbose=-1, min_child_samples=3, zero_as_missing=zero).fit(x, y)
    trees = explain.from_trees(model)
    rows = hard_rows(trees, table()[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # feature names that it made itself
        _agrees(trees, rows, model.predict(rows))
    assert trees.scale == "y"


def test_lightgbm_classes_and_averages(lightgbm):
    x, y = table()
    model = lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(x, np.digitize(y, [-1, 1]))
    trees = explain.from_trees(model)
    assert trees.outputs == ("0", "1", "2")
    _agrees(trees, x, model.booster_.predict(x, raw_score=True))
    _agrees(explain.from_trees(model.booster_), x, model.booster_.predict(x, raw_score=True))
    forest = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.5, "verbose": -1}
    booster = lightgbm.train(forest, lightgbm.Dataset(x, y), 10)
    _agrees(explain.from_trees(booster), x, booster.predict(x))


def test_lightgbm_categories(lightgbm, frame):
    x, y = frame
    model = lightgbm.LGBMRegressor(n_estimators=20, verbose=-1, min_child_samples=3, min_data_per_group=2).fit(x, y)
    trees = explain.from_trees(model)
    _agrees(trees, x, model.predict(x))
    turned = x.assign(k=pd.Categorical(x["k"].astype(object), categories=list("qzyxwvu")))
    turned.loc[5:20, "k"] = "q"
    _agrees(trees, turned, model.predict(turned))
    assert "u" in explain.effect(trees, "k", x).grids[0]


def test_columns_are_known_by_the_names_that_libraries_give_them(lightgbm, xgboost):
    x, y = table(missing=False)
    numbered = pd.DataFrame(x)
    for model in (lightgbm.LGBMRegressor(n_estimators=5, verbose=-1), xgboost.XGBRegressor(n_estimators=5)):
        _agrees(explain.from_trees(model.fit(numbered, y)), numbered, model.predict(numbered), 1e-6)
    spaced = numbered.set_axis(["body mass", "age", "c", "d e f", "g"], axis=1)
    model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(spaced, y)
    trees = explain.from_trees(model)
    assert trees.names[0] == "body_mass"
    _agrees(trees, spaced[spaced.columns[::-1]], model.predict(spaced))
    with pytest.raises(ValueError, match=r"without .*'d_e_f'"):
        trees.predict(spaced.drop(columns="d e f"))


def test_lightgbm_linear_leaves_are_refused(lightgbm):
    x, y = table(missing=False)
    model = lightgbm.LGBMRegressor(n_estimators=2, linear_tree=True, verbose=-1).fit(x, y)
    with pytest.raises(ValueError, match="linear_tree"):
        explain.from_trees(model)


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": "reg:squarederror"},
        {"objective": "count:poisson"},
        {"objective": "reg:logistic"},
        {"booster": "dart", "rate_drop": 0.3},
        {"num_parallel_tree": 3, "subsample": 0.5},
    ],
)
@pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")  # of dart and gblinear, by XGBoost 3.4
def test_xgboost_numbers(xgboost, settings):
    x, y = table()
    y = np.clip(np.abs(y), 0, 1) if "logistic" in settings.get("objective", "") else np.abs(y)
    model = xgboost.XGBRegressor(n_estimators=10, max_depth=4, **settings).fit(x, y)
    trees = explain.from_trees(model)
    rows = hard_rows(trees, x)
    _agrees(trees, rows, model.predict(rows, output_margin=True), 1e-6)
    assert trees.scale == ("raw score" if settings.get("objective") in ("count:poisson", "reg:logistic") else "y")


def test_xgboost_outputs_and_early_stopping(xgboost):
    x, y = table(300)
    for classes in (y > 0, np.digitize(y, [-1, 1])):
        model = xgboost.XGBClassifier(n_estimators=5, max_depth=4).fit(x, classes)
        _agrees(explain.from_trees(model), x, model.predict(x, output_margin=True), 1e-6)
    model = xgboost.XGBRegressor(n_estimators=3).fit(x, np.stack([y, -y], 1))
    _agrees(explain.from_trees(model), x, model.predict(x), 1e-6)
    model = xgboost.XGBRegressor(n_estimators=200, early_stopping_rounds=2)
    model.fit(x[:200], y[:200], eval_set=[(x[200:], y[200:])], verbose=False)
    assert model.best_iteration < model.get_booster().num_boosted_rounds() - 1
    _agrees(explain.from_trees(model), x, model.predict(x), 1e-6)
    model = xgboost.XGBRegressor(n_estimators=5, missing=1.0).fit(np.nan_to_num(x), y)
    _agrees(explain.from_trees(model), np.nan_to_num(x), model.predict(np.nan_to_num(x)), 1e-6)


@pytest.mark.parametrize("one_hot", [1, 100])
def test_xgboost_categories(xgboost, frame, one_hot):
    x, y = frame
    model = xgboost.XGBRegressor(n_estimators=20, max_depth=4, enable_categorical=True, max_cat_to_onehot=one_hot)
    model.fit(x, y)
    trees = explain.from_trees(model)
    _agrees(trees, x, model.predict(x), 1e-6)
    assert trees.scale == "y"
    turned = x.assign(k=pd.Categorical(x["k"].astype(object), categories=list("zyxwvu")))
    _agrees(trees, turned, model.predict(turned), 1e-6)
    if tuple(int(part) for part in xgboost.__version__.split(".")[:2]) >= (3, 1):  # before, codes are the frame's own
        assert (trees.predict(turned) == trees.predict(x)).all()


@pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")  # of dart and gblinear, by XGBoost 3.4
def test_xgboost_without_trees_of_numbers_is_refused(xgboost):
    x, y = table(missing=False)
    with pytest.raises(ValueError, match="gblinear"):
        explain.from_trees(xgboost.XGBRegressor(booster="gblinear", n_estimators=2).fit(x, y))
    model = xgboost.XGBRegressor(n_estimators=2, multi_strategy="multi_output_tree").fit(x, np.stack([y, y], 1))
    with pytest.raises(ValueError, match="multi_output_tree"):
        explain.from_trees(model)
    with pytest.raises(ValueError, match=r"objective .* got 'survival:cox'"):
        explain.from_trees(xgboost.XGBRegressor(n_estimators=2, objective="survival:cox").fit(x, np.abs(y)))


CATBOOST = {"iterations": 20, "verbose": 0, "allow_writing_files": False}


@pytest.mark.parametrize("grow_policy", ["SymmetricTree", "Lossguide"])
@pytest.mark.parametrize("nan_mode", ["Min", "Max"])
def test_catboost_numbers(catboost, nan_mode, grow_policy):
    x, y = table()
    model = catboost.CatBoostRegressor(**CATBOOST, nan_mode=nan_mode, grow_policy=grow_policy).fit(x, y)
    trees = explain.from_trees(model)
    rows = hard_rows(trees, x)
    _agrees(trees, rows, model.predict(rows))
    assert trees.scale == "y"
    model = catboost.CatBoostClassifier(**CATBOOST, grow_policy=grow_policy).fit(x, np.digitize(y, [-1, 1]))
    trees = explain.from_trees(model)
    _agrees(trees, x, model.predict(x, prediction_type="RawFormulaVal"))
    assert (trees.scale, len(trees.outputs)) == ("raw score", 3)


def test_catboost_categories(catboost, frame):
    x, y = frame
    x = x.assign(k=x["k"].astype(object).fillna("none"))
    model = catboost.CatBoostRegressor(**CATBOOST, cat_features=["k"], one_hot_max_size=20).fit(x, y)
    trees = explain.from_trees(model)
    turned = x.assign(k=np.random.default_rng(0).choice(list("uvwxyzq"), len(x)))
    for rows in (x, turned):
        _agrees(trees, rows, model.predict(rows))
    counters = catboost.CatBoostRegressor(**CATBOOST, cat_features=["k"], one_hot_max_size=1).fit(x, y)
    with pytest.raises(ValueError, match="OnlineCtr"):
        explain.from_trees(counters)


def test_shap_agrees_on_joint_backgrounds():
    shap = pytest.importorskip("shap")
    from sklearn.ensemble import RandomForestRegressor

    x, y = table(150, missing=False)
    # shap compares in float64 what scikit-learn rounds to float32: no value may lie on a threshold.
    x = x + 1e-3 * np.random.default_rng(0).random(x.shape)
    model = RandomForestRegressor(8, max_depth=6, random_state=0).fit(x, y)
    explainer = shap.TreeExplainer(model, x[:40], feature_perturbation="interventional")
    wanted = explainer.shap_values(x[100:107], check_additivity=False)
    found = explain.shapley_values(explain.from_trees(model), x[100:107], x[:40], background_mode="joint")
    np.testing.assert_allclose(found[..., 0], wanted, atol=1e-6)
