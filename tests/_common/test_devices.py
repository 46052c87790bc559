from __future__ import annotations

import pytest
import torch

from restt._common.devices import read_device


@pytest.fixture
def one_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)


@pytest.mark.parametrize("device", ["abacus", "meta", "xpu", "hpu", torch.device("meta"), None])
def test_kinds_of_devices_that_models_do_not_train_on_are_named(device):
    with pytest.raises(ValueError, match=r'device must be "auto", "cpu", "cuda", "cuda:N" or "mps", got .*(\w+)'):
        read_device(device, 1.0)


def test_a_gpu_beyond_the_last_is_named(one_gpu):
    for device in ("cuda", "cuda:0", torch.device("cuda", 0)):
        assert read_device(device, 1.0) == torch.device(device)
    for device in ("cuda:1", "cuda:7", torch.device("cuda", 7), "cuda:256"):
        with pytest.raises(ValueError, match=r"device is 'cuda:\d+', but torch finds 1 CUDA device$"):
            read_device(device, 1.0)


@pytest.mark.parametrize("there", [False, True])
def test_a_mac_trains_on_mps_where_torch_finds_it(monkeypatch, there):
    monkeypatch.setattr("torch.backends.mps.is_available", lambda: there)
    if there:
        assert read_device("mps", 1.0).type == "mps"
    else:
        with pytest.raises(ValueError, match="device is 'mps', but torch finds no MPS device"):
            read_device("mps", 1.0)


def test_auto_takes_a_gpu_for_large_work_only(one_gpu):
    assert read_device("auto", 1.0) == torch.device("cpu")
    assert read_device("auto", 1e12) == torch.device("cuda")
