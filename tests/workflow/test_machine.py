import json

import restt
from restt.workflow import info
from restt.workflow.shown import info_lines


def test_everything_is_said_with_its_reason(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = info()
    json.dumps(found, allow_nan=False)
    assert found["versions"]["restt"] == restt.__version__
    backend = found["backends"][0]
    assert {backend["backend"], *backend["not"]} == set(restt.chain.BACKENDS)
    assert all(backend["not"].values())
    assert set(found["data"]["sets"]) == set(restt.data.available())
    assert found["extras"]["table"] == []
    lines = "\n".join(info_lines({**found, "extras": {"table": ["pyarrow"]}}))
    assert f"  backend   {backend['backend']} for float64: {backend['why']}" in lines
    assert "table: lacks pyarrow: pip install 'restt[table]'" in lines
    assert str(tmp_path) in lines
