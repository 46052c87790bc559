import errno
import io
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from restt import ResTTNetRegressor
from restt_app.workflow import Predictions, explain_table, fit_table, load_table, predict_table, write_predictions
from restt_app.workflow.columns import Column, listed
from restt_app.workflow.predicting import Rows, _targets, extra_columns, known_targets, model_frame
from restt_app.workflow.source import Source

pytestmark = pytest.mark.usefixtures("little_scoring")


@pytest.fixture
def new_file(tree_frame, tmp_path):
    path = tmp_path / "new.csv"
    tree_frame.to_csv(path, index=False)
    return path


def test_predictions_are_the_estimators_own(fitted, tree_frame, new_file, tmp_path):
    folder = fitted.save(tmp_path / "model")
    found = predict_table(folder, new_file, interval=0.8, carry=["height"])
    assert found.columns.tolist() == ["height", "prediction", "low", "high"]
    inside = (found.low <= found.prediction) & (found.prediction <= found.high)
    assert inside.all()
    covered = ((found.low <= tree_frame.height) & (tree_frame.height <= found.high)).mean()
    assert 0.6 <= covered <= 1.0
    pd.testing.assert_frame_equal(predict_table(fitted, tree_frame, interval=0.8), found.drop(columns="height"))
    assert predict_table(fitted, new_file, interval=None).columns.tolist() == ["prediction"]
    wider = predict_table(fitted, new_file, interval=0.99)
    assert (wider.high - wider.low > found.high - found.low).all()


def test_classes_come_with_their_probabilities(labelled, tree_frame):
    found = predict_table(labelled, tree_frame)
    assert found.columns.tolist() == ["prediction", "probability small", "probability tall"]
    np.testing.assert_allclose(found["probability small"] + found["probability tall"], 1.0)
    assert (found.prediction == np.where(found["probability tall"] > 0.5, "tall", "small")).all()


def test_chunks_change_nothing(fitted, new_file, tmp_path, monkeypatch):
    whole = predict_table(fitted, new_file)
    monkeypatch.setattr("restt_app.workflow.source.CHUNK_ROWS", 25)
    pd.testing.assert_frame_equal(predict_table(fitted, new_file), whole, rtol=1e-9)
    written = write_predictions(Predictions(fitted, new_file), tmp_path / "p.csv")
    assert pd.read_csv(written).prediction.tolist() == pytest.approx(whole.prediction.tolist(), rel=1e-9)
    assert written.read_text().count("prediction") == 1


def test_words_for_missing_values_are_those_of_the_fit(tree_frame, tmp_path):
    girth = tree_frame.girth.map(str).where(tree_frame.girth.notna(), "gone")
    gaps = tree_frame.assign(kind=tree_frame.kind.fillna("gone"), girth=girth)
    wanted = predict_table(fit_table(tree_frame, "height", effort="quick"), tree_frame)
    model = fit_table(gaps, "height", effort="quick", missing=["gone"], test=gaps)
    assert model.card.held_out["rows"] == 60
    model = load_table(model.save(tmp_path / "model"))
    pd.testing.assert_frame_equal(predict_table(model, gaps), wanted)
    with pytest.raises(TypeError, match="missing must be a list of texts"):
        predict_table(model, gaps, missing="gone")
    with pytest.raises(TypeError, match="carry must be a list of texts"):
        predict_table(model, gaps, carry="kind")


def test_at_most_five_extra_columns_and_twelve_lacking_ones_are_named(fitted):
    assert extra_columns(list("abcde"), fitted.card) == ["not used: 'a', 'b', 'c', 'd', 'e'"]
    assert extra_columns(list("abcdef"), fitted.card) == ["not used: 'a', 'b', 'c', 'd', 'e' and 1 more"]
    assert extra_columns(["girth", *"abcdefg"], fitted.card) == ["not used: 'a', 'b', 'c', 'd', 'e' and 2 more"]
    assert extra_columns(["girth", "kind"], fitted.card) == []
    assert listed([f"c{k}" for k in range(12)]).endswith(", 'c11'")
    assert listed([f"c{k}" for k in range(14)]).endswith(", 'c11' and 2 more")


def test_rows_are_scored_where_the_target_is_known(fitted, labelled):
    x = pd.DataFrame({"a": [1.0, 2.0, 3.0]}, index=[5, 6, 7])
    notes = []
    known, y = known_targets(fitted.card, Rows(x, np.array([1.0, np.nan, 3.0]), notes, None))
    assert (known.a.tolist(), known.index.tolist(), y.tolist()) == ([1.0, 3.0], [5, 7], [1.0, 3.0])
    assert notes == ["1 rows have no 'height', or one the fit has not seen: not scored"]
    known, y = known_targets(labelled.card, Rows(x, np.array(["tall", None, "huge"], dtype=object), notes, None))
    assert (known.a.tolist(), y.tolist(), y.dtype) == ([1.0], ["tall"], object)
    assert notes[1] == "2 rows have no 'tall', or one the fit has not seen: not scored"
    with pytest.raises(ValueError, match="no row has a value in 'height' that the model knows"):
        known_targets(fitted.card, Rows(x, np.full(3, np.nan), [], None))
    assert len(known_targets(fitted.card, Rows(x, np.ones(3), notes, None))[1]) == 3
    assert len(notes) == 2


def test_extra_columns_are_left_out_with_a_note(fitted, tree_frame):
    predictions = Predictions(fitted, tree_frame.assign(colour="green"))
    assert len(list(predictions)) == 1
    assert predictions.rows == 60
    assert predictions.notes == ["not used: 'height', 'colour'"]
    predictions = Predictions(fitted, tree_frame)
    list(predictions)
    assert predictions.notes == ["not used: 'height' (the target)"]


