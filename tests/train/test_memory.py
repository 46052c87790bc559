from dataclasses import replace

import pytest
import torch

import restt
from restt.train import Penalty, TrainConfig
from restt.train.memory import bytes_per_row, rows_in_budget, training_bytes, weight_copies
from restt.train.state import TrainState


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


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ema": 0.9},
        {"max_failures": None},
        {"keep": "best"},
        {"ema": 0.9, "keep": "best"},
        {"penalty": Penalty(chain=1.0, towards="start")},
    ],
)
@pytest.mark.parametrize("saved", [False, True])
def test_the_copies_of_the_weights_are_those_a_training_holds(settings, saved):
    module = restt.ResTT(sites=6, feature_dim=2, bond_dim=4, outputs=2, runs=2)
    config = TrainConfig(**settings)
    state = TrainState(module, config, saved)
    groups = [dict(module.named_parameters()), state.tensors, state._epoch_tensors, state.best or {}, state.start or {}]
    if state.guard is not None:
        groups += [state.guard.newest, state.guard.proven]
    held = sum(value.numel() for group in groups for value in group.values())
    own = sum(parameter.numel() for parameter in module.parameters())
    assert held + own == weight_copies(config, saved) * own  # and the gradients


def test_a_training_needs_at_least_its_parts():
    sizes = {"sites": 20, "width": 3, "bond_dim": 8, "outputs": 2, "runs": 4, "itemsize": 4}
    module = restt.ResTT(sites=20, feature_dim=3, bond_dim=8, outputs=2, runs=4)
    config = TrainConfig(batch_size=64)
    own = 4 * sum(parameter.numel() for parameter in module.parameters())
    need = training_bytes(config, rows=500, **sizes)
    assert need >= 11 * own + 500 * 20 * 3 * 4 + 64 * bytes_per_row(module)
    assert training_bytes(replace(config, micro_batch=8), rows=500, **sizes) == need - 56 * bytes_per_row(module)
