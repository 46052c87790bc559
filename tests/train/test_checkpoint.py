import errno
import json
import os
from dataclasses import replace
from itertools import pairwise

import pytest
import safetensors.torch
import torch

import restt
from restt.features import Trigonometric
from restt.train import Augmentation, Penalty, TrainConfig, train
from restt.train.checkpoint import LAST, LOCK, Checkpoints
from tests.train.problems import assert_same_bits, measured, regression, small_module, weights

# Everything that has a state of its own: moments, averages, roll-backs, best weights, runs that stop.
FULL = TrainConfig(
    epochs=(9, 4, 12, 12),
    batch_size=16,
    lr=(1e-2, 1e-2, 3.0, 1e-2),
    rates="uniform",  # so that the third run explodes
    schedule="warmup",
    weight_decay=1e-3,
    clip_norm=5.0,
    penalty=Penalty(chain=1e-3),
    dropout=0.2,
    ema=0.8,
    augment=Augmentation(shift=0.5),
    patience=5,
    keep="best",
    max_failures=4,
    seed=2,
)


def images():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(50, 9, generator=generator)
    return x, x[:, 0] * x[:, 4] - x[:, 8]


def full_training(folder=None, config=FULL, stop_after=None, module=None):
    module = small_module(runs=4, sites=9) if module is None else module
    x, y = images()
    records = []
    stream = train(
        module, x, y, config=config, validation=(x[:20], y[:20]), feature_map=Trigonometric(), checkpoint_dir=folder
    )
    for record in stream:
        records.append(record)
        if record.epoch == stop_after and not record.replayed:
            break
    stream.close()
    return module, records


def small_training(folder, epochs=3, **changes):
    module = small_module(runs=2)
    arguments = {"x": regression()[0], "y": regression()[1]} | changes
    config = arguments.pop("config", TrainConfig(epochs=epochs, batch_size=16, lr=1e-2, seed=4))
    return module, list(train(module, **arguments, config=config, checkpoint_dir=folder))


@pytest.fixture(scope="module")
def uninterrupted():
    return full_training()


def test_checkpoints_change_nothing(tmp_path, uninterrupted):
    module, records = full_training(tmp_path)
    assert_same_bits(module, uninterrupted[0])
    assert [measured(record) for record in records] == [measured(record) for record in uninterrupted[1]]


def test_the_training_has_all_that_a_checkpoint_must_hold(uninterrupted):
    kinds = {event.kind for record in uninterrupted[1] for event in record.events}
    assert {"rolled-back", "finished"} <= kinds


@pytest.mark.parametrize("stop_after", [1, 3, 4, 5, 8, 11])
def test_a_resumed_training_ends_with_the_same_bits(tmp_path, uninterrupted, stop_after):
    full_training(tmp_path, stop_after=stop_after)
    other_start = small_module(runs=4, sites=9, seed=99)  # the checkpoint's weights count, not the module's
    module, records = full_training(tmp_path, module=other_start)
    assert_same_bits(module, uninterrupted[0])
    assert [measured(record) for record in records] == [measured(record) for record in uninterrupted[1]]
    assert [record.epoch for record in records if record.replayed] == list(range(1, stop_after + 1))
    resumed = records[stop_after].events[0]
    assert resumed.kind == "resumed"
    assert f"after epoch {stop_after}" in resumed.message


def test_a_resumed_training_is_pulled_towards_where_it_began(tmp_path):
    config = replace(FULL, penalty=Penalty(chain=0.5, linear=0.1, towards="start"), augment=None)
    expected, _ = full_training(config=config)
    full_training(tmp_path, config=config, stop_after=3)
    module, _ = full_training(tmp_path, config=config, module=small_module(runs=4, sites=9, seed=99))
    assert_same_bits(module, expected)


def test_a_finished_training_is_told_again_without_training(tmp_path, uninterrupted, monkeypatch):
    full_training(tmp_path)
    monkeypatch.setattr("restt.train.step.TrainStep.__call__", None)
    module, records = full_training(tmp_path)
    assert_same_bits(module, uninterrupted[0])
    assert all(record.replayed for record in records)


