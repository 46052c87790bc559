import json
import math

from restt.train import EpochRecord, Event, TrainConfig, train
from tests.train.problems import regression, small_module


def some_records(epochs=3, runs=2):
    x, y = regression()
    config = TrainConfig(epochs=epochs, batch_size=16, lr=1e-2, seed=0)
    return train(small_module(runs=runs), x, y, config=config, validation=(x, y))


def test_the_library_is_silent(capfd):
    list(some_records())
    assert capfd.readouterr() == ("", "")


def test_records_survive_json_with_their_nans():
    record = EpochRecord(2, (0,), (math.inf, math.nan), (0.1, 0.2), (1.0, 2.0), {"loss": (1.0, math.nan)}, 1.0, 2.0)
    record = EpochRecord(**vars(record) | {"events": (Event("finished", "done", 0),)})
    assert record.to_dict()["train_loss"] == [None, None]
    values = vars(record) | {"events": [vars(event) for event in record.events]}
    back = EpochRecord.from_dict(json.loads(json.dumps(values)))
    assert repr(back) == repr(record)
