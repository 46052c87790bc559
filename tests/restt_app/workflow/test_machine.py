import json

import torch

import restt
from restt_app.workflow import info, machine


def test_everything_is_said_with_its_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(machine.EXTRAS, "tune", ("no_such_package",))
    found = info()
    json.dumps(found, allow_nan=False)
    assert found["versions"]["restt"] == restt.__version__
    module = restt.ResTT(20, 9, 20, 1, dtype=torch.float64)
    assert restt.chain.explain(module, torch.zeros(1, 20, 9, dtype=torch.float64)) in found["devices"]["cpu"]
    assert set(found["data"]) == set(restt.data.available())
    assert found["extras"]["app"] == "installed"
    assert found["extras"]["tune"] == "lacks no_such_package: pip install 'restt[tune]'"
    assert str(tmp_path) in found["cache"]
