import ctypes
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from restt.chain.cpu import build


@pytest.fixture(autouse=True)
def short_source(tmp_path, monkeypatch):
    """The building is tested here, not what is built: a line of C takes a tenth of the time."""
    source = tmp_path / "short.c"
    source.write_text("long long restt_chain_bytes(void) { return sizeof(REAL); }\n")
    monkeypatch.setattr(build, "SOURCE", source)


@pytest.fixture(autouse=True)
def nothing_warned_yet():
    build._warn_once.cache_clear()
    yield
    build._warn_once.cache_clear()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of compiled code."""
    monkeypatch.setattr(build, "_cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def compiler():
    found = build.compilers()
    if not found:
        pytest.skip("no C compiler was found")
    return found[0]


def script(folder, name, body):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return (str(path),)


needs_scripts = pytest.mark.skipif(os.name == "nt", reason="stands in for a compiler with a shell script")


def test_built_once_then_taken_from_the_cache(cache, compiler, monkeypatch):
    assert build._built(compiler, build.SOURCE, "float").restt_chain_bytes() > 0
    (built,) = cache.iterdir()
    monkeypatch.setattr(build, "_compile", None)
    assert build._built(compiler, build.SOURCE, "float")._name == str(built)


def test_two_that_build_at_once_both_succeed(cache, compiler):
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: build._built(compiler, build.SOURCE, "float"), range(2)))
    assert all(library.restt_chain_bytes() == found[0].restt_chain_bytes() for library in found)
    assert len(list(cache.iterdir())) == 1


def damage(path, how):
    content = bytearray(path.read_bytes())
    path.unlink()  # not overwritten: this process may still have it mapped
    if how == "flipped":
        content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content[: len(content) // 2] if how == "truncated" else content))


@pytest.mark.parametrize("how", ["truncated", "flipped"])
def test_a_damaged_file_is_never_loaded_but_built_again(cache, compiler, monkeypatch, how):
    build._built(compiler, build.SOURCE, "float")
    (built,) = cache.iterdir()
    whole = built.read_bytes()
    damage(built, how)
    loaded, real = [], ctypes.CDLL

    def noted(path):
        loaded.append(Path(path).read_bytes())
        return real(path)

    monkeypatch.setattr(build.ctypes, "CDLL", noted)
    assert build._built(compiler, build.SOURCE, "float").restt_chain_bytes() > 0
    assert loaded == [whole]


@pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX's")
class TestOnlyFromThisUser:
    KEPT = r"cannot be kept in the user's cache \(.*{reason}.*plain torch would be 2 to 8 times slower"

    def expect_private_build(self, compiler, cache, reason):
        with pytest.warns(RuntimeWarning, match=self.KEPT.format(reason=reason)):
            library = build._built(compiler, build.SOURCE, "float")
        assert library.restt_chain_bytes() > 0
        assert not library._name.startswith(str(cache))

    @pytest.mark.parametrize("mode", [0o770, 0o777, 0o702])
    def test_a_folder_that_others_can_write(self, cache, compiler, mode):
        build._built(compiler, build.SOURCE, "float")
        cache.chmod(mode)
        self.expect_private_build(compiler, cache, "can be written by other users")

    def test_a_file_that_others_can_write(self, cache, compiler):
        build._built(compiler, build.SOURCE, "float")
        (built,) = cache.iterdir()
        built.chmod(0o766)
        self.expect_private_build(compiler, cache, "can be written by other users")

    def test_another_users_folder(self, cache, compiler, monkeypatch):
        build._built(compiler, build.SOURCE, "float")
        if os.getuid() == 0:
            os.chown(cache, 12345, -1)
        else:
            monkeypatch.setattr(os, "getuid", lambda: cache.stat().st_uid + 1)
        self.expect_private_build(compiler, cache, "belongs to another user")

    def test_what_is_built_is_writable_by_the_user_alone_whatever_the_umask(self, cache, compiler):
        before = os.umask(0)
        try:
            build._built(compiler, build.SOURCE, "float")
        finally:
            os.umask(before)
        for path in (cache, *cache.iterdir()):
            assert path.stat().st_mode & 0o022 == 0

    @pytest.mark.skipif(sys.platform == "darwin", reason="XDG_CACHE_HOME is not read there")
    def test_a_relative_cache_path_is_refused(self, tmp_path, compiler, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_CACHE_HOME", "here")
        self.expect_private_build(compiler, tmp_path, "XDG_CACHE_HOME must be an absolute path, got 'here'")
        assert not (tmp_path / "here").exists()

    def test_an_unwritable_cache(self, tmp_path, compiler, monkeypatch):
        (tmp_path / "file").write_text("")
        monkeypatch.setattr(build, "_cache_folder", lambda: tmp_path / "file" / "compiled")
        self.expect_private_build(compiler, tmp_path / "file", "Not a directory")

    def test_no_home(self, tmp_path, compiler, monkeypatch):
        def no_home():
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(build, "_cache_folder", no_home)
        self.expect_private_build(compiler, tmp_path / "home", "Could not determine home directory")


@needs_scripts
def test_a_full_cache_disk_falls_back_to_a_temporary_folder(cache, tmp_path, compiler):
    full = f"""case "$*" in *{cache}*) echo 'error writing output: No space left on device' >&2; exit 1;; esac"""
    limited = script(tmp_path, "cc-on-a-full-disk", f'{full}; exec {" ".join(compiler)} "$@"')
    with pytest.warns(RuntimeWarning, match=r"No space left on device.*temporary folder.*2 to 8 times slower"):
        library = build._built(limited, build.SOURCE, "float")
    assert library.restt_chain_bytes() > 0
    assert list(cache.iterdir()) == []


@needs_scripts
def test_a_failing_compiler_is_named_with_what_it_said(cache, tmp_path, monkeypatch):
    failing = script(tmp_path, "broken-cc", "echo 'fatal: no headers' >&2; exit 1")
    monkeypatch.setattr(build, "compilers", lambda: [failing])
    with pytest.warns(RuntimeWarning, match=r"did not compile here.*2 to 8 times slower: .*fatal: no headers") as said:
        reason = build._loaded.__wrapped__(build.SOURCE, "float")
    assert len(said) == 1
    assert build._loaded.__wrapped__(build.SOURCE, "float") == reason  # and would raise, were it said twice
    assert "broken-cc" in reason
    assert "fatal: no headers" in reason
    assert list(cache.iterdir()) == []


@needs_scripts
def test_a_compiler_that_makes_nothing_usable_is_passed_over(cache, tmp_path, compiler, monkeypatch):
    silent = script(tmp_path, "silent-cc", "exit 0")
    garbage = script(tmp_path, "garbage-cc", 'while [ "$1" != -o ]; do shift; done; echo nonsense > "$2"')
    monkeypatch.setattr(build, "compilers", lambda: [silent, garbage, compiler])
    assert isinstance(build._loaded.__wrapped__(build.SOURCE, "float"), ctypes.CDLL)


def test_no_compiler_names_the_extra_and_warns_nobody(monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda name, path: None)
    monkeypatch.setattr(build, "_zig", lambda: None)
    assert "restt[fast]" in build._loaded.__wrapped__(build.SOURCE, "float")


@needs_scripts
def test_nothing_in_the_working_folder_is_run(tmp_path, monkeypatch):
    for name in ("cc", "gcc", "clang"):
        script(tmp_path, name, "exit 1")
    (tmp_path / "ziglang.py").write_text("raise SystemExit('code of the working folder was run')")
    (tmp_path / "ziglang").mkdir()
    script(tmp_path / "ziglang", "zig", "exit 1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    for path in ("", ".", f".{os.pathsep}", str(tmp_path.relative_to(tmp_path.parent))):
        monkeypatch.setenv("PATH", path)
        monkeypatch.setenv("CC", "./cc")
        for compiler in build.compilers():
            assert os.path.isabs(compiler[0])
            assert not compiler[0].startswith(str(tmp_path))


def test_the_compiler_of_the_extra_builds(cache):
    zig = build._zig()
    if zig is None:
        pytest.skip("the extra is not installed: pip install restt[fast]")
    assert build._built((str(zig), "cc"), build.SOURCE, "float").restt_chain_bytes() == 4


def test_another_source_is_built_in_float64(cache, compiler, tmp_path):
    other = tmp_path / "other" / "six.c"
    other.parent.mkdir()
    other.write_text("long long six(void) { return 6 * sizeof(REAL); }\n")
    assert build.library(other).six() == 48
    assert [path.name.split("-")[:2] for path in cache.iterdir()] == [["six", "double"]]


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv(build.DISABLE_VARIABLE, "1")
    assert build.DISABLE_VARIABLE in build.problem(torch.float32)
    assert build.library(build.SOURCE) is None


def test_another_processor_gets_another_build(compiler, monkeypatch):
    here = build._key(compiler, build.SOURCE)
    monkeypatch.setattr(build, "_processor", lambda: "another")
    assert build._key(compiler, build.SOURCE) != here
