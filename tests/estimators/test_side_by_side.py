"""Trainings side by side end as each would alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from restt.estimators import ResTTNetRegressor, side_by_side
from restt.estimators.side_by_side import grouped, train_side_by_side
from tests.estimators.conftest import short_fits

SMALL = {"bond_dim": 2, "epochs": 8, "random_state": 0}

pytestmark = short_fits


def prepared(x, y, **settings):
    model = ResTTNetRegressor(**{**SMALL, **settings})
    return model._prepare(model._read_examples(x, y, None, reset=True)).fit


@pytest.mark.parametrize("runs_at_once", [None, 3])
def test_fits_side_by_side_are_those_alone(mixed, runs_at_once):
    frame, y = mixed
    settings = [{"lr": 0.02}, {"lr": 0.1, "epochs": 5}, {"random_state": 3}, {"runs": 2}, {"early_stopping": 2}]
    fits = [prepared(frame, y, **own) for own in settings]
    for found, own in zip(train_side_by_side(fits, runs_at_once), settings, strict=True):
        alone = ResTTNetRegressor(**{**SMALL, **own}).fit(frame, y)
        for name, weights in alone.module_.named_parameters():
            torch.testing.assert_close(found.module.get_parameter(name), weights, rtol=1e-9, atol=1e-12)
        assert found.seconds > 0
        assert found.history.to_frame()["epoch"].tolist() == alone.history_.to_frame()["epoch"].tolist()
        for name in ("run", "train_loss", "lr", "gradient_norm"):
            of_each = (history.to_frame()[name] for history in (found.history, alone.history_))
            np.testing.assert_allclose(*of_each, rtol=1e-9, err_msg=name)
        assert [record.events for record in found.history] == [record.events for record in alone.history_]


def test_sites_of_other_widths_in_one_group(numbers):
    """Knots and levels are learned on each fold's rows, so that sites differ in width between folds."""
    x, y = numbers
    x = np.column_stack([x, np.arange(60) % 3, np.arange(60) // 40])
    parts = [np.arange(40), np.arange(60)]
    fits = [prepared(x[rows], y[rows], categorical_features=[3, 4]) for rows in parts]
    assert fits[0].module.feature_dims != fits[1].module.feature_dims
    assert len(grouped(fits)) == 1
    for found, rows in zip(train_side_by_side(fits), parts, strict=True):
        alone = ResTTNetRegressor(**SMALL, categorical_features=[3, 4]).fit(x[rows], y[rows])
        for name, weights in alone.module_.named_parameters():
            torch.testing.assert_close(found.module.get_parameter(name), weights, rtol=1e-9, atol=1e-12)


def test_groups_hold_what_can_be_one_module(numbers):
    x, y = numbers
    kinds = [{}, {"bond_dim": 3}, {"lr": 0.3}, {"topology": "linear"}, {"penalty": None}, {"schedule": "constant"}]
    fits = [prepared(x, y, **own) for own in kinds]
    assert sorted(sorted(group) for group in grouped(fits)) == [[0, 2, 4], [1], [3], [5]]


def test_groups_share_rows_and_are_as_many_as_threads(numbers):
    x, y = numbers
    folds = [prepared(x[start : start + 40], y[start : start + 40]) for start in (0, 10, 20)]
    fits = [replace(fold, config=replace(fold.config, lr=lr)) for lr in (0.1, 0.02) for fold in folds]
    for group in grouped(fits, runs_at_once=2):
        assert len({id(fits[place].rows) for place in group}) == 1
        assert [fits[place].config.lr for place in group] == [0.02, 0.1]
    assert [len(group) for group in grouped(fits, at_least=2)] == [3, 3]
    assert [len(group) for group in grouped(fits, runs_at_once=100)] == [6]


def test_a_group_is_as_large_as_the_cache(numbers, monkeypatch):
    x, y = numbers
    fits = [prepared(x, y)] * 12
    monkeypatch.setattr(side_by_side, "CACHED_BYTES", 1)
    assert len(grouped(fits)) == 12
    monkeypatch.setattr(side_by_side, "CACHED_BYTES", 1e9)
    assert len(grouped(fits)) == 1


def test_modules_that_are_given_stay_as_they_were(numbers):
    x, y = numbers
    fit = prepared(x, y)
    before = fit.module.chain.detach().clone()
    first, second = train_side_by_side([fit, fit])
    assert torch.equal(fit.module.chain, before)
    assert torch.equal(first.module.chain, second.module.chain)
    assert not torch.equal(first.module.chain, before)
    assert first.module.chain.data_ptr() != second.module.chain.data_ptr()
    # One fit that is kept does not keep the weights of all others.
    assert first.module.chain.untyped_storage().nbytes() == first.module.chain.nbytes
