from __future__ import annotations

from pathlib import Path

import pytest

from restt.data import folders


def test_order_of_data_homes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RESTT_DATA_HOME", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "system"))
    monkeypatch.setattr(folders.sys, "platform", "linux")
    found = folders.search_folders(tmp_path / "given")
    assert found[:3] == (tmp_path / "given", tmp_path / "named", tmp_path / "cache/restt")
    assert found[-1] == tmp_path / "system/restt"
    monkeypatch.delenv("RESTT_DATA_HOME")
    assert folders.search_folders()[0] == tmp_path / "cache/restt"


def test_user_cache_by_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    places = {"linux": ".cache/restt", "darwin": "Library/Caches/restt", "win32": "AppData/Local/restt/Cache"}
    for platform, place in places.items():
        monkeypatch.setattr(folders.sys, "platform", platform)
        assert folders.user_cache() == tmp_path / place


def test_relative_and_home_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert folders.search_folders("there")[0] == tmp_path / "there"
    assert folders.search_folders("~/there")[0] == tmp_path / "there"
    with pytest.raises(TypeError, match="data_home must be a path, got 3"):
        folders.search_folders(3)
