"""Runs shared among devices against the same runs on one: here each device is the CPU."""

import math

import pytest
import torch
from torch import nn

from restt.train import Penalty, TrainConfig, train
from restt.train.checkpoint import Checkpoints
from tests.train.problems import assert_same_bits, classification, regression, small_module

SUBSET = [range(51), range(10, 60), range(0, 60, 3)]
CONFIG = TrainConfig(
    epochs=(6, 3, 6),
    batch_size=10,
    lr=(1e-2, 2e-2, 30.0),
    penalty=Penalty(chain=(0.1, 0.2, 0.3), linear=0.01),
    dropout=(0.0, 0.2, 0.1),
    clip_norm=1.0,
    schedule="cosine",
    ema=0.9,
    seed=1,
)


def told(record):
    """What happened to which run, in any order of the runs."""
    return record.epoch, record.runs, sorted((event.kind, event.run) for event in record.events)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_runs_on_several_devices_have_the_bits_of_one(count):
    x, y = regression()
    options = {
        "config": TrainConfig(epochs=6, batch_size=10, lr=(1e-2, 2e-2, 5e-3), dropout=(0.0, 0.2, 0.1), ema=0.9, seed=1),
        "subset": [range(50), range(10, 60), range(5, 55)],
        "validation": (x[:33], y[:33]),
    }
    one, several = small_module(runs=3), small_module(runs=3)
    expected = list(train(one, x, y, **options))
    found = list(train(several, x, y, devices=["cpu"] * count, **options))
    assert_same_bits(several, one)
    assert [told(record) for record in found] == [told(record) for record in expected]
    for name in ("train_loss", "lr"):
        assert [getattr(record, name) for record in found] == [getattr(record, name) for record in expected]
    for one_record, other in zip(found, expected, strict=True):
        assert one_record.gradient_norm == pytest.approx(other.gradient_norm, rel=1e-6)
        assert one_record.validation == {name: pytest.approx(values) for name, values in other.validation.items()}


@pytest.mark.parametrize("count", [2, 3])
def test_runs_that_stop_explode_and_see_other_rows_are_those_on_one_device(count):
    """Up to rounding: sums over runs that have stopped, or over gradients that are clipped, are grouped otherwise."""
    x, y = regression()
    options = {"config": CONFIG, "subset": SUBSET, "validation": (x[:33], y[:33])}
    one, several = small_module(runs=3), small_module(runs=3)
    expected = list(train(one, x, y, **options))
    found = list(train(several, x, y, devices=["cpu"] * count, **options))
    assert [told(record) for record in found] == [told(record) for record in expected]
    assert any(kind == "rolled-back" for record in found for kind, _ in told(record)[2])
    for record, other in zip(found, expected, strict=True):
        assert record.train_loss == pytest.approx(other.train_loss, rel=1e-5, nan_ok=True)
    assert math.isnan(found[-1].train_loss[1])
    for name, weights in one.state_dict().items():
        torch.testing.assert_close(several.state_dict()[name], weights, rtol=1e-5, atol=1e-6)


def test_the_module_holds_the_weights_of_every_epoch():
    x, y = classification()
    config = TrainConfig(epochs=3, batch_size=16, lr=0.05)
    one, several = small_module(runs=2, outputs=3), small_module(runs=2, outputs=3)
    torch.manual_seed(0)
    first = train(one, x, y, config=config)
    next(first)
    torch.manual_seed(0)
    second = train(several, x, y, config=config, devices=["cpu", "cpu"])
    next(second)
    first.close()
    second.close()
    for name, weights in one.state_dict().items():
        torch.testing.assert_close(several.state_dict()[name], weights, rtol=1e-6, atol=1e-6)
    assert any(
        (one.state_dict()[name] != value).any() for name, value in small_module(runs=2, outputs=3).state_dict().items()
    )


def test_a_module_without_runs_uses_the_first_device():
    x, y = regression()
    one, other = small_module(), small_module()
    config = TrainConfig(epochs=2, batch_size=16, seed=0)
    list(train(one, x, y, config=config))
    list(train(other, x, y, config=config, devices=["cpu", "cpu"], feature_map=nn.Identity()))
    assert_same_bits(other, one)


