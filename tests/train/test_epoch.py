"""Epochs launched at once and looked at together: the same trainings to the last bit."""

import pytest
import torch

from restt.train import Penalty, TrainConfig, epoch, loop, train, training
from restt.train.state import TrainState
from tests.train.problems import assert_same_bits, measured, regression, small_module, weights
from tests.train.test_cuda_graph import RecordedStep

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


def trained(monkeypatch, *, at_once, **settings):
    """Module and records of a training that nobody watches."""
    monkeypatch.setattr(epoch, "ASYNCHRONOUS", ("cpu", "cuda") if at_once else ())
    x, y = regression()
    module = small_module(runs=len(RATES))
    options = {name: settings.pop(name) for name in ("validation", "checkpoint_dir") if name in settings}
    config = TrainConfig(**{"epochs": 50, "batch_size": None, "lr": RATES, "seed": 0, **settings})
    return module, list(train(module, x, y, config=config, **options).unwatched())


def compare(found, wanted):
    assert_same_bits(found[0], wanted[0])
    assert [measured(record) for record in found[1]] == [measured(record) for record in wanted[1]]
    assert [record.events for record in found[1]] == [record.events for record in wanted[1]]


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
def test_epochs_at_once_change_nothing(monkeypatch, counted, settings):
    wanted = trained(monkeypatch, at_once=False, **settings)
    assert counted == {"set_aside": 0, "go_back": 0}
    compare(trained(monkeypatch, at_once=True, **settings), wanted)
    assert 4 < counted["set_aside"] < 12
    assert counted["go_back"] == 0


def test_a_run_that_explodes_is_rolled_back_as_it_would_be_one_by_one(monkeypatch, counted):
    settings = {"lr": (1e-3, 1.0, 3.0), "epochs": 80, "max_failures": 3}
    wanted = trained(monkeypatch, at_once=False, **settings)
    kinds = {event.kind for record in wanted[1] for event in record.events}
    assert kinds >= {"rolled-back", "failed", "finished"}
    compare(trained(monkeypatch, at_once=True, **settings), wanted)
    assert counted["go_back"] > 0


def test_what_comes_before_an_explosion_is_launched_at_once_again(monkeypatch, counted):
    """Epochs after each of which nothing was wrong are not trained one by one because a later one was."""
    launched = []
    inner = loop.launch_epochs

    def outer(*arguments):
        launched.append(arguments[-2:])
        return inner(*arguments)

    monkeypatch.setattr(loop, "launch_epochs", outer)
    settings = {"lr": (1e-3, 0.02, 2.0), "epochs": 20, "schedule": "warmup", "warmup_epochs": 40}
    wanted = trained(monkeypatch, at_once=False, **settings)
    launched.clear()
    found = trained(monkeypatch, at_once=True, **settings)
    compare(found, wanted)
    records = found[1]
    exploded = [record.epoch for record in records if any(event.kind == "rolled-back" for event in record.events)]
    assert counted["go_back"] == len(exploded) == 1
    # Those launched with the one that exploded, those of them before it, and that one.
    first, count = next((first, count) for first, count in launched if first + count > exploded[0])
    again = launched.index((first, count)) + 1
    assert launched[again : again + 2] == [(first, exploded[0] - first), (exploded[0], 1)]
    assert exploded[0] - first > 1


def test_steps_that_are_recorded_may_be_replayed_at_once(monkeypatch, counted):
    monkeypatch.setattr(RecordedStep, "captures", 0)
    settings = {"lr": (1e-3, 1.0, 0.02), "epochs": 60, "schedule": "cosine", "ema": 0.9}
    wanted = trained(monkeypatch, at_once=False, **settings)
    monkeypatch.setattr(training, "TrainStep", RecordedStep)
    found = trained(monkeypatch, at_once=True, **settings)
    assert RecordedStep.captures > 0
    assert counted["set_aside"] > 2
    assert [record.events for record in found[1]] == [record.events for record in wanted[1]]
    for name, value in wanted[0].state_dict().items():
        torch.testing.assert_close(found[0].state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_who_watches_sees_the_weights_of_each_epoch(monkeypatch, counted):
    after = {}
    for at_once in (False, True):
        monkeypatch.setattr(epoch, "ASYNCHRONOUS", ("cpu", "cuda") if at_once else ())
        module = small_module(runs=2)
        stream = train(module, *regression(), config=TrainConfig(epochs=30, batch_size=None, seed=0))
        after[at_once] = [weights(module) for _ in stream]
    assert counted["set_aside"] == 0
    for mine, other in zip(after[True], after[False], strict=True):
        assert all(torch.equal(mine[name], value) for name, value in other.items())


def test_who_does_not_watch_may_leave_early(monkeypatch, counted):
    monkeypatch.setattr(epoch, "ASYNCHRONOUS", ("cpu", "cuda"))
    module = small_module(runs=2)
    stream = train(module, *regression(), config=TrainConfig(epochs=50, batch_size=None, seed=0)).unwatched()
    seen = [next(stream).epoch for _ in range(10)]
    stream.close()
    assert seen == list(range(1, 11))
    # Those of the fifteenth, the last of those that were trained at once.
    monkeypatch.setattr(epoch, "ASYNCHRONOUS", ())
    expected = small_module(runs=2)
    for record in train(expected, *regression(), config=TrainConfig(epochs=50, batch_size=None, seed=0)):
        if record.epoch == 15:
            break
    assert_same_bits(module, expected)


@pytest.mark.parametrize("decided", ["validation", "patience", "plateau", "keep", "checkpoint", "batches"])
def test_epochs_after_which_something_is_decided_are_launched_one_by_one(monkeypatch, counted, tmp_path, decided):
    x, y = regression()
    settings = {
        "validation": {"validation": (x, y)},
        "patience": {"patience": 5},
        "plateau": {"schedule": "plateau"},
        "keep": {"keep": "best"},
        "checkpoint": {"checkpoint_dir": tmp_path},
        "batches": {"batch_size": 16},
    }[decided]
    trained(monkeypatch, at_once=True, **{"epochs": 8, **settings})
    assert counted == {"set_aside": 0, "go_back": 0}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("lr", [RATES, (1e-3, 1.0, 3.0)])
def test_epochs_at_once_change_nothing_on_a_gpu(monkeypatch, counted, lr):
    found = []
    for asynchronous in ((), ("cuda",)):
        monkeypatch.setattr(epoch, "ASYNCHRONOUS", asynchronous)
        module = small_module(runs=3, device="cuda")
        config = TrainConfig(epochs=60, batch_size=None, lr=lr, seed=0, max_failures=3)
        found.append((module, list(train(module, *regression(), config=config).unwatched())))
    assert counted["set_aside"] > 2
    assert [record.events for record in found[1][1]] == [record.events for record in found[0][1]]
    assert_same_bits(found[1][0], found[0][0])
