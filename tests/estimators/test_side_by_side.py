"""Trainings side by side end as each would alone."""

import copy
import gc
import pickle
import threading
import weakref

import numpy as np
import pytest
import torch
from sklearn.base import clone

import restt
from restt.estimators import ResTTClassifier, ResTTRegressor, side_by_side
from restt.estimators.side_by_side import grouped, train_side_by_side
from restt.estimators.together import Job, fit_together
from tests.estimators.conftest import short_fits

SMALL = {"bond_dim": 2, "epochs": 8, "random_state": 0, "solver": "gradient"}

pytestmark = short_fits


def prepared(x, y, **settings):
    model = ResTTRegressor(**{**SMALL, **settings})
    return model._prepare(model._read_examples(x, y, None, reset=True)).fit


def test_estimators_fitted_together_are_those_fitted_alone(mixed):
    frame, y = mixed
    settings = [{"lr": 0.02}, {"lr": 0.1, "epochs": 5}, {"random_state": 3}, {"runs": 2}, {"early_stopping": 2}]
    models = [ResTTRegressor(**{**SMALL, **own}) for own in settings] + [
        ResTTClassifier(bond_dim=2, epochs=8, random_state=0, loss="mse", lr=0.1)
    ]
    targets = [y] * len(settings) + [np.where(y > 1, "much", "little")]
    jobs = [Job(clone(model), frame, target, None, target is y) for model, target in zip(models, targets, strict=True)]
    fit_together(jobs)
    for job, model, target in zip(jobs, models, targets, strict=True):
        assert job.error is None
        assert job.beside >= 1
        assert job.seconds > 0
        model.fit(frame, target)
        found = job.estimator
        np.testing.assert_allclose(found._members(frame), model._members(frame), rtol=1e-9, atol=1e-12)
        assert found.n_iter_ == model.n_iter_
        assert found.feature_names_in_.tolist() == model.feature_names_in_.tolist()
        np.testing.assert_array_equal(found.site_covariances_, model.site_covariances_)
        assert found.history_.to_frame()["epoch"].tolist() == model.history_.to_frame()["epoch"].tolist()
        for name in ("run", "train_loss", "lr", "gradient_norm"):
            found_values, values = (made.history_.to_frame()[name] for made in (found, model))
            np.testing.assert_allclose(found_values, values, rtol=1e-9, err_msg=name)
        assert [record.events for record in found.history_] == [record.events for record in model.history_]
    assert jobs[-1].estimator.temperature_ == pytest.approx(models[-1].temperature_, rel=1e-9)


def test_sites_of_other_widths_in_one_group(numbers):
    """Knots and levels are learned on each fold's rows, so that sites differ in width between folds."""
    x, y = numbers
    x = np.column_stack([x, np.arange(60) % 3, np.arange(60) // 40])
    jobs = [
        Job(ResTTRegressor(**SMALL, categorical_features=[3, 4]), x[rows], y[rows], None, place)
        for place, rows in enumerate((slice(0, 40), slice(20, 60)))
    ]
    fit_together(jobs)
    widths = [job.estimator.encoding_.widths for job in jobs]
    assert widths[0] != widths[1]
    assert [job.beside for job in jobs] == [2, 2]
    for job in jobs:
        alone = clone(job.estimator).fit(job.x, job.y)
        np.testing.assert_allclose(job.estimator.predict(job.x), alone.predict(job.x), rtol=1e-9)


def test_a_job_that_is_refused_leaves_the_others_alone(numbers):
    x, y = numbers
    jobs = [Job(ResTTRegressor(**{**SMALL, "lr": lr}), x, y, None, 0) for lr in (0.05, -1.0, 0.1)]
    jobs.append(Job(ResTTRegressor(**SMALL), x, np.full(60, np.nan), None, 1))
    fit_together(jobs)
    assert "lr" in str(jobs[1].error)
    assert "Input y contains NaN" in str(jobs[3].error)
    assert [job.beside for job in jobs] == [2, 0, 2, 0]
    assert np.isfinite(jobs[2].estimator.predict(x)).all()


def test_groups_hold_what_can_be_one_module(numbers):
    x, y = numbers
    kinds = [{}, {"bond_dim": 3}, {"lr": 0.3}, {"topology": "linear"}, {"penalty": None}, {"schedule": "constant"}]
    fits = [prepared(x, y, **own) for own in kinds]
    assert sorted(sorted(group) for group in grouped(fits)) == [[0, 2, 4], [1], [3], [5]]


def test_a_group_has_the_same_rows_where_they_fill_it_and_neighbours_the_same_rate(numbers):
    x, y = numbers
    folds = [prepared(x[start : start + 40], y[start : start + 40]) for start in (0, 10, 20)]
    fits = []
    for lr in (0.1, 0.02):
        for fold in folds:
            fits += 2 * [type(fold)(fold.module, fold.rows, None, _with_rate(fold.config, lr), fold.settings)]
    for group in grouped(fits, runs_at_once=4):
        assert len({id(fits[place].rows) for place in group}) == 1
        assert [fits[place].config.lr for place in group] == [0.02, 0.02, 0.1, 0.1]
    assert [len(group) for group in grouped(fits, runs_at_once=5)] == [4, 4, 4]
    assert [len(group) for group in grouped(fits, at_least=2)] == [6, 6]
    [everything] = grouped(fits, runs_at_once=12)
    assert [fits[place].config.lr for place in everything] == 6 * [0.02] + 6 * [0.1]


def _with_rate(config, lr):
    from dataclasses import replace

    return replace(config, lr=lr)


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


def test_the_module_of_an_estimator_is_made_when_it_is_asked_for(numbers):
    x, y = numbers
    jobs = [Job(ResTTRegressor(**SMALL, lr=lr), x, y, None, 0) for lr in (0.05, 0.1, 0.1)]
    fit_together(jobs)
    found, other, pickled = (job.estimator for job in jobs)
    assert all("module_" not in vars(model) and model.__sklearn_is_fitted__() for model in (found, other, pickled))
    whole = weakref.ref(found._unread["module_"].args[0])
    np.testing.assert_allclose(found.predict(x), clone(found).fit(x, y).predict(x), rtol=1e-9)
    assert "module_" in vars(found)
    assert "module_" not in vars(other)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(pickled)).predict(x), other.predict(x))
    # Who has its own does not keep that of all, also where nobody has asked for its history.
    del jobs
    gc.collect()
    assert whole() is None
    assert "history_" in found._unread
    with pytest.raises(AttributeError, match="no attribute 'module_'"):
        _ = clone(found).module_


