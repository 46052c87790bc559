import errno
import json

import pytest

from restt.workflow import load_table
from restt.workflow.card import Card
from restt.workflow.folder import readme


def test_a_model_folder_survives(fitted, tree_frame, tmp_path):
    folder = fitted.save(tmp_path / "new" / "model")
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "card.json", "model.safetensors"]
    loaded = load_table(folder)
    assert loaded.card == fitted.card
    assert loaded.columns == fitted.columns
    page = (folder / "README.md").read_text(encoding="utf-8")
    for words in ("# Model of `height`", "| ResTT |", "| boosting |", "| kind | category, 3:", "5 folds"):
        assert words in page


def test_an_existing_folder_is_replaced_only_when_asked(fitted, labelled, tmp_path):
    folder = fitted.save(tmp_path / "model")
    with pytest.raises(FileExistsError, match=r"output '.*model' is there already"):
        labelled.save(folder)
    assert load_table(folder).card.target == "height"
    labelled.save(folder, force=True)
    assert load_table(folder).card.target == "tall"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_folder_of_other_things_is_never_replaced(fitted, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(FileExistsError, match="other things in it"):
        fitted.save(tmp_path, force=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("force", [False, True])
def test_a_full_disk_leaves_nothing_half_written(force, fitted, labelled, tmp_path, monkeypatch):
    if force:
        fitted.save(tmp_path / "model")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("restt.workflow.folder.write_json_atomic", full)
    with pytest.raises(OSError, match="No space left"):
        labelled.save(tmp_path / "model", force=force)
    assert [path.name for path in tmp_path.iterdir()] == ["model"] * force
    if force:
        assert load_table(tmp_path / "model").card.target == "height"


def test_what_is_no_model_is_named(fitted, tmp_path):
    with pytest.raises(FileNotFoundError, match="which is not there"):
        load_table(tmp_path / "none")
    with pytest.raises(ValueError, match=r"has no model\.safetensors"):
        load_table(tmp_path)
    folder = fitted.save(tmp_path / "model")
    (folder / "card.json").write_text(json.dumps({"version": 99}))
    with pytest.raises(ValueError, match=r"card\.json is damaged: .*version 99"):
        load_table(folder)
    for damaged in ("{", "[" * 100_000):
        (folder / "card.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"card\.json is damaged"):
            load_table(folder)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="model must be a folder, got the file"):
        load_table(tmp_path / "file")


def test_names_with_a_bar_do_not_break_the_readmes_table():
    column = {"name": "a|b", "kind": "number", "missing": 0, "distinct": 2, "note": ""}
    assert "| a\\|b | number | 0 |  |" in readme(Card("regression", "y", columns=[column]))