def test_a_seed_that_was_drawn_is_kept(tmp_path):
    config = replace(FULL, seed=None)
    torch.manual_seed(1)
    expected, _ = full_training(config=config)
    torch.manual_seed(1)
    full_training(tmp_path, config=config, stop_after=2)
    module, _ = full_training(tmp_path, config=config)
    assert_same_bits(module, expected)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"config": TrainConfig(epochs=3, batch_size=16, lr=2e-2, seed=4)}, "lr: 0.01 in the checkpoint, 0.02 now"),
        ({"config": TrainConfig(epochs=2, batch_size=16, lr=1e-2, seed=4)}, "epochs: 3 in the checkpoint, 2 now"),
        ({"config": TrainConfig(epochs=3, batch_size=16, lr=1e-2, seed=5)}, "seed: 4 in the checkpoint, 5 now"),
        ({"x": regression()[0] + 1e-6}, r"x: \(60, 5, 2\) float32 #\w+ in the checkpoint, \(60, 5, 2\) float32 #"),
        ({"y": regression()[1].flip(0)}, r"y: \(60, 1\)"),
        ({"sample_weight": torch.ones(60)}, "sample_weight: None in the checkpoint"),
        ({"subset": [range(60), range(59)]}, r"subset: None in the checkpoint"),
        ({"validation": regression()}, "validation x: None in the checkpoint"),
    ],
)
def test_another_training_is_refused_with_what_differs(tmp_path, change, named):
    small_training(tmp_path)
    before = (tmp_path / LAST).read_bytes()
    with pytest.raises(ValueError, match=named) as caught:
        small_training(tmp_path, **change)
    assert "lr: 0.01" not in str(caught.value) or "lr" in named  # only what differs
    assert (tmp_path / LAST).read_bytes() == before


@pytest.mark.parametrize(
    "module",
    [
        restt.ResTT(5, 2, 4, 1, runs=2),
        restt.ResTT(5, 2, 3, 1, runs=2, topology=restt.Topology.residual(5).without_skip(3)),
        restt.ResTT(5, 2, 3, 1, runs=2, dtype=torch.float64),
    ],
)
def test_another_module_is_refused(tmp_path, module):
    small_training(tmp_path)
    x, y = regression()
    config = TrainConfig(epochs=3, batch_size=16, lr=1e-2, seed=4)
    with pytest.raises(ValueError, match="module: ResTT"):
        train(module, x, y, config=config, checkpoint_dir=tmp_path)


