"""Downloads against a server on this machine: the right file arrives whole, anything else leaves no trace."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from restt.data import loading
from restt.data.catalog import RemoteFile
from restt.data.loading import locate, read_files, search_folders

CONTENT = bytes(range(256)) * 4000


class Handler(BaseHTTPRequestHandler):
    pages: dict[str, bytes] = {}  # noqa: RUF012

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        body = self.pages.get(name)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        # "cut" promises the whole file and hangs up half way, as a dropped connection does.
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if name == "cut" else body)

    def log_message(self, *arguments: object) -> None:
        """Keep test output quiet."""


@pytest.fixture
def server() -> Iterator[str]:
    Handler.pages = {
        "good": CONTENT,
        "wrong": CONTENT[::-1],
        "long": CONTENT + b"x",
        "short": CONTENT[:-1],
        "cut": CONTENT,
    }
    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}/"
    running.shutdown()
    thread.join()
    running.server_close()


def remote(*mirrors: str) -> RemoteFile:
    return RemoteFile("set/table.bin", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), mirrors)


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_good_file_arrives(server: str, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int]] = []
    [(path, content)] = read_files([remote(server + "good")], [tmp_path], progress=lambda *step: seen.append(step))
    assert (path, content) == (tmp_path / "set/table.bin", CONTENT)
    assert path.read_bytes() == CONTENT
    assert files_in(tmp_path) == ["set/table.bin"]
    assert seen[-1] == ("set/table.bin", len(CONTENT), len(CONTENT))
    assert len(seen) > 1


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ("wrong", "SHA-256 is"),
        ("long", r"\(1024001 bytes\)"),
        ("short", r"\(1023999 bytes\)"),
        ("cut", r"\(512000 bytes\)|IncompleteRead"),
        ("absent", "404"),
    ],
)
def test_anything_else_leaves_no_file(server: str, tmp_path: Path, page: str, reason: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"Tried {server}{page}: .*{reason}"):
        read_files([remote(server + page)], [tmp_path])
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("page", ["wrong", "short", "cut", "absent"])
def test_a_failed_download_never_replaces_a_file(server: str, tmp_path: Path, page: str) -> None:
    target = tmp_path / "set/table.bin"
    target.parent.mkdir()
    target.write_bytes(b"what was there")
    with pytest.raises(FileNotFoundError):
        read_files([remote(server + page)], [tmp_path])
    assert target.read_bytes() == b"what was there"
    assert files_in(tmp_path) == ["set/table.bin"]


def test_the_next_mirror_is_tried(server: str, tmp_path: Path) -> None:
    [(path, _)] = read_files([remote(server + "absent", server + "wrong", server + "good")], [tmp_path])
    assert path.read_bytes() == CONTENT


def test_an_interrupted_download_leaves_no_file(server: str, tmp_path: Path) -> None:
    def interrupt(*step: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_files([remote(server + "good")], [tmp_path], progress=interrupt)
    assert files_in(tmp_path) == []


def test_the_name_is_taken_only_after_the_bytes_are_on_disk(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, steps = tmp_path / "set/table.bin", []
    sync, replace = loading.os.fsync, loading.os.replace

    def note_sync(handle: int) -> None:
        steps.append(("sync", target.exists()))
        sync(handle)

    def note_replace(source: str, place: Path) -> None:
        steps.append(("replace", Path(source).read_bytes() == CONTENT))
        assert Path(source).parent == place.parent
        replace(source, place)

    monkeypatch.setattr(loading.os, "fsync", note_sync)
    monkeypatch.setattr(loading.os, "replace", note_replace)
    read_files([remote(server + "good")], [tmp_path])
    assert steps[:2] == [("sync", False), ("replace", True)]


def test_a_corrupt_file_is_replaced_by_a_good_one(server: str, tmp_path: Path) -> None:
    target = tmp_path / "set/table.bin"
    target.parent.mkdir()
    target.write_bytes(CONTENT[:-1])
    [(path, content)] = read_files([remote(server + "good")], [tmp_path])
    assert (path, content) == (target, CONTENT)
    assert target.read_bytes() == CONTENT


def test_folders_are_searched_in_order(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in "abc")
    file = remote()
    for folder, content in ((first, b"corrupt"), (second, CONTENT), (third, CONTENT)):
        (folder / "set").mkdir(parents=True)
        (folder / "set/table.bin").write_bytes(content)
    [(path, _)] = read_files([file], [first, second, third])
    assert path == second / "set/table.bin"
    assert (first / "set/table.bin").read_bytes() == b"corrupt"
    assert locate([file], [first, third]) == third
    assert locate([file], [first]) is None


def test_the_error_says_what_to_put_where(tmp_path: Path) -> None:
    broken = tmp_path / "set/table.bin"
    broken.parent.mkdir()
    broken.write_bytes(b"corrupt")
    file = remote("http://example.invalid/table.bin")
    with pytest.raises(FileNotFoundError) as caught:
        read_files([file], [tmp_path, tmp_path / "other"])
    message = str(caught.value)
    for part in (str(broken), file.sha256, "RESTT_DATA_HOME", "http://example.invalid/table.bin", "1024000 bytes"):
        assert part in message
    assert "could not be downloaded" in message
    assert "the network is off in tests" in message
    assert f"{broken}: SHA-256 is {hashlib.sha256(b'corrupt').hexdigest()}" in message
    with pytest.raises(FileNotFoundError, match="downloading was not asked for"):
        read_files([file], [tmp_path], may_download=False)


@pytest.mark.skipif(not hasattr(loading.os, "geteuid"), reason="needs POSIX folders")
def test_a_folder_that_cannot_be_made_is_named(server: str, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(FileNotFoundError, match=r"Not a directory|File exists"):
        read_files([remote(server + "good")], [blocked])


def test_order_of_data_homes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RESTT_DATA_HOME", str(tmp_path / "named"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "system"))
    monkeypatch.setattr(loading.sys, "platform", "linux")
    found = search_folders(tmp_path / "given")
    assert found[:3] == (tmp_path / "given", tmp_path / "named", tmp_path / "cache/restt")
    assert found[-1] == tmp_path / "system/restt"
    monkeypatch.delenv("RESTT_DATA_HOME")
    assert search_folders()[0] == tmp_path / "cache/restt"


def test_user_cache_by_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    places = {"linux": ".cache/restt", "darwin": "Library/Caches/restt", "win32": "AppData/Local/restt/Cache"}
    for platform, place in places.items():
        monkeypatch.setattr(loading.sys, "platform", platform)
        assert loading.user_cache() == tmp_path / place


def test_relative_and_home_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert search_folders("there")[0] == tmp_path / "there"
    assert search_folders("~/there")[0] == tmp_path / "there"
    with pytest.raises(TypeError, match="data_home must be a path, got 3"):
        search_folders(3)