@pytest.fixture
def broken_rate(monkeypatch):
    """Training with a rate of 0.1 raises an error."""
    real = side_by_side.train

    def train(module, *data, config, **settings):
        if 0.1 in config.lr:
            raise RuntimeError("broken")
        return real(module, *data, config=config, **settings)

    monkeypatch.setattr(side_by_side, "train", train)


def test_a_training_that_fails_leaves_the_others_alone(numbers, broken_rate):
    x, y = numbers
    jobs = [Job(ResTTRegressor(**SMALL, lr=lr), x, y, None, 0) for lr in (0.05, 0.1, 0.02)]
    fit_together(jobs)
    assert [str(job.error) for job in jobs] == ["None", "broken", "None"]
    assert [job.beside for job in jobs] == [1, 0, 1]
    alone = clone(jobs[2].estimator).fit(x, y)
    np.testing.assert_allclose(jobs[2].estimator.predict(x), alone.predict(x), rtol=1e-9)


def test_an_error_in_one_thread_ends_all(numbers, broken_rate):
    x, y = numbers
    threads = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="broken"):
        train_side_by_side([prepared(x, y), prepared(x, y, lr=0.1)], threads=2)
    assert torch.get_num_threads() == threads


def test_fits_on_several_devices_are_those_on_one(numbers):
    x, y = numbers
    rates, several = (0.02, 0.05, 0.1), ["cpu", "cpu"]
    one, other = (
        [prepared(x, y, lr=lr, runs=runs, device=device) for lr in rates for runs in (1, 2)]
        for device in ("cpu", several)
    )
    threads = set()
    train_group = side_by_side._train_group

    def noted(*arguments):
        threads.add(threading.get_ident())
        return train_group(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side_by_side, "_train_group", noted)
        found = train_side_by_side(other)
    assert len(threads) == 2
    for trained, alone in zip(found, train_side_by_side(one), strict=True):
        for name, weights in alone.module.state_dict().items():
            torch.testing.assert_close(trained.module.state_dict()[name], weights, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(trained.outputs, alone.outputs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("early_stopping", [False, 2])
def test_an_ensemble_on_several_devices_is_that_on_one(numbers, early_stopping):
    x, y = numbers
    settings = {**SMALL, "runs": 3, "early_stopping": early_stopping, "dropout": 0.1}
    one, several = (ResTTRegressor(**settings, device=device).fit(x, y) for device in ("cpu", ["cpu", "cpu"]))
    np.testing.assert_allclose(several._members(x), one._members(x), rtol=1e-9, atol=1e-12)
    assert several.n_iter_ == one.n_iter_
    assert [record.events for record in several.history_] == [record.events for record in one.history_]


def test_a_model_with_a_list_of_devices_is_saved_and_cloned(numbers, tmp_path):
    x, y = numbers
    model = clone(ResTTRegressor(**SMALL, runs=2, device=["cpu", "cpu"])).fit(x, y)
    model.save(tmp_path / "model")
    assert (restt.load(tmp_path / "model").predict(x) == model.predict(x)).all()
    with pytest.raises(ValueError, match=r"device must name devices of one kind|device is 'cuda:0'"):
        ResTTRegressor(**SMALL, device=["cpu", "cuda:0"]).fit(x, y)


def test_the_history_of_a_fit_beside_others_is_read_when_it_is_asked_for(numbers):
    x, y = numbers
    jobs = [Job(ResTTRegressor(**{**SMALL, "lr": lr, "epochs": epochs}), x, y, None, 0) for lr, epochs in EPOCHS]
    fit_together(jobs)
    for job, (_, epochs) in zip(jobs, EPOCHS, strict=True):
        model = job.estimator
        assert "history_" not in vars(model)
        assert model.n_iter_ == epochs
        for again in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            assert [record.epoch for record in again.history_] == list(range(1, epochs + 1))
        assert model.history_ is model.history_
        assert [len(record.train_loss) for record in model.history_] == [1] * epochs
    assert "history_" not in vars(clone(model))
    model.fit(x[:30], y[:30])
    assert len(model.history_) == model.n_iter_ == epochs
    with pytest.raises(AttributeError, match="history_"):
        ResTTRegressor().history_  # noqa: B018
    jobs = [Job(model.set_params(epochs=2), x, y, None, 0)]
    fit_together(jobs)
    assert len(model.history_) == 2


EPOCHS = ((0.02, 3), (0.05, 8), (0.1, 5))
