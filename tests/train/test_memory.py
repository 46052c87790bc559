import pytest
import torch

import restt
from restt.train.memory import bytes_per_row, rows_in_budget


@pytest.mark.parametrize("runs", [None, 3])
def test_the_estimate_covers_what_a_step_keeps(runs):
    module = restt.ResTT(sites=30, feature_dim=2, bond_dim=16, outputs=2, runs=runs)
    batch, kept = 64, {}

    def note(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    weights = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    with restt.chain.backend("eager"), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        module(torch.rand(batch, 30, 2))
    per_row = sum(size for place, size in kept.items() if place not in weights) / batch
    assert per_row < bytes_per_row(module) < 6 * per_row


def test_a_budget_below_one_row_is_named():
    module = restt.ResTT(sites=30, feature_dim=2, bond_dim=16, outputs=2)
    assert rows_in_budget(module, 10 * bytes_per_row(module)) == 10
    with pytest.raises(ValueError, match=rf"memory_budget of 100 bytes is below the {bytes_per_row(module)} bytes"):
        rows_in_budget(module, 100)


def test_other_modules_are_told_to_use_micro_batch():
    with pytest.raises(ValueError, match="for Linear use micro_batch"):
        rows_in_budget(torch.nn.Linear(2, 2), 10**6)