def test_a_model_trained_by_gradients_says_that_it_has_no_intervals(fitted, tree_frame):
    columns = [Column.from_json(column) for column in fitted.card.columns]
    trained = ResTTNetRegressor(epochs=20, random_state=0).fit(model_frame(columns, tree_frame), tree_frame.height)
    predictions = Predictions(replace(fitted, estimator=trained), tree_frame)
    (frame,) = predictions
    assert frame.columns.tolist() == ["prediction"]
    assert any("no intervals" in note for note in predictions.notes)


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        (lambda frame: frame.drop(columns=["girth", "kind"]), {}, r"lacks the column\(s\) 'girth', 'kind'"),
        (lambda frame: frame.rename(columns={"girth": "Girth"}), {}, "lacks .*'girth'.*; spelled alike: 'Girth'"),
        (
            lambda frame: frame.assign(girth="wide"),
            {},
            "column 'girth' must hold numbers as in the fit, got 'wide' in row 1",
        ),
        (lambda frame: frame.assign(girth=np.inf), {}, "column 'girth' holds an infinite value in row 1: correct it"),
        (lambda frame: frame.iloc[:0], {}, "no rows"),
        (lambda frame: frame, {"interval": 1.5}, "interval must lie between 0 and 1"),
        (lambda frame: frame, {"carry": ["id"]}, "carry names the column 'id'"),
    ],
)
def test_what_cannot_be_predicted_is_named(change, options, expected, fitted, tree_frame):
    with pytest.raises(ValueError, match=expected):
        predict_table(fitted, change(tree_frame), **options)


def test_files_are_csv_and_whole_or_absent(fitted, tree_frame, tmp_path, monkeypatch):
    path = write_predictions(Predictions(fitted, tree_frame), tmp_path / "out" / "p.csv")
    found = pd.read_csv(path)
    pd.testing.assert_frame_equal(found, predict_table(fitted, tree_frame), rtol=1e-9)
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="there already"):
        write_predictions(Predictions(fitted, tree_frame), path)
    with pytest.raises(ValueError, match="lacks the column"):
        write_predictions(Predictions(fitted, tree_frame[["kind"]]), path, force=True)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_predictions(Predictions(fitted, tree_frame), path, force=True)
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == ["p.csv"]


def test_lines_of_json(labelled, tree_frame, monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    write_predictions(Predictions(labelled, tree_frame, carry=["girth"]), None, lines=True)
    records = [json.loads(line) for line in out.getvalue().splitlines()]
    assert len(records) == 60
    assert sorted(records[0]) == ["girth", "prediction", "probability small", "probability tall"]
    assert records[0]["girth"] is None


def test_the_page_is_given_inputs_and_targets_in_the_models_terms(fitted, labelled, new_file, tmp_path, monkeypatch):
    given = {}

    def model_page(model, X, y=None, *, card, rows=200):
        given.update(model=model, X=X, y=y, card=card, rows=rows)
        return "<html>ä</html>"

    pages = type("pages", (), {"model_page": staticmethod(model_page)})
    monkeypatch.setitem(__import__("sys").modules, "restt_app.pages", pages)
    monkeypatch.setattr("restt_app.workflow.source.CHUNK_ROWS", 25)
    notes = []
    page = explain_table(fitted, new_file, tmp_path / "page.html", rows=7, notes=notes)
    assert page.read_text(encoding="utf-8") == "<html>ä</html>"
    assert given["X"].columns.tolist() == fitted.estimator.feature_names_in_.tolist()
    assert len(given["X"]) == len(given["y"]) == 60
    assert given["card"] == fitted.card.to_json()
    assert given["rows"] == 7
    assert notes == []
    np.testing.assert_allclose(fitted.estimator.predict(given["X"]), predict_table(fitted, new_file).prediction)
    with pytest.raises(FileExistsError, match="there already"):
        explain_table(fitted, new_file, page)
    explain_table(labelled, new_file, page, force=True, notes=notes)
    assert given["y"] is None
    assert notes == ["not used: 'height'"]


def test_a_saved_model_predicts_the_same(labelled, tree_frame, tmp_path):
    loaded = load_table(labelled.save(tmp_path / "model"))
    pd.testing.assert_frame_equal(predict_table(loaded, tree_frame), predict_table(labelled, tree_frame))


@pytest.mark.parametrize(
    ("y", "expected"),
    [([0, 1, 2] * 14, [0, 1, None]), ([1.5, 2.5, 2.5] * 14, ["1.5", "2.5", None]), ([*"uvu"] * 14, ["u", "v", None])],
)
def test_targets_are_the_models_labels(y, expected, tmp_path):
    frame = pd.DataFrame({"a": np.random.default_rng(0).normal(size=42), "y": y})
    fitted = fit_table(frame, "y", effort="quick")
    path = tmp_path / "new.csv"
    frame.iloc[:2].to_csv(path, index=False)
    path.write_text(path.read_text() + "0.5,NA\n")
    with Source(path) as source:
        rows = source.read()
    assert _targets(fitted.card, fitted.target_column, rows["y"]).tolist() == expected
    assert set(fitted.estimator.classes_) >= set(expected[:2])


def test_true_and_false_are_the_yes_and_no_of_a_target():
    frame = pd.DataFrame({"a": np.random.default_rng(0).normal(size=42), "y": ["Yes", "No", "No"] * 14})
    fitted = fit_table(frame, "y", effort="quick")
    found = _targets(fitted.card, fitted.target_column, frame["y"] == "Yes")
    assert found.tolist() == frame["y"].tolist()
