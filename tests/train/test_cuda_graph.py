"""The CUDA graphs: their bookkeeping with a recording that simply runs again, and on a GPU the real thing."""

import pytest
import torch
from torch.nn.functional import mse_loss

import restt
from restt.train import Penalty, TrainConfig, cuda_graph, train, training
from restt.train.cuda_graph import GraphedStep


class RecordedStep(cuda_graph.GraphedTrainStep):
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
    class Refusing(cuda_graph.GraphedTrainStep):
        @staticmethod
        def capture(work):
            raise RuntimeError("operation not permitted when stream is capturing")

    config = TrainConfig(epochs=3, batch_size=16, seed=3)
    _, expected = weights_after(config)
    monkeypatch.setattr(training, "TrainStep", Refusing)
    _, found = weights_after(config)
    assert all(torch.equal(found[role], value) for role, value in expected.items())


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a CUDA device")


def adam(module, **options):
    return torch.optim.Adam(module.parameters(), lr=1e-2, **options)


def test_cpu_is_refused():
    module = restt.ResTT(4, 2, 3, 1)
    with pytest.raises(ValueError, match="needs module and batch on a CUDA device, got cpu"):
        GraphedStep(module, mse_loss, adam(module), torch.rand(5, 4, 2), torch.rand(5, 1))


@on_gpu
def test_optimizer_must_be_capturable():
    module = restt.ResTT(4, 2, 3, 1, device="cuda")
    with pytest.raises(ValueError, match="capturable=True"):
        GraphedStep(module, mse_loss, adam(module), torch.rand(5, 4, 2).cuda(), torch.rand(5, 1).cuda())


@on_gpu
def test_replay_equals_plain_steps_from_where_training_was():
    batches = [(torch.rand(16, 6, 2).cuda(), torch.rand(16, 3).cuda()) for _ in range(4)]

    def plain_step(module, optimizer, x, target):
        optimizer.zero_grad(set_to_none=True)
        loss = mse_loss(module(x), target)
        loss.backward()
        optimizer.step()
        return loss.item()

    losses = {}
    for graphed in (False, True):
        module = restt.ResTT(6, 2, 5, 3, device="cuda")
        module.reset_parameters(seed=0)
        optimizer = adam(module, fused=True, capturable=True)
        losses[graphed] = [plain_step(module, optimizer, *batches[0])]
        if graphed:
            step = GraphedStep(module, mse_loss, optimizer, *batches[0])
            losses[graphed] += [step(*batch).item() for batch in batches[1:]]
        else:
            losses[graphed] += [plain_step(module, optimizer, *batch) for batch in batches[1:]]
    assert losses[True] == losses[False]


@on_gpu
def test_other_shapes_are_refused():
    module = restt.ResTT(4, 2, 3, 1, device="cuda")
    x, target = torch.rand(5, 4, 2).cuda(), torch.rand(5, 1).cuda()
    step = GraphedStep(module, mse_loss, adam(module, fused=True, capturable=True), x, target)
    with pytest.raises(ValueError, match=r"x must have the captured shape \(5, 4, 2\)"):
        step(x[:3], target)
    with pytest.raises(ValueError, match=r"captured with 1 target\(s\), got 0"):
        step(x)
