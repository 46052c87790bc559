import errno
import json
import os
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from markdown_it import MarkdownIt

from restt_app.workflow import fit_table, load_table
from restt_app.workflow.card import Card, readme


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

    monkeypatch.setattr("restt_app.workflow.card.write_json_atomic", full)
    with pytest.raises(OSError, match="No space left"):
        labelled.save(tmp_path / "model", force=force)
    assert [path.name for path in tmp_path.iterdir()] == ["model"] * force
    if force:
        assert load_table(tmp_path / "model").card.target == "height"


def test_other_files_of_the_folder_stay(fitted, labelled, tmp_path):
    folder = fitted.save(tmp_path / "model")
    (folder / "thesis.txt").write_text("years of work")
    (folder / "notes").mkdir()
    (folder / "README.md").unlink()
    labelled.save(folder, force=True)
    assert load_table(folder).card.target == "tall"
    assert "# Model of `tall`" in (folder / "README.md").read_text(encoding="utf-8")
    assert (folder / "thesis.txt").read_text() == "years of work"
    assert sorted(path.name for path in folder.iterdir()) == [
        *("README.md", "card.json", "model.safetensors", "notes", "thesis.txt")
    ]


@pytest.mark.parametrize("moves", range(4))
def test_a_process_that_dies_leaves_the_old_model_the_new_one_or_an_error(
    moves, fitted, labelled, tmp_path, monkeypatch
):
    folder = fitted.save(tmp_path / "model")
    done, move = [], os.replace

    def until_dead(*paths):
        if str(paths[1]).startswith(str(folder)):
            done.append(paths)
            if len(done) > moves:
                raise InterruptedError("killed")
        move(*paths)

    monkeypatch.setattr("os.replace", until_dead)
    if moves < 3:
        with pytest.raises(InterruptedError):
            labelled.save(folder, force=True)
    else:
        labelled.save(folder, force=True)
    monkeypatch.undo()
    if moves == 2:
        with pytest.raises(ValueError, match=r"card\.json describes another model\.safetensors than the one beside it"):
            load_table(folder)
    else:
        assert load_table(folder).card == (fitted.card if moves < 2 else labelled.card)
    labelled.save(folder, force=True)
    assert load_table(folder).card == labelled.card


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


NASTY = [
    '<script>alert("x")</script>',
    "`</code><img src=x onerror=alert(1)>`",
    "[link](https://a.example) *b*",
    "a\nb\r\n\n# heading\n<b>",
    "&lt;b&gt; \\[x](y) \\`",
]


def rendered(page):
    """Tags and text of a page of Markdown."""
    tags, texts = set(), []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, _: tags.add(tag)
    reader.handle_data = texts.append
    reader.feed(MarkdownIt("commonmark").enable("table").render(page))
    return tags, "".join(texts)


@pytest.mark.parametrize("text", NASTY)
def test_the_readme_shows_names_and_values_as_text(text):
    column = {"name": text, "kind": "category", "missing": 0, "distinct": 1, "note": text, "levels": [text]}
    source = {"file": text, "rows": 3, "columns": 2}
    page = readme(Card("regression", text, source=source, columns=[column], notes=[text], settings={text: text}))
    tags, shown = rendered(page)
    assert tags <= {*("h1", "h2", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "pre", "code")}
    assert shown.count(" ".join(text.split())) == 8  # target, file, name, level, notes, settings
    assert "<script" not in page


def test_a_hostile_table_makes_a_harmless_folder(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({NASTY[0]: rng.choice(NASTY[1:3], 40), "b": rng.normal(size=40), "y": rng.normal(size=40)})
    page = (fit_table(frame, "y", effort="quick").save(tmp_path / "model") / "README.md").read_text()
    tags, shown = rendered(page)
    assert not tags & {"script", "img", "a"}
    assert all(text in shown for text in NASTY[:3])
