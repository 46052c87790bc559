"""A training saved by an earlier version goes on: what is in a checkpoint is a contract."""

import shutil

import pytest
import torch

from restt.train import load_weights
from tests.train import old_checkpoint
from tests.train.problems import assert_same_bits, measured, weights


@pytest.fixture
def folder(tmp_path):
    copy = tmp_path / "checkpoint"
    shutil.copytree(old_checkpoint.FOLDER, copy)
    return copy


def test_an_old_checkpoint_goes_on_as_if_never_interrupted(folder):
    whole, records = old_checkpoint.stream(None)
    expected = []
    for record in records:
        expected.append(measured(record))
        if record.epoch == old_checkpoint.STOPPED_AFTER:
            halfway = weights(whole)
    resumed, records = old_checkpoint.stream(folder)
    found = []
    for record in records:
        found.append(measured(record))
        if record.epoch == old_checkpoint.STOPPED_AFTER:
            saved = weights(resumed)
    assert [record["epoch"] for record in found] == [record["epoch"] for record in expected]
    # Another processor may round the epochs before the checkpoint another way; float64 keeps that far below any fault.
    for name, value in whole.state_dict().items():
        assert torch.allclose(resumed.state_dict()[name], value, rtol=1e-9, atol=1e-12), name
    if all(torch.equal(saved[name], value) for name, value in halfway.items()):
        assert_same_bits(resumed, whole)
        assert found == expected


def test_the_best_weights_of_an_old_checkpoint_load(folder):
    module = old_checkpoint.fresh_module()
    before = weights(module)
    load_weights(module, folder)
    assert not torch.equal(module.chain, before["chain"])
