"""What is compiled ahead of a first fit."""

from __future__ import annotations

import pytest

import restt
from restt.chain.cpu import build


def test_every_c_file_is_built(monkeypatch):
    built = []
    monkeypatch.setattr(build, "library", lambda source: built.append(source.name))
    monkeypatch.setattr(build, "problem", lambda dtype: built.append(str(dtype)))
    assert list(restt.warm_up("cpu")) == ["C code"]
    assert {"torch.float32", "torch.float64", "products.c", "pairs.c", "columns.c"} <= set(built)
    assert "sweep.c" not in built  # it is compiled once for each type


def test_bad_precisions_are_named():
    with pytest.raises(ValueError, match="precisions must be one of"):
        restt.warm_up("cpu", precisions=("half",))
