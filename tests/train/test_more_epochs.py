"""More epochs on a finished training go on from its checkpoint."""

from dataclasses import replace

import pytest

from restt.train import Penalty, TrainConfig, train
from restt.train.checkpoint import Checkpoints
from tests.train.problems import assert_same_bits, measured, regression, small_module

SHORT = TrainConfig(
    epochs=6,
    batch_size=16,
    lr=(1e-2, 3.0, 1e-2),
    rates="uniform",
    weight_decay=1e-3,
    clip_norm=5.0,
    penalty=Penalty(chain=1e-3),
    seed=2,
)


def trained(config, folder=None, module=None):
    module = small_module(runs=3) if module is None else module
    x, y = regression()
    records = list(train(module, x, y, config=config, validation=(x[:20], y[:20]), checkpoint_dir=folder))
    return module, records


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"schedule": "warmup", "warmup_epochs": 8.0, "dropout": 0.2, "ema": 0.8},
        {"patience": 2, "keep": "best", "max_failures": 9},
    ],
    ids=["constant", "warmup", "patience"],
)
def test_the_longer_training_is_the_same_to_the_last_bit(tmp_path, settings):
    config = replace(SHORT, **settings)
    longer = replace(config, epochs=11)
    expected, whole = trained(longer)
    trained(config, tmp_path)
    module, records = trained(longer, tmp_path, small_module(runs=3, seed=77))
    assert_same_bits(module, expected)
    assert [measured(record) for record in records] == [measured(record) for record in whole]
    assert [record.epoch for record in records if record.replayed] == list(range(1, 7))
    again, told = trained(longer, tmp_path)
    assert all(record.replayed for record in told)
    assert_same_bits(again, expected)


def test_twice_longer_and_stopped_on_the_way(tmp_path, monkeypatch):
    expected, _ = trained(replace(SHORT, epochs=11))
    trained(SHORT, tmp_path)
    trained(replace(SHORT, epochs=8), tmp_path)
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    x, y = regression()
    config = replace(SHORT, epochs=11)
    stream = train(small_module(runs=3), x, y, config=config, validation=(x[:20], y[:20]), checkpoint_dir=tmp_path)
    for record in stream:
        if record.epoch == 9:
            break
    stream.close()
    module, _ = trained(config, tmp_path)
    assert_same_bits(module, expected)


def test_a_training_stopped_half_way_may_get_longer_too(tmp_path):
    expected, _ = trained(replace(SHORT, epochs=9))
    x, y = regression()
    stream = train(small_module(runs=3), x, y, config=SHORT, validation=(x[:20], y[:20]), checkpoint_dir=tmp_path)
    for _ in range(4):
        next(stream)
    stream.close()
    module, _ = trained(replace(SHORT, epochs=9), tmp_path)
    assert_same_bits(module, expected)


def test_a_cosine_is_read_off_the_longer_curve(tmp_path):
    cosine = replace(SHORT, schedule="cosine", lr=1e-2)
    longer = replace(cosine, epochs=12)
    whole = trained(longer)[1]
    trained(cosine, tmp_path)
    records = trained(longer, tmp_path)[1]
    assert [record.lr for record in records[6:]] == [record.lr for record in whole[6:]]
    assert records[5].lr != whole[5].lr


def test_one_run_alone_may_get_longer(tmp_path):
    expected, _ = trained(replace(SHORT, epochs=(6, 9, 6)))
    trained(SHORT, tmp_path)
    module, records = trained(replace(SHORT, epochs=(6, 9, 6)), tmp_path)
    assert_same_bits(module, expected)
    assert records[-1].runs == (1,)


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (6, 5, "epochs: 6 in the checkpoint, 5 now"),
        ((3, 6, 6), (5, 8, 8), r"epochs: \[3, 6, 6\] in the checkpoint, \[5, 8, 8\] now"),
        ((6, 6, 6), (7, 7, 5), r"epochs: \[6, 6, 6\] in the checkpoint, \[7, 7, 5\] now"),
    ],
)
def test_what_cannot_go_on_is_refused(tmp_path, before, after, named):
    trained(replace(SHORT, epochs=before), tmp_path)
    module = small_module(runs=3, seed=9)
    with pytest.raises(ValueError, match=named):
        trained(replace(SHORT, epochs=after), tmp_path, module)
    assert_same_bits(module, small_module(runs=3, seed=9))


def test_runs_that_stopped_by_themselves_stay_so(tmp_path):
    config = replace(SHORT, epochs=40, patience=2, lr=(1e-2, 1e-30, 1e-2), max_failures=None)
    _, records = trained(config, tmp_path)
    assert records[-1].epoch > 3
    _, longer = trained(replace(config, epochs=records[-1].epoch + 40), tmp_path)
    assert all(1 not in record.runs for record in longer[4:])
