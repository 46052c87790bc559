from __future__ import annotations

import json

import pytest

from restt_paper import experiments as store_module
from restt_paper.experiments import Cell, Store


def squares(count: int) -> list[Cell]:
    return [Cell("squares", f"n{k}", {"number": k}) for k in range(count)]


def square(cell: Cell) -> dict[str, int]:
    return {"square": cell.settings["number"] ** 2}


def forbidden(cell: Cell) -> dict[str, int]:
    raise AssertionError(f"{cell.key} was computed again")


def test_a_file_says_what_it_holds_and_where_it_comes_from(tmp_path):
    cell = Cell("squares", "n3", {"number": 3, "seed": 7})
    found = Store(tmp_path, "cpu", command="restt reproduce squares").compute(cell, square)
    assert json.loads((tmp_path / f"{cell.key}.json").read_text()) == found
    assert found["cell"] == "squares/n3"
    assert found["settings"] == {"number": 3, "seed": 7}
    assert found["result"] == {"square": 9}
    assert found["provenance"]["seed"] == 7
    assert found["provenance"]["command"] == "restt reproduce squares"
    assert {"commit", "versions", "device"} <= set(found["provenance"])
    assert found["wall_seconds"] >= 0


@pytest.mark.parametrize(
    ("settings", "seed"),
    [({"seed": 0, "seeds": 10}, 0), ({"seeds": [0, 1]}, [0, 1]), ({"splits": [16, 0]}, [16, 0]), ({}, None)],
)
def test_what_random_numbers_start_from_is_kept(tmp_path, settings, seed):
    found = Store(tmp_path).compute(Cell("squares", "n1", {"number": 1, **settings}), square)
    assert found["provenance"]["seed"] == seed


def test_a_result_comes_from_the_code_its_work_began_with(tmp_path, monkeypatch):
    def committing(cell: Cell) -> dict[str, int]:
        monkeypatch.setenv("RESTT_COMMIT", "later")
        return square(cell)

    monkeypatch.setenv("RESTT_COMMIT", "at the start")
    found = Store(tmp_path).compute(squares(1)[0], committing)
    assert found["provenance"]["commit"] == "at the start"


def test_finished_cells_are_neither_computed_again_nor_rewritten(tmp_path):
    store = Store(tmp_path)
    first = store.compute_all(squares(3), square)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    assert store.compute_all(squares(3), forbidden) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == before
    assert [found["result"]["square"] for found in first] == [0, 1, 4]


def test_other_settings_are_another_cell(tmp_path):
    store = Store(tmp_path)
    for number in (2, 3):
        assert store.compute(Cell("squares", "same", {"number": number}), square)["result"]["square"] == number**2
    assert len(list(tmp_path.rglob("*.json"))) == 2


def test_failed_numbers_are_null_and_arrays_are_lists(tmp_path):
    import numpy as np
    import torch

    result = {"nan": float("nan"), "inf": [-np.inf, 1.0], "array": torch.tensor([1.0, torch.nan]), 5: np.float32(2)}
    found = Store(tmp_path).compute(Cell("odd", "values", {}), lambda cell: result)
    assert found["result"] == {"nan": None, "inf": [None, 1.0], "array": [1.0, None], "5": 2.0}


def test_an_error_leaves_no_file(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(ZeroDivisionError):
        store.compute_all(squares(2), lambda cell: {"wrong": 1 // cell.settings["number"]})
    assert not list(tmp_path.rglob("*.json"))
    assert store.compute(squares(1)[0], square)["result"] == {"square": 0}


@pytest.mark.parametrize("content", [b'{"cell": "squares/n1", "settin', b"[]", b'{"result": {}}', b"\xff\xfe", b""])
def test_a_corrupt_file_is_named_and_left_alone(tmp_path, content):
    cell = squares(2)[1]
    path = tmp_path / f"{cell.key}.json"
    path.parent.mkdir()
    path.write_bytes(content)
    for attempt in (lambda: Store(tmp_path).load(cell), lambda: Store(tmp_path).compute(cell, square)):
        with pytest.raises(ValueError, match=f"{cell.name}-.*json is not a whole results file"):
            attempt()
    assert path.read_bytes() == content


def test_a_file_moved_by_hand_is_noticed(tmp_path):
    store = Store(tmp_path)
    first, second = squares(2)
    store.compute(first, square)
    store.path(first).rename(store.path(second))
    with pytest.raises(ValueError, match="holds another cell, squares/n0"):
        store.load(second)


def test_progress_counts_and_says_what_happens(tmp_path, capsys):
    store = Store(tmp_path)
    store.compute(squares(1)[0], square)
    store.compute_all(squares(2), square)
    lines = [line.split("] ")[1] for line in capsys.readouterr().out.splitlines()]
    assert lines[:2] == ["squares/n0: already finished", "squares/n1: begun"]
    assert lines[2].startswith("squares/n1: finished in 0.")
    store.compute_all(squares(2), square)
    assert capsys.readouterr().out.splitlines()[-1].startswith("[2/2, ")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("provenance", {}),
        ("provenance", 3),
        ("wall_seconds", "x"),
        ("result", None),
        ("settings", [1]),
        ("result", {"a": float("nan")}),
    ],
)
def test_a_file_with_the_right_names_and_wrong_content_is_told(tmp_path, field, value):
    store, (cell,) = Store(tmp_path), squares(1)
    found = store.compute(cell, square)
    store.path(cell).write_text(json.dumps({**found, field: value}))
    with pytest.raises(ValueError, match="is not a whole results file"):
        Store(tmp_path).load(cell)


def test_a_stopped_run_goes_on_at_the_cell_it_was_in(tmp_path):
    def stopped(cell: Cell) -> dict[str, int]:
        if cell.name == "n1":
            raise KeyboardInterrupt
        return square(cell)

    with pytest.raises(KeyboardInterrupt):
        Store(tmp_path).compute_all(squares(3), stopped)
    computed = []

    def work(cell: Cell) -> dict[str, int]:
        computed.append(cell.name)
        return square(cell)

    contents = Store(tmp_path).compute_all(squares(3), work)
    assert [content["result"]["square"] for content in contents] == [0, 1, 4]
    assert computed == ["n1", "n2"]


def test_a_file_is_read_once_and_a_damaged_one_may_count_as_missing(tmp_path, monkeypatch):
    store, (first, second, third) = Store(tmp_path, skip_damaged=True), squares(3)
    Store(tmp_path).compute_all([first, second], square)
    store.path(second).write_text("{")
    reads = []
    read = store_module.read_file
    monkeypatch.setattr(store_module, "read_file", lambda path: reads.append(path) or read(path))
    for _ in range(2):
        assert store.load(first)["result"] == {"square": 0}
        assert store.load(second) is None
    assert reads == [store.path(first), store.path(second)]
    assert "is not a whole results file" in store.damaged[second.key]
    assert store.load(third) is None
    Store(tmp_path).compute(third, square)
    assert store.load(third)["result"] == {"square": 4}
