"""`restt fit`, `predict`, `explain` and `info` as a shell calls them: what is printed where, and the exit code."""

import errno
import gzip
import io
import json
import os
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score

from restt_app.cli import main
from restt_app.workflow import Card, fit_table
from tests.hasty import hasty_solvers

ROWS = 24


def table(**changes):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=ROWS).round(3), "b": ["u", "v", "w"] * 8, "y": rng.normal(size=ROWS).round(3)}
    )
    return frame.assign(**changes)


@pytest.fixture
def restt(tmp_path, monkeypatch, capsys):
    """Call the command line in an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    table().to_csv("data.csv", index=False)

    def call(*words):
        monkeypatch.setattr("sys.argv", ["restt", *words])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, *capsys.readouterr()

    return call


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    with hasty_solvers():
        return fit_table(table(), "y").save(tmp_path_factory.mktemp("fitted") / "model")


def test_from_a_file_to_a_model_to_predictions_to_a_page(restt, tmp_path, hasty):
    code, out, err = restt("fit", "data.csv", "--target", "y", "-o", "model")
    assert code == 0
    assert out.splitlines()[-1] == "model"
    for words in ("ResTT", "linear", "boosting", "R²", "24 held-out rows (5 folds)"):
        assert words in out
    for words in ("number, ", "category, 3: u, v, w", "the target", "note: regression, since 'y' has"):
        assert words in err
    code, out, err = restt("predict", "model", "data.csv", "--interval", "0.5", "--carry", "b")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "b,prediction,low,high"
    assert len(lines) == ROWS + 1
    assert err == "note: not used: 'y' (the target)\n"
    assert restt("predict", "model", "data.csv", "--interval", "0.5", "--carry", "b", "-o", "-") == (0, out, err)
    code, out, err = restt("explain", "model", "data.csv", "-o", "page.html", "--rows", "3")
    assert (code, out, err) == (0, "page.html\n", "")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_default_fit_of_a_real_table(restt):
    """Nothing is in a hurry here: settings, solver and page are what a user gets."""
    data = load_diabetes(as_frame=True).frame
    write("train.csv", data[:150])
    write("new.csv", data[150:300])
    code, out, err = restt("fit", "train.csv", "-t", "target", "-o", "model", "--json", "-q")
    assert (code, err) == (0, "")
    card = Card.from_json(json.loads(out)["card"])
    assert sorted(os.listdir("model")) == ["README.md", "card.json", "model.safetensors"]
    assert card.settings == {"seed": 0, "device": "auto"}
    assert card.held_out["rows"] == 150
    r2 = {score["model"]: score["value"] for score in card.scores if score["metric"] == "r2"}
    assert 0.3 < r2["ResTT"] < 0.7  # more than 0.7 would mean that rows were seen
    assert f"| ResTT | {r2['ResTT']:.4g} [" in Path("model/README.md").read_text(encoding="utf-8")

    code, _, err = restt("predict", "model", "new.csv", "-o", "p.csv", "--carry", "target", "-q")
    assert (code, err) == (0, "")
    found = pd.read_csv("p.csv")
    assert found.columns.tolist() == ["target", "prediction", "low", "high"]
    assert r2_score(found.target, found.prediction) > 0.3
    assert found.target.between(found.low, found.high).mean() > 0.75

    code, _, err = restt("explain", "model", "train.csv", "-o", "page.html", "-q")
    assert (code, err) == (0, "")
    page = Path("page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    for words in (f"{r2['ResTT']:.4g}", f"{r2['boosting']:.4g}", "bmi", "ResTT", "boosting", 'id="explorer-data"'):
        assert words in page


def test_json_for_programs(restt):
    code, out, err = restt("fit", "data.csv", "-t", "y", "-o", "model", "--json", "--quiet", "--effort", "quick")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert said["model"] == "model"
    card = Card.from_json(said["card"])
    assert card == Card.from_json(json.loads(Path("model/card.json").read_text()))
    assert card.settings["effort"] == "quick"
    code, out, err = restt("predict", "model", "data.csv", "--json", "-q")
    records = [json.loads(line) for line in out.splitlines()]
    assert (code, err, len(records), list(records[0])) == (0, "", ROWS, ["prediction", "low", "high"])
    code, out, err = restt("predict", "model", "data.csv", "--json", "-q", "-o", "p.csv")
    summary = json.loads(out)
    assert (code, err, summary["output"], summary["rows"]) == (0, "", "p.csv", ROWS)
    assert "not used: 'y' (the target)" in summary["notes"]
    code, out, err = restt("explain", "model", "data.csv", "--json", "-q", "--rows", "1")
    assert (code, err, json.loads(out)) == (0, "", {"page": "page.html", "notes": []})


def test_standard_input_compressed_and_parquet(restt, model, monkeypatch):
    expected = restt("predict", str(model), "data.csv", "-q")
    assert expected[0] == 0
    packed = gzip.compress(Path("data.csv").read_bytes())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed)))
    assert restt("predict", str(model), "-", "-q") == expected
    table().to_parquet("data.parquet")
    assert restt("predict", str(model), "data.parquet", "-q") == expected
    write("odd.csv", table(), sep=";", decimal=",", encoding="utf-16")
    assert restt("predict", str(model), "odd.csv", "-q", "--layout", "1234,5") == expected


def write(name, frame, **options):
    frame.to_csv(name, index=False, **options)


@pytest.mark.parametrize(
    ("words", "prepare", "expected"),
    [
        (["--target", "z"], None, "target names the column 'z', which is not there; there are 'a', 'b', 'y'"),
        (["--target", "y"], {"y": 1.5}, "target 'y' has one value, 1.5, in all rows"),
        (["--target", "y"], {"a": ["x", *map(str, range(ROWS - 1))]}, "holds numbers and text, such as 'x' in row 1"),
        (["--target", "y", "--encoding", "utf-16"], {}, "cannot be read as utf-16"),
        (["--target", "y", "--delimiter", ";"], {}, "target names the column 'y', which is not there"),
        (["--target", "y", "--device", "abacus"], {}, "device must be"),
        (["--target", "y", "--task", "ranking"], {}, "task must be one of"),
    ],
)
def test_what_is_wrong_with_the_data_is_one_line_and_nothing_is_written(words, prepare, expected, restt, tmp_path):
    if prepare is not None:
        write("data.csv", table(**prepare))
    code, out, err = restt("fit", "data.csv", "-o", "model", "-q", *words)
    assert (code, out) == (1, "")
    assert re.fullmatch(r"restt: .*\n", err)
    assert expected in err
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [("", "is empty"), ("a,y\n", "has column names but no rows"), ("a,y\n1,2,3\n", "is no table")],
)
def test_files_without_a_table(content, expected, restt):
    Path("data.csv").write_text(content)
    code, out, err = restt("fit", "data.csv", "-t", "y", "-o", "model")
    assert (code, out) == (1, "")
    assert expected in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fit", "data.csv", "-t", "y", "-o", "data.csv"], "output must be a folder, got the file 'data.csv'"),
        (["fit", "data.csv", "-t", "y", "-o", "."], "output '.' is there already"),
        (["fit", "none.csv", "-t", "y", "-o", "m"], "data must be a file, got 'none.csv', which is not there"),
        (["predict", "none", "data.csv"], "model must be a folder that `restt fit` wrote, got 'none'"),
        (["predict", ".", "data.csv"], "which has no model.safetensors"),
        (["predict", "MODEL", "data.csv", "-o", "data.csv"], "output 'data.csv' is there already"),
        (["predict", "MODEL", "data.csv", "--interval", "2"], "interval must lie between 0 and 1, got 2.0"),
        (["predict", "MODEL", "less.csv"], "the table lacks the column(s) 'b', which the model was fitted with"),
        (["explain", "MODEL", "data.csv", "-o", "data.csv"], "output 'data.csv' is there already"),
    ],
)
def test_outputs_that_exist_and_inputs_that_do_not(words, expected, restt, model):
    write("less.csv", table()[["a"]])
    code, out, err = restt(*(str(model) if word == "MODEL" else word for word in words))
    assert (code, out) == (1, "")
    assert expected in err
    assert re.fullmatch(r"restt: .*\n", err)
    assert sorted(os.listdir()) == ["data.csv", "less.csv"]


def test_force_replaces_what_restt_wrote_and_nothing_else(restt):
    words = ("fit", "data.csv", "-t", "y", "-o", "model", "-q", "--effort", "quick", "--force")
    assert restt(*words)[0] == 0
    Path("model/thesis.txt").write_text("years of work")
    assert restt(*words, "--seed", "1")[0] == 0
    assert Card.from_json(json.loads(Path("model/card.json").read_text())).settings["seed"] == 1
    assert Path("model/thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("words", [["fit"], ["fit", "data.csv"], ["predict", "m", "d", "--rows", "3"], ["fitt"]])
def test_a_wrong_command_is_exit_code_2(words, restt):
    code, out, err = restt(*words)
    assert (code, out) == (2, "")
    assert "Usage: restt" in err


def test_ctrl_c_is_one_line_and_130(restt, tmp_path, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("restt_app.workflow.fitting.Scorer", stopped)
    code, out, err = restt("fit", "data.csv", "-t", "y", "-o", "model", "-q")
    assert (code, out, err.strip()) == (130, "", "restt: stopped")
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_a_full_disk_is_one_line(restt, model, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device", "p.csv")

    monkeypatch.setattr("os.fsync", full)
    code, out, err = restt("predict", str(model), "data.csv", "-o", "p.csv", "-q")
    assert (code, out) == (1, "")
    assert err == "restt: No space left on device: p.csv; free some, or write elsewhere\n"
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_standard_output_on_a_full_disk(restt, model, monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        code, _, err = restt("predict", str(model), "data.csv", "-q")
    assert (code, err) == (1, "restt: No space left on device; free some, or write elsewhere\n")


def test_a_closed_pipe_is_quiet(restt, model, monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        code, _, err = restt("predict", str(model), "data.csv", "-q")
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), writing)  # what is left in the buffer has somewhere to go
    assert (code, err) == (1, "")


def test_debug_shows_where_an_error_arose(restt):
    code, _, err = restt("fit", "none.csv", "-t", "y", "-o", "model", "--debug")
    assert code == 1
    assert "Traceback" in err
    assert err.splitlines()[-1].startswith("restt: data must be a file")


def test_warnings_are_notes(restt, model):
    write("new.csv", table(b="never seen"))
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        code, _, err = restt("predict", str(model), "new.csv", "-q")
    assert code == 0
    assert re.fullmatch(r"(restt: note: .*\n)+", err)
    assert "never seen" in err
    assert len(set(err.splitlines())) == err.count("\n")  # predictions and their intervals warn of the same


READING = {"delimiter": ";", "encoding": "cp1252", "missing": ["gone", "off"], "layout": ["1,234.5"]}
READ = ("--delimiter", ";", "--encoding", "cp1252", "--missing", "gone", "--missing", "off", "--layout", "1,234.5")
USUAL = {"delimiter": "auto", "encoding": "auto", "missing": (), "layout": ()}


@pytest.mark.parametrize(("words", "reading"), [((), USUAL), (READ, READING)])
def test_options_reach_the_functions(words, reading, restt, monkeypatch):
    calls = []

    def called(name, result):
        def note(*given, **options):
            calls.append((name, *given, options))
            return result

        monkeypatch.setattr(f"restt_app.workflow.{name}", note)

    result = {"rows": 1, "metrics": [], "notes": ["of it"], "apart": {"mean": 0.0, "largest": 0.0, "rows": []}}
    called("compare_tables", {**result, "worse_a": [], "worse_b": []})
    called("check_table", {"rows": 1, "findings": [], "scores": [], "notes": []})
    called("explain_table", Path("p.html"))
    called("Predictions", SimpleNamespace(notes=["of it"], rows=3))
    called("write_predictions", Path("p.csv"))
    a, b = Path("a"), Path("b")
    assert restt("compare", "a", "b", "data.csv", "--seed", "3", *words)[::2] == (0, "note: of it\n")
    assert restt("check", "a", "data.csv", *words)[:2] == (0, "1 rows are like those of the fit\n")
    assert restt("explain", "a", "data.csv", "--rows", "5", "--force", *words)[:2] == (0, "p.html\n")
    assert restt("predict", "a", "data.csv", "--interval", "0", "-o", "p.csv", *words) == (
        0,
        "p.csv\n",
        "note: of it\n",
    )
    assert calls[:3] == [
        ("compare_tables", a, b, "data.csv", {"seed": 3, **reading}),
        ("check_table", a, "data.csv", {"seed": 0, **reading}),
        ("explain_table", a, "data.csv", Path("page.html"), {"rows": 5, "force": True, "notes": [], **reading}),
    ]
    assert calls[3][1:] == (a, "data.csv", {"interval": None, "carry": (), **reading})
    assert calls[4][2:] == (Path("p.csv"), {"lines": False, "force": False})
    restt("predict", "a", "data.csv", "--json", "--carry", "b")
    assert calls[5][-1] == {"interval": 0.9, "carry": ["b"], **USUAL}
    assert calls[6][2:] == (None, {"lines": True, "force": False})


def test_serving_says_where_and_waits(restt, monkeypatch):
    calls = []
    monkeypatch.setattr("restt_app.workflow.serving.serve", lambda *given, **options: calls.append((*given, options)))
    code, out, err = restt("serve", "model", "--port", "9000")
    assert (code, out) == (0, "")
    assert err == "note: serving model on http://127.0.0.1:9000, its interface on /docs; Ctrl-C stops\n"
    assert calls == [(Path("model"), {"host": "127.0.0.1", "port": 9000})]


def test_info(restt):
    code, out, _ = restt("info", "--json")
    assert code == 0
    assert {"versions", "devices", "threads", "cache", "data", "extras"} <= set(json.loads(out))
    code, out, _ = restt("info")
    assert code == 0
    assert "float64 on cpu" in out


@pytest.mark.parametrize("command", ["fit", "predict", "explain", "compare", "check", "serve"])
def test_help_has_examples(command, restt):
    code, out, _ = restt(command, "--help")
    assert code == 0
    assert f"restt {command} " in out.split("Example", 1)[1]


def test_what_is_left_out_is_said_before_the_fit_and_in_the_card(restt, monkeypatch):
    write("data.csv", table(name=[f"row {k}" for k in range(ROWS)], none=""))
    said = [
        "column 'name' is left out: names the rows (24 different texts in 24 rows)",
        "column 'none' is left out: holds nothing but missing values",
    ]
    code, out, err = restt("fit", "data.csv", "-t", "y", "-o", "model", "--effort", "quick", "--json")
    assert code == 0
    assert json.loads(out)["card"]["notes"][:2] == said
    assert [err.count(note) for note in said] == [1, 1]
    assert "100 % fitting all rows" in err  # no terminal: a line for each step

    def stopped(*_, **__):
        raise ValueError("stopped before the fit")

    monkeypatch.setattr("restt_app.workflow.fitting.Scorer", stopped)
    _, _, err = restt("fit", "data.csv", "-t", "y", "-o", "other", "--effort", "quick")
    assert [f"note: {note}" in err.splitlines() for note in said] == [True, True]
    assert "stopped before the fit" in err


def test_an_ambiguous_layout_is_asked_for_and_taken(restt):
    write("data.csv", table(y=range(ROWS), a=[f"{k + 1},{k:03d}" for k in range(ROWS)]))
    code, out, err = restt("fit", "data.csv", "-t", "y", "-o", "model", "-q", "--effort", "quick")
    assert (code, out) == (1, "")
    assert re.fullmatch(r"restt: column 'a' can be read in two ways, such as '1,000' in row 1: .*\n", err)
    words = ("--layout", "1,234.5", "-q", "--json", "--effort", "quick")
    code, out, err = restt("fit", "data.csv", "-t", "y", "-o", "model", *words)
    assert (code, err) == (0, "")
    assert json.loads(out)["card"]["columns"][0]["range"] == [1000.0, 24023.0]
    write("new.csv", table(a="1.234.567"))
    code, out, err = restt("predict", "model", "new.csv")
    assert (code, out) == (1, "")
    assert "column 'a' must hold numbers as in the fit, got '1.234.567' in row 1" in err
    assert "--layout a=1.234,5" in err
    assert restt("predict", "model", "new.csv", "--layout", "a=1.234,5")[0] == 0


def test_a_quick_model_is_saved_first_and_kept_where_time_runs_out(restt, monkeypatch, hasty):
    code, _, err = restt("fit", "data.csv", "-t", "y", "-o", "model")
    assert code == 0
    assert err.index("quick answer, saved: R²") < err.index("100 % fitting all rows")
    assert "effort" not in json.loads(Path("model/card.json").read_text())["settings"]

    def late(*_, **options):
        options["first"](fit_table(table(), "y", effort="quick"))
        raise TimeoutError("stopped after 9 s")

    monkeypatch.setattr("restt_app.workflow.fit_table", late)
    code, out, err = restt("fit", "data.csv", "-t", "y", "-o", "other", "--time-limit", "900")
    assert (code, out.splitlines()[-1]) == (0, "other")
    assert "note: stopped after 9 s: the quick model is kept" in err
    assert json.loads(Path("other/card.json").read_text())["settings"]["effort"] == "quick"


def test_a_limit_that_no_model_meets_is_one_line(restt, monkeypatch, tmp_path):
    def late(*_, **__):
        raise TimeoutError("stopped after 1 s")

    monkeypatch.setattr("restt_app.workflow.fit_table", late)
    code, out, err = restt("fit", "data.csv", "-t", "y", "-o", "model", "-q", "--time-limit", "1")
    assert (code, out) == (1, "")
    assert err == "restt: stopped after 1 s, before a quick model was there: raise --time-limit\n"
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_check_is_for_pipelines(restt, model):
    code, out, err = restt("check", str(model), "data.csv")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "24 rows are like those of the fit"
    write("far.csv", table(a=99.0, b="never seen").drop(columns="y"))
    code, out, _ = restt("check", str(model), "far.csv", "--json")
    found = {(one["column"], one["what"], one["share"]) for one in json.loads(out)["findings"]}
    assert code == 3
    assert found == {("a", "outside the range of the fit", 1.0), ("b", "levels that the fit has not seen", 1.0)}
    code, out, err = restt("check", str(model), "none.csv")
    assert (code, out) == (1, "")


def test_compare_says_which_model_is_better_and_where_they_differ(restt, model, hasty):
    fit_table(table(), "y", effort="quick", drop=["a"]).save("less")
    code, out, err = restt("compare", str(model), "less", "data.csv")
    assert code == 0
    assert out.startswith("24 rows\nR²")
    assert "predictions differ by" in out
    fit_table(table(y=["u", "v"] * 12), "y", effort="quick").save("classes")
    code, out, err = restt("compare", str(model), "classes", "data.csv")
    assert (code, out) == (1, "")
    assert "a and b must be models of the same task" in err