def test_each_part_has_a_thread_and_the_chosen_precision_of_its_own(monkeypatch):
    import threading

    from restt import chain
    from restt.chain.precision import current_precision
    from restt.train.step import TrainStep

    seen, step = set(), TrainStep.__call__

    def noted(self, *arguments, **options):
        seen.add((threading.current_thread().name, self.working.runs, current_precision()))
        return step(self, *arguments, **options)

    monkeypatch.setattr(TrainStep, "__call__", noted)
    with chain.precision("bf16"):
        list(train(small_module(runs=3), *regression(), config=TrainConfig(epochs=3), devices=["cpu", "cpu"]))
    assert {runs for _, runs, _ in seen} == {1, 2}
    assert all(name.startswith("restt-device") for name, _, _ in seen)
    assert {precision for _, _, precision in seen} == {"bf16"}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("restt-device")]


def test_a_stopped_training_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    x, y = regression()
    config = TrainConfig(epochs=6, batch_size=16, lr=0.02)  # whose seed is that of the checkpoints
    options = {"config": config, "checkpoint_dir": tmp_path, "devices": ["cpu", "cpu"]}
    stopped = small_module(runs=3)
    for record in train(stopped, x, y, **options):
        if record.epoch == 2:
            break
    saved = {name: value.clone() for name, value in stopped.state_dict().items()}
    resumed = small_module(runs=3, seed=9)
    records = train(resumed, x, y, **options)
    assert [next(records).replayed for _ in range(2)] == [True, True]
    assert all(torch.equal(resumed.state_dict()[name], value) for name, value in saved.items())
    assert [record.replayed for record in records] == [False] * 4
    again = small_module(runs=3)
    assert all(record.replayed for record in train(again, x, y, **options))
    assert_same_bits(again, resumed)


@pytest.mark.parametrize(("before", "after"), [(2, 3), (2, 1), (1, 2)])
def test_checkpoints_of_another_number_of_devices_are_refused(tmp_path, before, after):
    options = {"config": TrainConfig(epochs=2, seed=0), "checkpoint_dir": tmp_path}
    list(train(small_module(runs=3), *regression(), devices=["cpu"] * before, **options))
    with pytest.raises(ValueError, match=rf"runs are on {before} device\(s\), got {after}: choose another folder"):
        train(small_module(runs=3), *regression(), devices=["cpu"] * after if after > 1 else None, **options)


def test_what_fails_on_one_device_ends_all(monkeypatch):
    from restt.train.step import TrainStep

    step = TrainStep.__call__

    def failing(self, *arguments, **options):
        if self.working.runs == 2:
            raise OSError("the bus is gone")
        return step(self, *arguments, **options)

    monkeypatch.setattr(TrainStep, "__call__", failing)
    with pytest.raises(OSError, match="the bus is gone"):
        list(train(small_module(runs=3), *regression(), config=TrainConfig(epochs=3), devices=["cpu", "cpu"]))


def test_a_stream_that_is_never_iterated_says_so_once_and_lets_go_of_its_folder(tmp_path):
    options = {"config": TrainConfig(epochs=1, seed=0), "checkpoint_dir": tmp_path, "devices": ["cpu", "cpu"]}
    with pytest.warns(RuntimeWarning, match="was never iterated") as caught:
        train(small_module(runs=2), *regression(), **options)
    assert len(caught) == 1
    assert len(list(train(small_module(runs=2), *regression(), **options))) == 1


@pytest.mark.parametrize(
    ("devices", "error", "message"),
    [
        ("cpu", TypeError, "devices must be a sequence of devices, got 'cpu'"),
        ([], TypeError, "devices must be a sequence of devices"),
        (["cpu", "abacus"], ValueError, "device must be .* got 'abacus'"),
    ],
)
def test_devices_that_are_none_are_named(devices, error, message):
    with pytest.raises(error, match=message):
        train(small_module(runs=2), *regression(), devices=devices)


def test_processes_that_train_together_have_a_device_each(monkeypatch):
    from restt._common.ranks import Ranks

    together = Ranks()
    together.size = 2
    monkeypatch.setattr("restt.train.loop.read_group", lambda group: together)
    with pytest.raises(ValueError, match="devices must be None where several processes train together"):
        train(small_module(runs=2), *regression(), devices=["cpu", "cpu"])
