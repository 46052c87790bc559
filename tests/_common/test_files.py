import json
import os

import pytest

from restt._common.files import write_bytes_atomic, write_json_atomic


def test_json_is_readable_and_folders_are_made(tmp_path):
    path = write_json_atomic(tmp_path / "new" / "a.json", {"σ": [1, 2]})
    assert json.loads(path.read_text()) == {"σ": [1, 2]}
    assert "σ" in path.read_text()
    assert [entry.name for entry in path.parent.iterdir()] == ["a.json"]


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = write_bytes_atomic(tmp_path / "a.bin", b"old")

    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="disk full"):
        write_bytes_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_json_without_a_word_for_it_is_refused_before_the_old_file_is_touched(tmp_path):
    path = write_json_atomic(tmp_path / "a.json", 1)
    with pytest.raises(ValueError, match="JSON"):
        write_json_atomic(path, float("nan"))
    assert path.read_text() == "1\n"


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
def test_files_are_as_readable_as_any_other(tmp_path):
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert write_bytes_atomic(tmp_path / "a", b"").stat().st_mode == plain.stat().st_mode
