"""The captured step's bookkeeping, with a recording that simply runs again in place of a CUDA graph."""

import pytest
import torch

import restt
from restt.train import Penalty, TrainConfig, captured, train, training


class RecordedStep(captured.CapturedStep):
    captures = 0

    @staticmethod
    def capture(work):
        RecordedStep.captures += 1
        return work


@pytest.fixture
def always_captured(monkeypatch):
    monkeypatch.setattr(training, "TrainStep", RecordedStep)
    RecordedStep.captures = 0


def weights_after(config, runs=3, **options):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(70, 5, 2, generator=generator)
    y = torch.randint(0, 3, (70,), generator=generator)
    module = restt.ResTT(5, 2, 4, 3, runs=runs)
    module.reset_parameters(seed=1)
    records = list(train(module, x, y, config=config, **options))
    return records, {name: value.detach().clone() for name, value in module.named_parameters()}


CONFIGS = {
    "cosine": {"schedule": "cosine", "clip_norm": 0.5, "penalty": Penalty(chain=1e-2)},
    "own rates": {"lr": (1e-3, 1e-2, 1e-2), "ema": 0.9},
    "own lengths": {"epochs": (2, 4, 3), "weight_decay": 1e-3, "optimizer": "adamw"},
}


@pytest.mark.parametrize("name", CONFIGS)
def test_replayed_steps_are_the_ordinary_ones(name, monkeypatch):
    options = {"epochs": 4, "batch_size": 16, "seed": 3, **CONFIGS[name]}
    expected_records, expected = weights_after(TrainConfig(**options))
    monkeypatch.setattr(training, "TrainStep", RecordedStep)
    RecordedStep.captures = 0
    records, found = weights_after(TrainConfig(**options))
    assert RecordedStep.captures >= 1
    for role, value in expected.items():
        torch.testing.assert_close(found[role], value, rtol=1e-6, atol=1e-7)
    for got, want in zip(records, expected_records, strict=True):
        assert got.train_loss == pytest.approx(want.train_loss, rel=1e-6, nan_ok=True)


@pytest.mark.usefixtures("always_captured")
def test_uneven_runs_and_weights_are_replayed_too():
    subsets = [torch.arange(70), torch.arange(40), torch.arange(20, 65)]
    config = TrainConfig(epochs=2, batch_size=8, seed=0)
    _, found = weights_after(config, subset=subsets, sample_weight=torch.linspace(0.1, 1, 70))
    assert RecordedStep.captures >= 1
    assert all(value.isfinite().all() for value in found.values())


def test_a_module_that_cannot_be_captured_trains_anyway(monkeypatch):
    class Refusing(captured.CapturedStep):
        @staticmethod
        def capture(work):
            raise RuntimeError("operation not permitted when stream is capturing")

    config = TrainConfig(epochs=3, batch_size=16, seed=3)
    _, expected = weights_after(config)
    monkeypatch.setattr(training, "TrainStep", Refusing)
    _, found = weights_after(config)
    assert all(torch.equal(found[role], value) for role, value in expected.items())
