import math

import pytest
import torch

from restt.train import TrainConfig, train
from restt.train.guard import Guard, RunState, finite_runs, has_exploded
from tests.train.problems import regression, small_module, weights


def explosive(rows=60):
    """Features up to 3 at ten sites: products so large that a high rate sends the weights to infinity."""
    x, y = regression(rows, sites=10)
    return x * 3, y


@pytest.mark.parametrize(
    ("loss", "exploded"),
    [(0.006, False), (0.05, False), (0.9, False), (1.5, True), (50.0, True), (1e24, True), (math.nan, True)],
)
def test_what_counts_as_an_explosion(loss, exploded):
    assert has_exploded(RunState(0, reference=1.0, lowest=0.005), loss) is exploded


def test_a_run_that_never_learned_may_wander():
    assert not has_exploded(RunState(0, reference=1.0, lowest=0.9), 5.0)
    assert has_exploded(RunState(0, reference=1.0, lowest=0.9), 11.0)


def test_finite_is_told_per_run():
    tensors = {"a": torch.ones(4, 3), "b": torch.ones(4), "n": torch.ones(4, 1, dtype=torch.long)}
    tensors["a"][1, 2] = math.nan
    tensors["b"][3] = math.inf
    assert finite_runs(tensors) == [True, False, True, False]
    assert math.isnan(Guard(tensors, 2, tensors).largest())
    tensors["a"][1, 2] = 7.0
    assert Guard(tensors, 2, tensors).largest() == math.inf
    assert Guard(tensors, 2, {"a": tensors["a"], "n": tensors["n"]}).largest() == 7.0


def test_a_run_goes_back_to_the_state_a_good_epoch_started_from():
    tensors = {"w": torch.zeros(2, 3)}
    guard = Guard(tensors, 2, tensors)
    runs = [RunState(0, reference=1.0), RunState(1, reference=1.0)]
    for epoch in (1, 2, 3):
        tensors["w"] += 1
        for run in runs:
            run.steps += 100
        assert guard.check(runs, [0.5 / epoch, 0.5 / epoch], [3.0 / epoch, 6.0 / epoch], guard.largest()) == []
    tensors["w"] += 1
    for run in runs:
        run.steps += 100
    events = guard.check(runs, [0.1, math.inf], [1.0, math.inf], guard.largest())
    assert [event.kind for event in events] == ["rolled-back"]
    assert tensors["w"].tolist() == [[4.0] * 3, [2.0] * 3]
    assert [run.steps for run in runs] == [400, 200]
    assert [run.guard_scale for run in runs] == [1.0, 0.5]
    assert [run.clip for run in runs] == [math.inf, 2.0]  # the norm of the last good epoch
    assert "rate × 0.5, gradient clipped at 2" in events[0].message


def test_snapshots_of_some_runs_leave_the_others_alone():
    tensors = {"w": torch.arange(6.0)[:, None].repeat(1, 2), "b": torch.zeros(6)}
    guard = Guard(tensors, 2, tensors)
    runs = [RunState(place, reference=1.0, steps=20 if place in (0, 1, 3, 5) else 19) for place in range(6)]
    tensors["w"] += 10
    assert guard.check(runs, [0.5] * 6, [1.0] * 6, guard.largest()) == []
    assert guard.newest["w"][:, 0].tolist() == [10, 11, 2, 13, 4, 15]
    assert guard.proven["w"][:, 0].tolist() == [0, 1, 2, 3, 4, 5]
    assert [run.snapshot_steps for run in runs] == [20, 20, 0, 20, 0, 20]
    assert [run.lowest for run in runs] == [0.5] * 6


def test_a_doubtful_epoch_is_no_snapshot():
    tensors = {"w": torch.zeros(1, 1)}
    guard = Guard(tensors, 2, tensors)
    (run,) = runs = [RunState(0, reference=1.0)]
    for loss in (0.01, 0.01, 0.5, 0.5):
        tensors["w"] += 1
        run.steps += 100
        guard.check(runs, [loss], [1.0], guard.largest())
    assert guard.newest["w"].item() == 2.0
    assert guard.proven["w"].item() == 1.0


def test_weights_that_are_lost_in_the_last_step_are_noticed():
    tensors = {"w": torch.zeros(1, 1)}
    guard = Guard(tensors, 2, tensors)
    runs = [RunState(0, reference=1.0, steps=100)]
    tensors["w"][0] = math.nan
    events = guard.check(runs, [0.3], [1.0], guard.largest())
    assert "non-finite weights" in events[0].message
    assert tensors["w"].item() == 0.0


def test_explosions_are_survived():
    x, y = explosive()
    module = small_module(runs=1, sites=10)
    config = TrainConfig(epochs=60, batch_size=16, lr=0.3, rates="uniform", max_failures=20, seed=0)
    records = list(train(module, x, y, config=config, validation=(x, y)))
    kinds = [event.kind for record in records for event in record.events]
    assert kinds.count("rolled-back") >= 2
    assert kinds[-1] == "finished"
    assert records[-1].lr[0] == pytest.approx(0.3 / 2 ** kinds.count("rolled-back"))
    assert records[-1].validation["loss"][0] < records[0].train_loss[0]
    assert all(value.isfinite().all() for value in weights(module).values())


def test_without_the_guard_the_same_training_is_lost():
    x, y = explosive()
    module = small_module(runs=1, sites=10)
    config = TrainConfig(epochs=60, batch_size=16, lr=0.3, rates="uniform", max_failures=None, seed=0)
    records = list(train(module, x, y, config=config))
    assert not records[-1].train_loss[0] < 10 * records[0].train_loss[0]


def test_the_other_runs_are_untouched_to_the_last_bit():
    x, y = explosive()
    calm, mixed = small_module(runs=3, sites=10), small_module(runs=3, sites=10)
    common = {"epochs": 30, "batch_size": 16, "seed": 0, "max_failures": 30, "rates": "uniform"}
    for _ in train(calm, x, y, config=TrainConfig(lr=(1e-3, 2e-3, 1e-3), **common)):
        pass
    rolled_back = set()
    for record in train(mixed, x, y, config=TrainConfig(lr=(1e-3, 0.5, 1e-3), **common)):
        rolled_back |= {event.run for event in record.events if event.kind == "rolled-back"}
    assert rolled_back == {1}
    for name, value in weights(calm).items():
        assert torch.equal(mixed.state_dict()[name][[0, 2]], value[[0, 2]]), name


def test_a_run_that_keeps_failing_stops_at_its_last_good_state_and_says_so():
    x, y = explosive()
    module = small_module(runs=2, sites=10)
    start = weights(module)
    config = TrainConfig(epochs=8, batch_size=4, lr=(1e4, 1e-3), rates="uniform", max_failures=2, seed=0)
    records = list(train(module, x, y, config=config))
    events = [(record.epoch, event.kind) for record in records for event in record.events if event.run == 0]
    assert events == [(1, "rolled-back"), (2, "rolled-back"), (3, "failed")]
    assert "stopped at the last good state" in records[2].events[0].message
    assert torch.equal(module.chain[0], start["chain"][0])
    assert records[-1].runs == (1,)
    assert len(records) == 8


def test_passing_spikes_do_not_set_it_off():
    x, y = regression()
    module = small_module(runs=4)
    config = TrainConfig(epochs=40, batch_size=8, lr=(1e-3, 1e-2, 3e-2, 1e-1), dropout=0.3, seed=0)
    records = list(train(module, x, y, config=config))
    assert not [event for record in records for event in record.events if event.kind == "rolled-back"]
