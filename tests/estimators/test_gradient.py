"""Parts of a training: whose encoded rows it may take, its settings, and what is said of one that failed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from restt import ResTTNetClassifier, ResTTNetRegressor
from restt.estimators import gradient
from restt.estimators.gradient import Prepared, encode_stream, train_config, unless_equal, why_it_failed
from restt.estimators.settings import NET
from restt.estimators.streams import Sample
from restt.train import Event
from tests.estimators.conftest import QUICK


def prepared(numbers, **options) -> tuple[ResTTNetRegressor, Prepared]:
    model = ResTTNetRegressor(**QUICK, **options)
    return model, model._prepare(model._read_examples(*numbers, None, reset=True))


def test_encoded_rows_are_those_of_other_seeds_where_none_are_held_out(numbers):
    for options, expected in (({}, (True, True)), ({"early_stopping": True}, (True, False))):
        model, first = prepared(numbers, **options)
        assert tuple(first.has_rows_of(first.settings, seed) for seed in (first.seed, first.seed + 1)) == expected
        assert not first.has_rows_of(replace(first.settings, precision="float32"), first.seed)
        given = model._read_examples(*numbers, None, reset=True)
        assert model._prepare(given, like=first).rows is first.rows
        again = model.set_params(random_state=7)._prepare(given, like=first)
        assert (again.rows is first.rows) == expected[1]
        assert again.judged is (again.rows if again.held is None else again.held).examples


@pytest.mark.parametrize(
    ("early_stopping", "once", "expected"),
    [
        (False, False, (30, "cosine", None, "last")),
        (True, False, (30, "cosine", 20, "best")),
        (5, False, (30, "cosine", 5, "best")),
        (True, True, (1, "constant", None, "last")),
    ],
)
def test_settings_of_a_training_and_of_a_single_pass(numbers, early_stopping, once, expected):
    model, given = prepared(numbers, early_stopping=early_stopping, schedule="cosine", dropout=0.2)
    found = train_config(model, "mse", given.target, given.settings, 4000, 3, once=once)
    assert (found.epochs, found.schedule, found.patience, found.keep) == expected
    assert (found.lr, found.dropout, found.seed, found.loss) == (model.lr, 0.2, 3, "mse")
    assert found.penalty.linear == pytest.approx(0.01)  # half of that of 2,000 rows


@pytest.mark.parametrize("runs", [1, 3])
def test_a_failed_training_says_why(numbers, monkeypatch, runs):
    _, given = prepared(numbers, runs=runs)
    seen, ratio = [], [NET.failed_ratio]
    target = SimpleNamespace(
        shortfall=lambda outputs, targets, weights: seen.append(len(targets)) or ratio[0], constant_guess="a guess"
    )
    monkeypatch.setattr(gradient, "NET", replace(NET, judged_rows=7))
    given = replace(given, target=target)
    events = [Event("failed", "too steep", 0), Event("finished", "done", 1)]
    stopped = "the training was" if runs == 1 else "1 of 3 runs were"
    told = f"{stopped} stopped because it exploded again and again (too steep)"
    assert why_it_failed(given.module, given, events[1:]) == ""
    assert why_it_failed(given.module, given, events) == told
    ratio[0] = 1.02
    worse = "the fit ends worse than a guess on its own training rows: its loss is 1.02 times as large"
    assert why_it_failed(given.module, given, events[1:]) == worse
    assert why_it_failed(given.module, given, events) == f"{told}; {worse}"
    ratio[0] = float("nan")
    assert "its loss is nan times" in why_it_failed(given.module, given, [])
    assert set(seen) == {7}  # of 60 rows every ninth
    nothing = replace(given, rows=replace(given.rows, loss_weights=np.zeros(60)))
    assert why_it_failed(given.module, nothing, []) == ""


def test_a_stream_is_encoded_without_held_out_rows_at_the_mean_weight_of_its_sample(numbers):
    x, y = numbers
    model = ResTTNetClassifier(**QUICK, class_weight={False: 1.0, True: 4.0})
    given = model._read_examples(x, y > 0, np.full(60, 0.5), reset=True)
    whole = model._prepare(given)
    assert encode_stream(given, None, whole.encoding, whole.target) is None
    sampled = replace(given, sample=Sample(None, np.arange(100, 160)))
    found = encode_stream(sampled, sampled.take(np.array([3, 5])), whole.encoding, whole.target)
    assert found.left_out.tolist() == [103, 105]
    assert found.mean_weight == pytest.approx(1 + 3 * np.mean(y > 0))
    for held in (None, given):
        assert encode_stream(sampled, held, whole.encoding, whole.target).left_out.tolist() == []


def test_equal_weights_are_none():
    assert unless_equal(np.full(3, 2.0)) is None
    assert unless_equal(weights := np.array([2.0, 1.0])) is weights
