import json

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
