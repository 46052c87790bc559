import json
import subprocess
import sys

from restt.demo import SPLITS, run, tasks


def test_demo_trains_compares_and_saves(tmp_path):
    outcomes = run(tmp_path / "new" / "folder", seed=1, epochs=3)
    assert [(outcome.task, outcome.model) for outcome in outcomes] == [
        ("digits", "logistic regression"),
        ("digits", "plain tensor train"),
        ("digits", "ResTT"),
        ("diabetes", "linear regression"),
        ("diabetes", "plain tensor train"),
        ("diabetes", "ResTT"),
    ]
    assert all(len(outcome.scores) == SPLITS for outcome in outcomes)
    digits = outcomes[2]
    assert digits.curve[-1] > max(0.5, digits.curve[0])  # chance is 0.1
    saved = json.loads((tmp_path / "new" / "folder" / "demo.json").read_text())
    assert saved["seed"] == 1
    assert saved["versions"]["torch"]
    assert [result["scores"] for result in saved["results"]] == [outcome.scores for outcome in outcomes]
    assert (tmp_path / "new" / "folder" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_tasks_are_the_bundled_sets():
    assert [task.dataset for task in tasks(0)] == ["digits", "diabetes"]


def test_without_matplotlib_the_numbers_are_shown_and_saved(tmp_path):
    code = "import sys; sys.modules['matplotlib'] = None; from restt.demo import run; run(sys.argv[1], epochs=1)"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert [path.name for path in tmp_path.iterdir()] == ["demo.json"]
    assert "no picture: drawing needs matplotlib: pip install 'restt[plot]'" in " ".join(done.stdout.split())
    assert "accuracy 0." in done.stdout
    assert "R² " in done.stdout
