from __future__ import annotations

import pytest
import torch

import restt
from restt.chain.precision import current_precision


@pytest.fixture(autouse=True)
def torch_setting():
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("setting", "expected"), [("highest", "float32"), ("high", "tf32"), ("medium", "tf32")])
def test_the_default_follows_torch(setting, expected):
    torch.set_float32_matmul_precision(setting)
    assert current_precision() == expected


def test_the_default_of_a_fresh_process_is_full_float32():
    assert torch.get_float32_matmul_precision() == "highest"
    assert current_precision() == "float32"


def test_an_older_torch_has_one_setting_for_all_devices(monkeypatch):
    monkeypatch.setattr("torch.backends.cuda.matmul", object())
    for setting, expected in (("highest", "float32"), ("high", "tf32"), ("medium", "tf32")):
        torch.set_float32_matmul_precision(setting)
        assert current_precision() == expected


def test_what_is_asked_for_counts_and_auto_gives_the_choice_back():
    torch.set_float32_matmul_precision("high")
    with restt.chain.precision("float32"):
        assert current_precision() == "float32"
        with restt.chain.precision("auto"):
            assert current_precision() == "tf32"
    assert current_precision() == "tf32"


def test_unknown_precision():
    with pytest.raises(ValueError, match="precision must be one of"), restt.chain.precision("fp8"):
        pass
