import ctypes
import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from restt.chain import cpu_build


@pytest.fixture(autouse=True)
def short_source(tmp_path, monkeypatch):
    """The building is tested here, not what is built: a line of C takes a tenth of the time."""
    source = tmp_path / "short.c"
    source.write_text("long long restt_chain_bytes(void) { return sizeof(REAL); }\n")
    monkeypatch.setattr(cpu_build, "_SOURCE", source)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of compiled code."""
    monkeypatch.setattr(cpu_build, "_cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def compiler():
    found = cpu_build._compilers()
    if cpu_build.problem(torch.float32) is not None:
        pytest.skip(f"nothing can be built here: {cpu_build.problem(torch.float32)}")
    return found[0]


def script(folder, name, body):
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return (str(path),)


needs_scripts = pytest.mark.skipif(os.name == "nt", reason="stands in for a compiler with a shell script")


def test_built_once_then_taken_from_the_cache(cache, compiler, monkeypatch):
    assert cpu_build._built(compiler, "float").restt_chain_bytes() > 0
    (built,) = cache.iterdir()
    monkeypatch.setattr(cpu_build, "_compile", None)
    assert cpu_build._built(compiler, "float")._name == str(built)


def test_two_that_build_at_once_both_succeed(cache, compiler):
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: cpu_build._built(compiler, "float"), range(2)))
    assert all(library.restt_chain_bytes() == found[0].restt_chain_bytes() for library in found)
    assert len(list(cache.iterdir())) == 1


def test_a_damaged_file_is_built_again(cache, compiler):
    cpu_build._built(compiler, "float")
    (built,) = cache.iterdir()
    built.unlink()  # not overwritten: this process still has it mapped
    built.write_bytes(b"not a library")
    assert cpu_build._built(compiler, "float").restt_chain_bytes() > 0


def test_without_a_writable_cache_it_is_built_for_this_process(tmp_path, compiler, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cpu_build, "_cache_folder", lambda: tmp_path / "file" / "compiled")
    assert cpu_build._built(compiler, "float").restt_chain_bytes() > 0


def test_without_a_home_it_is_built_for_this_process(compiler, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cpu_build, "_cache_folder", no_home)
    assert cpu_build._built(compiler, "float").restt_chain_bytes() > 0


@needs_scripts
def test_a_failing_compiler_is_named_with_what_it_said(cache, tmp_path, monkeypatch):
    failing = script(tmp_path, "broken-cc", "echo 'fatal: no headers' >&2; exit 1")
    monkeypatch.setattr(cpu_build, "_compilers", lambda: [failing])
    reason = cpu_build._loaded.__wrapped__(torch.float32)
    assert "broken-cc" in reason
    assert "fatal: no headers" in reason
    assert list(cache.iterdir()) == []


@needs_scripts
def test_a_compiler_that_makes_nothing_usable_is_passed_over(cache, tmp_path, compiler, monkeypatch):
    silent = script(tmp_path, "silent-cc", "exit 0")
    garbage = script(tmp_path, "garbage-cc", 'while [ "$1" != -o ]; do shift; done; echo nonsense > "$2"')
    monkeypatch.setattr(cpu_build, "_compilers", lambda: [silent, garbage, compiler])
    assert isinstance(cpu_build._loaded.__wrapped__(torch.float32), ctypes.CDLL)


def test_no_compiler_names_the_extra(monkeypatch):
    monkeypatch.setattr(cpu_build.shutil, "which", lambda name: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "restt[fast]" in cpu_build._loaded.__wrapped__(torch.float32)


def test_it_can_be_switched_off(monkeypatch):
    monkeypatch.setenv(cpu_build.DISABLE_VARIABLE, "1")
    assert cpu_build.DISABLE_VARIABLE in cpu_build.problem(torch.float32)


def test_another_processor_gets_another_build(compiler, monkeypatch):
    here = cpu_build._key(compiler)
    monkeypatch.setattr(cpu_build, "_processor", lambda: "another")
    assert cpu_build._key(compiler) != here
