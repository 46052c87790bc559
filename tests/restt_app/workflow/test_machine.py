import json

import restt
from restt_app.workflow import info
from restt_app.workflow.shown import info_lines


def test_everything_is_said_with_its_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = info()
    json.dumps(found, allow_nan=False)
    assert found["versions"]["restt"] == restt.__version__
    backend = found["backends"][0]
    assert {backend["backend"], *backend["not"]} == set(restt.chain.BACKENDS)
    assert all(backend["not"].values())
    assert set(found["data"]["sets"]) == set(restt.data.available())
    assert found["extras"]["app"] == []
    lines = "\n".join(info_lines({**found, "extras": {"app": ["pyarrow"]}}))
    assert f"  backend   {backend['backend']} for float64: {backend['why']}" in lines
    assert "app: lacks pyarrow: pip install 'restt[app]'" in lines
    assert str(tmp_path) in lines
