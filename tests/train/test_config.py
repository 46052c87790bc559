import dataclasses
import json
import math

import pytest

from restt.train import PAPER_RATES, Augmentation, Penalty, TrainConfig
from restt.train.config import rate_factor
from restt.train.runs import per_run


def test_the_papers_settings():
    config = TrainConfig.paper(lr=PAPER_RATES[2])
    chosen = (config.optimizer, config.epochs, config.batch_size, config.weight_decay, config.lr, config.schedule)
    assert chosen == ("adam", 100, 512, 1e-6, 1e-4, "constant")
    assert config.loss == "mse"


def test_a_config_is_frozen_and_plain():
    config = TrainConfig(lr=(0.1, 0.2), penalty=Penalty(chain=(1.0, 2.0)), augment=Augmentation(shift=1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.lr = 1.0
    plain = config.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["lr"] == [0.1, 0.2]
    assert plain["penalty"] == {"chain": [1.0, 2.0], "linear": 0.0, "head": 0.0, "towards": "zero"}
    assert plain["augment"]["shift"] == 1


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"lr": 0.0}, ValueError, "lr must be finite and above 0, got 0.0"),
        ({"lr": (0.1, -1.0)}, ValueError, "lr .* got -1.0"),
        ({"lr": ()}, ValueError, "lr .* empty"),
        ({"epochs": 0}, ValueError, "epochs must be at least 1, got 0"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"dropout": 1.0}, ValueError, "dropout must be below 1"),
        ({"ema": 1.0}, ValueError, "ema must be below 1"),
        ({"loss": "l1"}, ValueError, "loss must be one of"),
        ({"schedule": "step"}, ValueError, "schedule must be one of"),
        ({"optimizer": "sgd"}, ValueError, "optimizer"),
        ({"weight_decay": -1e-3}, ValueError, "weight_decay"),
        ({"penalty": 0.1}, TypeError, "penalty must be a restt.train.Penalty, got 0.1"),
        ({"max_failures": -1}, ValueError, "max_failures"),
        ({"seed": -1}, ValueError, "seed"),
        ({"lr": "fast"}, TypeError, "lr must be a number"),
        ({"epochs": (1, True)}, TypeError, "epochs must be an integer, got True"),
        ({"lr": (0.1, [0.1])}, TypeError, "lr must be a number"),
    ],
)
def test_bad_settings_are_named(settings, error, message):
    with pytest.raises(error, match=message):
        TrainConfig(**settings)


def test_values_per_run_must_fit_the_runs():
    with pytest.raises(ValueError, match=r"lr must be one value or one for each of the 3 run\(s\), got 2"):
        per_run("lr", (0.1, 0.2), 3)


@pytest.mark.parametrize("settings", [{"chain": -1.0}, {"head": (0.1, float("nan"))}])
def test_bad_penalties_are_named(settings):
    with pytest.raises(ValueError, match=rf"penalty\.{next(iter(settings))}"):
        Penalty(**settings)


def factors(schedule, steps=10, warmup=0.0):
    return [rate_factor(schedule, step, steps, warmup) for step in range(steps)]


def test_constant_keeps_the_rate():
    assert factors("constant") == [1.0] * 10


def test_cosine_falls_from_one_along_the_cosine():
    assert factors("cosine") == pytest.approx([0.5 * (1 + math.cos(math.pi * t / 10)) for t in range(10)])


def test_warmup_rises_in_a_line_and_stays():
    assert factors("warmup", warmup=4.0) == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1])


def test_warmup_then_cosine_reaches_one_and_falls_over_the_rest():
    found = factors("warmup-cosine", warmup=2.0)
    assert found[:2] == [0.5, 1.0]
    assert found[2:] == pytest.approx([0.5 * (1 + math.cos(math.pi * t / 8)) for t in range(8)])


def test_warmup_longer_than_the_training_never_reaches_one():
    assert factors("warmup-cosine", steps=3, warmup=6.0) == pytest.approx([1 / 6, 2 / 6, 3 / 6])
