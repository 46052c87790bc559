"""Exported graphs that take the raw table, column by column, say what predict says of it."""

import json

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest

import restt
from restt.estimators import ResTTNetClassifier, ResTTNetRegressor, ResTTRegressor, export
from restt.estimators.columns import Column
from tests.estimators.conftest import QUICK, short_fits

SHORT = {**QUICK, "epochs": 3}


def session_of(path):
    onnx.checker.check_model(onnx.load(path), full_check=True)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def answers(session, frame):
    """The outputs by name for a raw frame, read by nothing but what the session says of its inputs."""
    given = {}
    for column in session.get_inputs():
        assert column.shape == ["batch"]
        dtype = {"tensor(string)": object, "tensor(double)": np.float64, "tensor(float)": np.float32}[column.type]
        given[column.name] = frame[column.name].to_numpy(dtype=dtype)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, given), strict=True))


@pytest.fixture
def raw():
    """90 rows of every kind of column: text (some missing), categories that are numbers, numbers, booleans."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "colour": rng.choice(["red", "green", "blue"], 90),
            "size": rng.normal(size=90),
            "wheels": pd.Categorical(rng.choice([2, 4, 6], 90)),
            "new": rng.random(90) < 0.5,
            "constant_1": rng.integers(0, 4, 90),  # a name that the graph's own values have too
        }
    )
    y = frame["size"] + 2.0 * (frame["colour"] == "red") + frame["new"] * frame["wheels"].astype(int)
    frame.loc[[3, 4, 5], "colour"] = None
    frame.loc[[7, 8], "size"] = np.nan
    return frame, y.to_numpy()


@short_fits
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"precision": "float32"},
        {"runs": 2, "site_order": ["new", "colour", "constant_1", "wheels", "size"]},
        {"feature_map": "onehot"},
        {"handle_unknown": "error"},
        {"feature_map": "affine", "categorical_features": ["constant_1"]},
    ],
)
def test_the_raw_frame_is_predicted(raw, options, tmp_path):
    frame, y = raw
    model = ResTTNetRegressor(**SHORT, **options).fit(frame, y)
    session = session_of(model.export(tmp_path / "m.onnx"))
    assert [column.name for column in session.get_inputs()] == list(frame.columns)
    for rows in (frame, frame[:1], frame[7:8]):
        found = answers(session, rows)
        assert list(found) == ["output"]
        np.testing.assert_allclose(found["output"], model.predict(rows), rtol=0, atol=1e-5)
    assert answers(session, frame[:0])["output"].shape == (0,)


@pytest.mark.usefixtures("hasty")
def test_the_closed_form_too(raw, tmp_path):
    frame, y = raw
    model = ResTTRegressor(random_state=0).fit(frame, np.exp(y))
    found = answers(session_of(model.export(tmp_path / "m.onnx")), frame)["output"]
    np.testing.assert_allclose(found, model.predict(frame), rtol=1e-6)


@pytest.mark.parametrize("labels", [np.array(["cheap", "dear"]), np.array([10, 20]), np.array([False, True])])
def test_classes_come_as_text_beside_their_probabilities(raw, labels, tmp_path):
    frame, y = raw
    model = ResTTNetClassifier(**QUICK).fit(frame, labels[(y > 2).astype(int)])
    session = session_of(model.export(tmp_path / "m.onnx"))
    found = answers(session, frame)
    np.testing.assert_allclose(found["output"], model.predict_proba(frame), rtol=0, atol=1e-5)
    assert found["label"].tolist() == [str(label) for label in model.predict(frame).tolist()]
    assert len(set(found["label"])) == 2
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == labels.tolist()
    nothing = answers(session, frame[:0])
    assert nothing["output"].shape == (0, 2)
    assert nothing["label"].shape == (0,)


def test_labels_of_a_table_of_numbers(numbers, tmp_path):
    x, y = numbers
    model = ResTTNetClassifier(**QUICK).fit(x, np.where(y > 0, "up", "down"))
    output, label = session_of(model.export(tmp_path / "m.onnx")).run(None, {"x": x})
    np.testing.assert_allclose(output, model.predict_proba(x), rtol=0, atol=1e-5)
    assert label.tolist() == model.predict(x).tolist()


def test_a_table_of_numbers_by_columns(numbers, tmp_path):
    x, y = numbers
    model = ResTTNetRegressor(**QUICK).fit(x, y)
    whole, parts = model.export(tmp_path / "x.onnx"), model.export(tmp_path / "parts.onnx", inputs="columns")
    (expected,) = session_of(whole).run(None, {"x": x})
    (found,) = session_of(parts).run(None, {f"column {index}": x[:, index] for index in range(3)})
    np.testing.assert_array_equal(found, expected)
    assert [onnx.load(path).metadata_props[1].value for path in (whole, parts)] == ["numbers", "columns"]


@pytest.mark.parametrize("missing", ["", "None", "nan", "<NA>"])
def test_texts_that_mean_missing(raw, missing, tmp_path):
    frame, y = raw
    model = ResTTNetRegressor(**QUICK).fit(frame, y)
    session = session_of(model.export(tmp_path / "m.onnx"))
    found = answers(session, frame[:5].assign(colour=missing))["output"]
    np.testing.assert_allclose(found, model.predict(frame[:5].assign(colour=None)), rtol=0, atol=1e-5)


def test_a_level_is_never_taken_as_missing(raw, tmp_path):
    frame, y = raw
    frame = frame.assign(colour=frame["colour"].replace({"green": ""}))
    model = ResTTNetRegressor(**QUICK).fit(frame, y)
    session = session_of(model.export(tmp_path / "m.onnx"))
    np.testing.assert_allclose(answers(session, frame)["output"], model.predict(frame), rtol=0, atol=1e-5)


def test_unseen_and_rare_categories(raw, tmp_path):
    frame, y = raw
    frame, y = pd.concat([frame, frame], ignore_index=True), np.concatenate([y, y])
    frame.loc[0, "colour"] = "gold"  # rare, so that there is a state for others
    model = ResTTNetRegressor(**QUICK).fit(frame, y)
    assert [column.other for column in model.encoding_.columns[:3:2]] == [True, False]
    session = session_of(model.export(tmp_path / "m.onnx"))
    unseen = frame[:6].assign(colour=["gold", "violet", "red", "red", "RED", "blue"], wheels=[2, 4, 5, np.inf, 2, -1])
    with pytest.warns(UserWarning, match="unseen in the fit"):
        expected = model.predict(unseen)
    np.testing.assert_allclose(answers(session, unseen)["output"], expected, rtol=0, atol=1e-5)


def test_what_predict_refuses_is_nan_without_a_label(raw, tmp_path):
    frame, y = raw
    frame, y = frame[10:], y[10:]
    options = {**QUICK, "handle_unknown": "error", "handle_missing": "error"}
    model = ResTTNetClassifier(**options).fit(frame, np.where(y > 2, "dear", "cheap"))
    session = session_of(model.export(tmp_path / "m.onnx"))
    rows = frame[:6].assign(
        colour=["violet", "", "red", "red", "red", "red"],
        wheels=[2, 2, 3, np.nan, 2, 2],
        size=[0.0, 0.0, 0.0, 0.0, np.inf, 0.0],
    )
    found = answers(session, rows)
    assert np.isnan(found["output"]).all(axis=1).tolist() == [True, True, True, True, True, False]
    assert found["label"].tolist()[:5] == [""] * 5
    assert found["label"][5] in ("cheap", "dear")


def test_metadata_names_columns_levels_and_scale(raw, tmp_path):
    frame, y = raw
    model = ResTTNetRegressor(**QUICK).fit(frame, y)
    notes = session_of(model.export(tmp_path / "m.onnx")).get_modelmeta().custom_metadata_map
    assert notes["restt_version"] == restt.__version__
    assert notes["inputs"] == "columns"
    read = {name: json.loads(notes[name]) for name in ("columns", "feature_names", "classes", "target")}
    assert read["feature_names"] == list(frame.columns)
    assert read["classes"] is None
    assert read["target"] == {"scale": "identity", "outputs": 1}
    colour, size, wheels = read["columns"][:3]
    assert colour == {
        "name": "colour",
        "kind": "category",
        "levels": ["blue", "green", "red"],
        "missing": "learned",
        "unseen": "average",
    }
    assert size == {"name": "size", "kind": "number", "missing": "learned"}
    assert wheels["levels"] == [2, 4, 6]
    assert wheels["missing"] == "average"


def test_a_column_of_rare_levels_alone(tmp_path):
    frame = pd.DataFrame({"code": [f"c{n}" for n in range(200)], "size": np.arange(200.0)})
    model = ResTTNetRegressor(**QUICK).fit(frame, frame["size"])
    assert model.encoding_.columns[0].levels == ()
    found = answers(session_of(model.export(tmp_path / "m.onnx")), frame)["output"]
    np.testing.assert_allclose(found, model.predict(frame), rtol=0, atol=1e-5)


def test_refused_clearly(raw, tmp_path):
    frame, y = raw
    model = ResTTNetRegressor(**QUICK).fit(frame, y)
    with pytest.raises(ValueError, match=r'inputs="columns" is for \.onnx files, \.pt2 takes tensors'):
        model.export(tmp_path / "m.pt2", inputs="columns")
    with pytest.raises(ValueError, match=r"inputs must be one of .* got 'rows'"):
        model.export(tmp_path / "m.onnx", inputs="rows")
    named = ResTTNetRegressor(**QUICK).fit(frame.rename(columns={"size": "output"}), y)
    with pytest.raises(ValueError, match="'output' is the name of an output: rename it"):
        named.export(tmp_path / "m.onnx")
    mixed = frame.assign(wheels=pd.Categorical(np.where(frame["new"], "many", frame["wheels"].astype(object))))
    both = ResTTNetRegressor(**QUICK).fit(mixed, y)
    with pytest.raises(ValueError, match="column 'wheels' has levels of text beside numbers"):
        both.export(tmp_path / "m.onnx")
    assert both.export(tmp_path / "m.onnx", inputs="numbers").exists()


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["a", "b"], None),
        (["a", ""], "'' names no single column"),
        (["a", "b", "a"], "'a' names no single column"),
        (["a", "label"], "'label' is the name of an output"),
    ],
)
def test_columns_of_a_graph_have_names_of_their_own(names, told):
    if told is None:
        export._check_names(names, {"output", "label"})
    else:
        with pytest.raises(ValueError, match=told):
            export._check_names(names, {"output", "label"})


def test_metadata_says_what_becomes_of_values_that_the_fit_had_not_seen():
    for missing, averages, told in ((True, True, "learned"), (False, True, "average"), (False, False, "refused")):
        found = export._described("n", Column("n", missing=missing, averages_missing=averages))
        assert found == {"name": "n", "kind": "number", "missing": told}
    for other, told in ((None, "refused"), (True, "other"), (False, "average")):
        found = export._described("k", Column("k", ("x", "y"), other=other))
        assert (found["kind"], found["levels"], found["unseen"]) == ("category", ["x", "y"], told)


@pytest.mark.usefixtures("hasty")
def test_metadata_of_a_closed_form_model_names_the_power_and_the_coverage(tmp_path):
    x = np.random.default_rng(0).random((40, 2))
    model = ResTTRegressor(random_state=0).fit(x, np.exp(3 * x))
    notes = session_of(model.export(tmp_path / "m.onnx", coverage=0.5)).get_modelmeta().custom_metadata_map
    scale = json.loads(notes["target"])
    assert scale == {"scale": "power", "power": model.target_.model.power.tolist(), "outputs": 2}
    assert (notes["inputs"], json.loads(notes["coverage"]), json.loads(notes["feature_names"])) == (
        "numbers",
        0.5,
        None,
    )
