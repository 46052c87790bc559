"""Trainings that are interrupted, and what a config leaves unsaid."""

import signal

import pytest
import torch

import restt
from restt.train import TrainConfig, train
from restt.train.checkpoint import Checkpoints
from tests.train.problems import assert_same_bits, classification, regression, small_module

CONFIG = TrainConfig(epochs=3, batch_size=16, lr=1e-2, seed=4)


@pytest.fixture(autouse=True)
def python_hears_ctrl_c():
    """Processes that a shell starts in the background are born with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_classes_train_by_cross_entropy_unless_another_loss_is_asked_for():
    x, y = classification()
    losses = {}
    for loss in ("auto", "cross-entropy", "mse"):
        (record,) = train(small_module(outputs=3), x, y, config=TrainConfig(epochs=1, lr=1e-13, loss=loss))
        losses[loss] = record.train_loss[0]
    output = small_module(outputs=3)(x).detach()
    assert (
        losses["auto"]
        == losses["cross-entropy"]
        == pytest.approx(torch.nn.functional.cross_entropy(output, y).item(), rel=1e-5)
    )
    assert losses["mse"] != losses["auto"]
    assert TrainConfig.paper().loss == "mse"


def test_values_train_by_the_squared_error():
    one, other = small_module(), small_module()
    list(train(one, *regression(), config=CONFIG))
    list(train(other, *regression(), config=TrainConfig(epochs=3, batch_size=16, lr=1e-2, seed=4, loss="mse")))
    assert_same_bits(one, other)


def test_an_empty_checkpoint_dir_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="checkpoint_dir must be a folder, got ''"):
        train(small_module(), *regression(), config=CONFIG, checkpoint_dir="")
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_while_an_epoch_ends_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    expected = small_module(runs=2)
    x, y = regression()
    list(train(expected, x, y, config=CONFIG))
    monkeypatch.setattr(Checkpoints, "due", lambda self: False)
    publish, calls = restt.train.state.TrainState._publish, []

    def interrupted(self, improved):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        publish(self, improved)

    with monkeypatch.context() as patch:
        patch.setattr("restt.train.state.TrainState._publish", interrupted)
        with pytest.raises(KeyboardInterrupt, match="epoch 0 is saved"):
            list(train(small_module(runs=2), x, y, config=CONFIG, checkpoint_dir=tmp_path))
    resumed = small_module(runs=2)
    records = list(train(resumed, x, y, config=CONFIG, checkpoint_dir=tmp_path))
    assert sum(record.replayed for record in records) == 0
    assert_same_bits(resumed, expected)
