import io
import json
import math
import sys

from restt.train import EpochRecord, Event, TrainConfig, live_table, train, write_jsonl
from tests.train.problems import regression, small_module


def some_records(epochs=3, runs=2):
    x, y = regression()
    config = TrainConfig(epochs=epochs, batch_size=16, lr=1e-2, seed=0)
    return train(small_module(runs=runs), x, y, config=config, validation=(x, y))


def test_the_library_is_silent(capfd):
    list(some_records())
    assert capfd.readouterr() == ("", "")


def test_jsonl_has_one_strict_line_per_epoch(tmp_path):
    path = tmp_path / "history.jsonl"
    for seen, record in enumerate(write_jsonl(some_records(), path), start=1):
        lines = path.read_text().splitlines()  # readable while the training goes on
        assert len(lines) == seen
        assert json.loads(lines[-1]) == record.to_dict()
    values = json.loads(lines[-1])
    assert values["epoch"] == 3
    assert len(values["train_loss"]) == len(values["validation"]["r2"]) == 2
    assert [event["kind"] for event in values["events"]] == ["finished", "finished"]


def test_records_survive_json_with_their_nans():
    record = EpochRecord(2, (0,), (math.inf, math.nan), (0.1, 0.2), (1.0, 2.0), {"loss": (1.0, math.nan)}, 1.0, 2.0)
    record = EpochRecord(**vars(record) | {"events": (Event("finished", "done", 0),)})
    assert record.to_dict()["train_loss"] == [None, None]
    values = vars(record) | {"events": [vars(event) for event in record.events]}
    back = EpochRecord.from_dict(json.loads(json.dumps(values)))
    assert repr(back) == repr(record)


def test_the_table_shows_what_people_look_for():
    from rich.console import Console

    out = io.StringIO()
    records = list(live_table(some_records(), 3, Console(file=out, width=120)))
    assert len(records) == 3
    text = out.getvalue()
    for column in ("epoch", "loss", "metric", "rate", "samples/s", "ETA"):
        assert column in text
    assert "3/3" in text
    assert "r2" in text
    assert "run 1: all 3 epochs done" in text


def test_the_table_ends_with_the_training_it_shows():
    from rich.console import Console

    stream = live_table(some_records(), 3, Console(file=io.StringIO(), force_terminal=True))
    next(stream)
    stream.close()
    assert list(stream) == []


def test_a_table_left_early_ends_its_line():
    from rich.console import Console

    out = io.StringIO()
    stream = live_table(some_records(), 3, Console(file=out, width=120))
    next(stream)
    stream.close()
    assert out.getvalue().endswith("\n")


def test_without_rich_an_epoch_is_a_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert len(list(live_table(some_records(), 3))) == 3
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.split() == ["epoch", "loss", "metric", "rate", "samples/s", "ETA"]
    assert [line.split()[0] for line in lines] == ["1/3", "2/3", "3/3"]