def truncated(data):
    return data[: len(data) // 2]


def one_bit_changed(data):
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


def plain_value_edited(data):
    assert data.count(b'\\"epoch\\": 2,') >= 1
    return data.replace(b'\\"epoch\\": 2,', b'\\"epoch\\": 9,', 1)


def foreign(data):
    return safetensors.torch.save({"a": torch.ones(3)})


def pickled(data):
    return b"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94."


def empty(data):
    return b""


DAMAGE = {
    truncated: "not a readable safetensors file, or is cut short",
    one_bit_changed: "changed after it was written",
    plain_value_edited: "changed after it was written",
    foreign: "not one written by restt",
    pickled: "not a readable safetensors file, or is cut short",
    empty: "not a readable safetensors file, or is cut short",
}


def stopped_training(folder, monkeypatch):
    """Stop after epoch 2."""
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    x, y = regression()
    stream = train(
        small_module(runs=2),
        x,
        y,
        config=TrainConfig(epochs=3, batch_size=16, lr=1e-2, seed=4),
        checkpoint_dir=folder,
    )
    for _ in range(2):
        next(stream)
    stream.close()


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
def test_a_damaged_file_is_refused_and_left_alone(tmp_path, monkeypatch, damage):
    stopped_training(tmp_path, monkeypatch)
    damaged = damage((tmp_path / LAST).read_bytes())
    (tmp_path / LAST).write_bytes(damaged)
    with pytest.raises(ValueError, match=rf"no usable checkpoint: .*{LAST}.*{DAMAGE[damage]}.*Delete"):
        small_training(tmp_path)
    assert (tmp_path / LAST).read_bytes() == damaged


def full_disk(*args, **options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_a_clear_error_and_the_checkpoint_before_is_intact(tmp_path, monkeypatch):
    expected, _ = small_training(tmp_path / "whole")
    folder = tmp_path / "full"
    stopped_training(folder, monkeypatch)
    before = (folder / LAST).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full_disk)
        with pytest.raises(
            OSError, match=r"could not write a checkpoint to .*No space left.*epoch 2 is saved"
        ) as caught:
            small_training(folder)
    assert caught.value.errno == errno.ENOSPC
    assert (folder / LAST).read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == sorted([LAST, LOCK])
    module, records = small_training(folder)
    assert [record.replayed for record in records] == [True, True, False]
    assert_same_bits(module, expected)


def test_a_folder_that_cannot_be_written_is_known_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match=r"could not make the checkpoint folder .*file"):
        small_training(tmp_path / "file")

    def read_only(*args, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("restt._common.files.unfinished", read_only)
    monkeypatch.setattr("restt.train.step.TrainStep.__call__", None)
    with pytest.raises(PermissionError, match=r"could not write a checkpoint to .*Permission denied"):
        small_training(tmp_path / "locked")


def test_ctrl_c_leaves_a_checkpoint_and_says_how_to_resume(tmp_path, monkeypatch):
    expected, _ = small_training(tmp_path / "whole")
    folder, step = tmp_path / "stopped", restt.train.step.TrainStep.__call__
    calls = []

    def interrupted(self, *args, **options):
        calls.append(1)
        if len(calls) == 10:  # in the middle of epoch 3
            raise KeyboardInterrupt
        step(self, *args, **options)

    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    module, (x, y) = small_module(runs=2), regression()
    config = TrainConfig(epochs=3, batch_size=16, lr=1e-2, seed=4)
    with monkeypatch.context() as patch:
        patch.setattr("restt.train.step.TrainStep.__call__", interrupted)
        stream = train(module, x, y, config=config, checkpoint_dir=folder)
        seen = [(next(stream), weights(module)) for _ in range(2)]
        with pytest.raises(KeyboardInterrupt, match=r"epoch 3: epoch 2 is saved in .*stopped.*same call again"):
            next(stream)
    assert torch.equal(module.chain, seen[1][1]["chain"])
    resumed, records = small_training(folder)
    assert [record.replayed for record in records] == [True, True, False]
    assert_same_bits(resumed, expected)


def test_ctrl_c_in_the_first_epoch_leaves_a_checkpoint_too(tmp_path, monkeypatch):
    def interrupted(self, *args, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("restt.train.step.TrainStep.__call__", interrupted)
        with pytest.raises(KeyboardInterrupt, match="epoch 1: epoch 0 is saved"):
            small_training(tmp_path)
    assert len(small_training(tmp_path)[1]) == 3


def test_ctrl_c_without_checkpoints_says_what_is_left(monkeypatch):
    def interrupted(self, *args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("restt.train.step.TrainStep.__call__", interrupted)
    with pytest.raises(KeyboardInterrupt, match="the module holds the last finished epoch"):
        small_training(None)


def test_short_epochs_share_a_checkpoint(tmp_path, monkeypatch):
    clock = [0.0]

    def ticking():
        clock[0] += 1.0
        return clock[0]

    monkeypatch.setattr("restt.train.checkpoint.time.monotonic", ticking)
    written = []
    save = Checkpoints.save

    def noting(self, state):
        before = self.saved_epoch
        save(self, state)
        if self.saved_epoch != before:
            written.append(state.epoch)

    monkeypatch.setattr(Checkpoints, "save", noting)
    small_training(tmp_path, epochs=60)
    # A write takes one tick of this clock and so does an epoch: one write in about twenty epochs, and the last epoch.
    assert written[0] == 0
    assert written[-1] == 60
    assert all(later - earlier >= 18 for earlier, later in pairwise(written[:-1]))


def test_nothing_on_the_way_in_can_execute_code(tmp_path, monkeypatch):
    small_training(tmp_path, epochs=1)

    def forbidden(*args, **options):
        raise AssertionError("pickle was used")

    for name in ("pickle.load", "pickle.loads", "pickle.Unpickler", "torch.load"):
        monkeypatch.setattr(name, forbidden)
    small_training(tmp_path, epochs=1)


def test_a_checkpoint_is_plain_safetensors_and_json(tmp_path):
    small_training(tmp_path)
    with safetensors.safe_open(tmp_path / LAST, "pt") as file:
        state = json.loads(file.metadata()["state"])
        assert state["epoch"] == 3
        assert len(state["history"]) == 3
        assert "module/chain" in set(file.keys())


def test_an_empty_checkpoint_dir_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="checkpoint_dir must be a folder, got ''"):
        small_training("")
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_while_an_epoch_ends_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    expected, _ = small_training(None)
    monkeypatch.setattr(Checkpoints, "due", lambda self: False)
    drop_ended, calls = restt.train.state.TrainState.drop_ended, []

    def interrupted(self):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        drop_ended(self)

    with monkeypatch.context() as patch:
        patch.setattr("restt.train.state.TrainState.drop_ended", interrupted)
        with pytest.raises(KeyboardInterrupt, match="epoch 0 is saved"):
            small_training(tmp_path)
    resumed, records = small_training(tmp_path)
    assert sum(record.replayed for record in records) == 0
    assert_same_bits(resumed, expected)
