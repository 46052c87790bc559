"""Libraries of a wheel: which one is loaded, and what the build hook puts into the wheel."""

import importlib.util
from pathlib import Path

import pytest

from restt.chain.cpu import build, bundled
from tests.chain.cpu.compiled import needs_compiler

ROOT = Path(__file__).resolve().parents[3]
V3 = bundled.Level("v3", "-march=x86-64-v3", frozenset({"avx2"}))
V2 = bundled.Level("v2", "-march=x86-64-v2", frozenset({"ssse3"}))


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A line of C that no library was made of, an empty folder for libraries, and a processor of two levels."""
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "libraries")
    monkeypatch.setattr(bundled, "levels", lambda: (V3, V2))
    monkeypatch.setattr(bundled, "_features", lambda: frozenset({"ssse3", "avx2"}))
    bundled.FOLDER.mkdir()
    path = tmp_path / "short.c"
    path.write_text("long long bytes(void) { return sizeof(REAL); }\n")
    return path


def brought(source, level):
    path = bundled.FOLDER / bundled.file_name(source, "float", level)
    path.write_bytes(b"")
    return path


def test_the_best_level_that_the_processor_has(source, monkeypatch):
    assert bundled.find(source, "float") is None
    low = brought(source, V2)
    assert bundled.find(source, "float") == low
    high = brought(source, V3)
    assert bundled.find(source, "float") == high
    monkeypatch.setattr(bundled, "_features", lambda: frozenset({"ssse3"}))
    assert bundled.find(source, "float") == low
    assert bundled.find(source, "double") is None


@pytest.mark.parametrize("name", ["short.c", "beside.h"])
def test_libraries_of_another_source_are_not_taken(source, name):
    brought(source, V2)
    (source.parent / name).write_text("long long bytes(void) { return 1; }\n")
    assert bundled.find(source, "float") is None


@needs_compiler
def test_what_cannot_be_loaded_is_compiled(source, tmp_path, monkeypatch):
    brought(source, V3)
    monkeypatch.setattr(build, "_cache_folder", lambda: tmp_path / "cache")
    assert build._loaded.__wrapped__(source, "float").bytes() == 4


@needs_compiler
def test_a_library_of_the_wheel_is_loaded_without_a_compiler(source, tmp_path, monkeypatch):
    hook = built(tmp_path, monkeypatch, source)
    for name in hook:
        (bundled.FOLDER / Path(name).name).write_bytes(hook[name])
    monkeypatch.setattr(build, "compilers", list)
    assert build._loaded.__wrapped__(source, "double").bytes() == 8


@needs_compiler
def test_every_source_type_and_level_is_in_the_wheel(source, tmp_path, monkeypatch):
    names = built(tmp_path, monkeypatch, source)
    assert set(names) == {
        f"restt/chain/cpu/libraries/{bundled.file_name(source, 'double', level)}" for level in bundled.levels()
    }


def test_the_chain_is_compiled_for_both_types():
    found = {(path.name, name) for path, name in bundled.sources(ROOT / "src" / "restt")}
    assert {("sweep.c", "float"), ("sweep.c", "double"), ("pairs.c", "double"), ("products.c", "double")} <= found
    assert ("pairs.c", "float") not in found


@pytest.mark.parametrize(("version", "wanted"), [("standard", "0"), ("editable", "1")])
def test_by_default_and_for_a_clone_the_wheel_is_pure(monkeypatch, version, wanted):
    monkeypatch.setenv("RESTT_BUNDLE", wanted)
    data = {"force_include": {}, "pure_python": True}
    hook_class()(str(ROOT), {}, None, None, "", "wheel").initialize(version, data)
    assert data == {"force_include": {}, "pure_python": True}


def hook_class():
    pytest.importorskip("hatchling")
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module._loaded = lambda path: bundled
    return module.CustomBuildHook


def built(tmp_path, monkeypatch, source):
    """Name in the wheel -> content, of what the hook compiles of this one source, without tuning for any level."""
    monkeypatch.setenv("RESTT_BUNDLE", "1")
    monkeypatch.setenv("CC", " ".join(build.compilers()[0]))
    monkeypatch.setattr(bundled, "levels", lambda: (V3._replace(tuning="-O1"), V2._replace(tuning="-O1")))
    monkeypatch.setattr(bundled, "sources", lambda package: iter([(source, "double")]))
    data = {"force_include": {}, "pure_python": True}
    hook = hook_class()(str(ROOT), {}, None, None, "", "wheel")
    hook.initialize("standard", data)
    content = {name: Path(path).read_bytes() for path, name in data["force_include"].items()}
    assert not data["pure_python"]
    assert data["tag"].startswith("py3-none-")
    hook.finalize("standard", data, "")
    assert not any(Path(path).exists() for path in data["force_include"])
    return content
