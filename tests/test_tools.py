"""Every tool can be imported with the library as it is, and something cites it."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = sorted(path.stem for path in ROOT.glob("tools/*.py"))


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_can_be_imported(tool, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    before = set(sys.modules)
    module = importlib.import_module(tool)
    assert module.__doc__
    assert hasattr(module, "main") or tool in ("common", "other_tables", "fresh_tables")
    for name in set(sys.modules) - before:  # names such as "common" are the tools' own
        if name in TOOLS:
            del sys.modules[name]


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_are_cited(tool):
    places = [ROOT / "Makefile", *ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("tools/*.py")]
    texts = [path.read_text(encoding="utf-8") for path in places if path.stem not in (tool, "CHANGELOG")]
    imported = any(f"from {tool} import" in text for text in texts)
    assert imported or any(f"{tool}.py" in text for text in texts), f"nothing names tools/{tool}.py"
