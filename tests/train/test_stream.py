"""Streams of records that are dropped, interrupted or never used, and what a config leaves unsaid."""

import gc
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

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


def test_a_stream_that_is_never_iterated_says_so(tmp_path):
    for folder in (None, tmp_path):
        with pytest.warns(RuntimeWarning, match=r"train\(…\) was never iterated, so nothing was trained"):
            train(small_module(), *regression(), config=CONFIG, checkpoint_dir=folder)
    assert len(list(train(small_module(), *regression(), config=CONFIG, checkpoint_dir=tmp_path))) == 3


def test_no_false_alarm():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream = train(small_module(), *regression(), config=CONFIG)
        stream.close()
        del stream
        list(train(small_module(), *regression(), config=CONFIG))
        next(train(small_module(), *regression(), config=CONFIG))
        with pytest.raises(ValueError, match="lr"):
            train(small_module(), *regression(), config=TrainConfig(lr=(1.0, 2.0)))
        gc.collect()


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


@pytest.mark.parametrize("during", ["a step", "evaluation"])
def test_ctrl_c_loses_no_finished_epoch(tmp_path, monkeypatch, during):
    """Even where short epochs share a checkpoint: the last finished one is saved on the way out."""
    config = TrainConfig(epochs=12, batch_size=16, lr=(1e-2, 3.0), ema=0.8, dropout=0.2, max_failures=20, seed=4)
    expected = small_module(runs=2)
    x, y = regression()
    list(train(expected, x, y, config=config, validation=(x, y)))

    monkeypatch.setattr(Checkpoints, "due", lambda self: False)
    target = "restt.train.step.TrainStep.__call__" if during == "a step" else "restt.train.loop.evaluate"
    original = restt.train.step.TrainStep.__call__ if during == "a step" else restt.train.loop.evaluate
    calls = []

    def interrupted(*args, **options):
        calls.append(1)
        if len(calls) == (4 * 7 + 3 if during == "a step" else 8):  # in epoch 8
            signal.raise_signal(signal.SIGINT)
        return original(*args, **options)

    module = small_module(runs=2)
    with monkeypatch.context() as patch:
        patch.setattr(target, interrupted)
        with pytest.raises(KeyboardInterrupt, match="epoch 8: epoch 7 is saved"):
            list(train(module, x, y, config=config, validation=(x, y), checkpoint_dir=tmp_path))
    resumed = small_module(runs=2)
    records = list(train(resumed, x, y, config=config, validation=(x, y), checkpoint_dir=tmp_path))
    assert [record.epoch for record in records if record.replayed] == list(range(1, 8))
    assert_same_bits(resumed, expected)


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


HELD_TO_THE_END = """
import sys
from restt.train import TrainConfig, train
from restt.train.checkpoint import Checkpoints
from tests.train.problems import regression, small_module
Checkpoints.due = lambda self: False
config = TrainConfig(epochs=9, batch_size=16, lr=1e-2, seed=4)
stream = train(small_module(), *regression(), config=config, checkpoint_dir=sys.argv[1])
unused = train(small_module(), *regression(), config=config)
for record in stream:
    if record.epoch == 5:
        raise KeyboardInterrupt
"""


def test_a_stream_still_held_when_python_ends_is_saved_and_one_unused_says_so(tmp_path):
    root = Path(__file__).parents[2]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root}{os.pathsep}{root / 'src'}"}
    words = [sys.executable, "-c", HELD_TO_THE_END, str(tmp_path)]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert "KeyboardInterrupt" in ended.stderr
    assert ended.stderr.count("was never iterated") == 1
    config = TrainConfig(epochs=9, batch_size=16, lr=1e-2, seed=4)
    records = list(train(small_module(), *regression(), config=config, checkpoint_dir=tmp_path))
    assert [record.replayed for record in records] == [True] * 5 + [False] * 4
