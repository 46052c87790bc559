import json

import restt
from restt_app.workflow import info, machine


def test_everything_is_said_with_its_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(machine.EXTRAS, "tune", ("no_such_package",))
    found = info()
    json.dumps(found, allow_nan=False)
    assert found["versions"]["restt"] == restt.__version__
    assert restt.chain.explain(sites=20, feature_dim=9, dtype=__import__("torch").float64) in found["devices"]["cpu"]
    assert set(found["data"]) == set(restt.data.available())
    assert found["extras"]["app"] == "installed"
    assert found["extras"]["tune"] == "lacks no_such_package: pip install 'restt[tune]'"
    assert str(tmp_path) in found["cache"]
