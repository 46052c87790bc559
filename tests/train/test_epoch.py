"""Epochs launched ahead of what is decided after the one before them: the same trainings to the last bit."""

import pytest
import torch

from restt.train import Penalty, TrainConfig, epoch, train
from restt.train.state import TrainState
from tests.train.problems import assert_same_bits, measured, regression, small_module, weights

RATES = (1e-3, 0.02, 0.1)


@pytest.fixture
def counted(monkeypatch):
    """How often the state was set aside and gone back to."""
    counts = {"set_aside": 0, "go_back": 0}
    for name in counts:
        inner = getattr(TrainState, name)

        def outer(self, inner=inner, name=name):
            counts[name] += 1
            return inner(self)

        monkeypatch.setattr(TrainState, name, outer)
    return counts


def trained(monkeypatch, *, ahead, stop_after=None, **settings):
    """Module and records, and the weights of the module after each of them."""
    monkeypatch.setattr(epoch, "ASYNCHRONOUS", ("cpu", "cuda") if ahead else ())
    monkeypatch.setattr(epoch, "RUNS_WORTH_IT", 2)
    x, y = regression()
    module = small_module(runs=len(RATES))
    options = {name: settings.pop(name) for name in ("validation", "checkpoint_dir") if name in settings}
    config = TrainConfig(**{"epochs": 50, "batch_size": None, "lr": RATES, "seed": 0, **settings})
    records, after = [], []
    for record in train(module, x, y, config=config, **options):
        records.append(record)
        after.append(weights(module))
        if record.epoch == stop_after:
            break
    return module, records, after


def compare(found, wanted):
    assert_same_bits(found[0], wanted[0])
    assert [measured(record) for record in found[1]] == [measured(record) for record in wanted[1]]
    assert [record.events for record in found[1]] == [record.events for record in wanted[1]]
    for mine, other in zip(found[2], wanted[2], strict=True):
        assert all(torch.equal(mine[name], value) for name, value in other.items())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"schedule": "cosine", "penalty": Penalty(chain=0.1, linear=(0.1, 0.2, 0.3)), "ema": 0.9},
        {"epochs": (7, 50, 31), "optimizer": "adamw", "weight_decay": 0.1},
        {"dropout": 0.2, "clip_norm": 0.1},
        {"max_failures": None},
    ],
)
def test_launching_ahead_changes_nothing(monkeypatch, counted, settings):
    wanted = trained(monkeypatch, ahead=False, **settings)
    assert counted == {"set_aside": 0, "go_back": 0}
    compare(trained(monkeypatch, ahead=True, **settings), wanted)
    assert counted["set_aside"] >= 25
    assert counted["go_back"] == 0


def test_a_run_that_explodes_is_rolled_back_as_if_nothing_had_been_launched(monkeypatch, counted):
    settings = {"lr": (1e-3, 1.0, 3.0), "epochs": 80, "max_failures": 3}
    wanted = trained(monkeypatch, ahead=False, **settings)
    kinds = {event.kind for record in wanted[1] for event in record.events}
    assert kinds >= {"rolled-back", "failed", "finished"}
    compare(trained(monkeypatch, ahead=True, **settings), wanted)
    assert counted["go_back"] > 0


def test_leaving_early_leaves_the_weights_of_that_epoch(monkeypatch, counted):
    wanted = trained(monkeypatch, ahead=False, stop_after=9)
    compare(trained(monkeypatch, ahead=True, stop_after=9), wanted)
    assert counted["set_aside"] == 8


@pytest.mark.parametrize("decided", ["validation", "patience", "plateau", "keep", "checkpoint", "batches", "one run"])
def test_nothing_is_launched_ahead_of_a_decision(monkeypatch, counted, tmp_path, decided):
    x, y = regression()
    settings = {
        "validation": {"validation": (x, y)},
        "patience": {"patience": 5},
        "plateau": {"schedule": "plateau"},
        "keep": {"keep": "best"},
        "checkpoint": {"checkpoint_dir": tmp_path},
        "batches": {"batch_size": 16},
        "one run": {"epochs": (1, 1, 8)},
    }[decided]
    trained(monkeypatch, ahead=True, **{"epochs": 8, **settings})
    assert counted == {"set_aside": 0, "go_back": 0}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("lr", [RATES, (1e-3, 1.0, 3.0)])
def test_launching_ahead_changes_nothing_on_a_gpu(monkeypatch, counted, lr):
    x, y = regression()
    found = []
    for asynchronous in ((), ("cuda",)):
        monkeypatch.setattr(epoch, "ASYNCHRONOUS", asynchronous)
        monkeypatch.setattr(epoch, "RUNS_WORTH_IT", 2)
        module = small_module(runs=3, device="cuda")
        config = TrainConfig(epochs=60, batch_size=None, lr=lr, seed=0, max_failures=3)
        records = list(train(module, x, y, config=config))
        found.append((module, records))
    assert counted["set_aside"] > 20
    assert [record.events for record in found[1][1]] == [record.events for record in found[0][1]]
    assert_same_bits(found[1][0], found[0][0])
