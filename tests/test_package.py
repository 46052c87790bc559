import subprocess
import sys

import pytest

import restt

HEAVY = ("sklearn", "matplotlib", "triton", "typer", "rich", "pandas", "torch")


def test_import_is_light():
    code = f"import sys, restt; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_every_public_name_loads():
    assert sorted(restt.__all__) == dir(restt)
    for name in restt.__all__:
        assert getattr(restt, name) is not None


def test_unknown_name_is_an_attribute_error_that_helps():
    with pytest.raises(AttributeError, match=r"no attribute 'RestT'.*ResTT"):
        restt.RestT  # noqa: B018
