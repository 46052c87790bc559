"""The classifier's own choice among candidates."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from scipy.special import log_softmax
from sklearn.metrics import log_loss

import restt
from restt.estimators import ResTTClassifier, class_trains, selection
from restt.estimators.class_rows import ClassSettings
from restt.estimators.classes import log_loss as logit_loss
from restt.estimators.selection import Average, Judged, greedy_weights
from restt.prior.rounding import train_values
from tests.estimators.class_problems import class_rows


def interacting(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes by the sign of a product, among three columns."""
    x = np.random.default_rng(seed).standard_normal((rows, 3))
    return x, np.where(x[:, 0] * x[:, 1] > 0, "same", "other")


@pytest.fixture(scope="module")
def selected() -> ResTTClassifier:
    return ResTTClassifier(random_state=0).fit(*interacting(90))


def test_defaults_choose_among_candidates(selected):
    assert selected.fit_report_["members"].keys() <= selected.candidates_.keys()
    shares = [share for _, share in selected.candidates_.values()]
    assert sum(shares) == pytest.approx(1.0)
    assert {name.split(",")[0] for name in selected.candidates_} == {
        "shares",
        "linear",
        "process",
        "additive",
        "gaussian",
        "train",
    }
    x, y = interacting(400, seed=1)
    assert selected.score(x, y) > 0.85


def test_columns_that_say_nothing_do_not_blur_a_border():
    """Seven columns of noise beside the three whose signs decide."""
    x = np.random.default_rng(0).uniform(-1, 1, (2250, 10))
    y = np.where(x[:, 0] * x[:, 1] * x[:, 2] > 0, "even", "odd")
    model = ResTTClassifier(random_state=0).fit(x[:250], y[:250])
    assert model.score(x[250:], y[250:]) > 0.92


def test_shells_are_sums_of_curves():
    """Classes by the distance from the origin, a sum over columns."""
    x = np.random.default_rng(0).standard_normal((1200, 6))
    y = np.digitize((x**2).sum(axis=1), [4, 7])
    model = ResTTClassifier(random_state=0).fit(x[:200], y[:200])
    assert log_loss(y[200:], model.predict_proba(x[200:])) < 0.45


@pytest.mark.usefixtures("hasty")
def test_the_module_is_the_average_of_the_chosen(monkeypatch):
    """The mean over runs is the sum of the members, of which trains are the mean over folds."""
    kept = {}

    def members_kept(rows, order, *others):
        kept["states"], kept["members"] = rows.ordered(order).states, members(rows, order, *others)
        return kept["members"]

    members = selection._members
    monkeypatch.setattr(selection, "_members", members_kept)
    model = ResTTClassifier(random_state=0).fit(*interacting(60))
    expected = sum(weight * train_values(cores, kept["states"]) for cores, weight in kept["members"])
    got = model.module_(torch.stack(kept["states"], dim=1)).mean(0).detach()  # columns of equal width
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=1e-9)


@pytest.mark.usefixtures("hasty")
def test_the_same_seed_gives_the_same_model_whatever_the_order_of_rows():
    x, y = interacting(90)
    first, again = (ResTTClassifier(random_state=0).fit(x, y).predict_proba(x) for _ in range(2))
    order = np.random.default_rng(3).permutation(90)
    shuffled = ResTTClassifier(random_state=0).fit(x[order], y[order])
    assert np.array_equal(first, again)
    assert shuffled.predict_proba(x) == pytest.approx(first, abs=1e-9)


@pytest.mark.usefixtures("hasty")
def test_a_weight_of_2_is_a_repeated_row():
    x, y = interacting(60)
    weights = np.where(np.arange(60) < 20, 2, 1)
    weighted = ResTTClassifier(random_state=0).fit(x, y, sample_weight=weights)
    repeated = ResTTClassifier(random_state=0).fit(np.repeat(x, weights, axis=0), np.repeat(y, weights))
    assert weighted.predict_proba(x) == pytest.approx(repeated.predict_proba(x), abs=1e-6)


def test_saved_and_loaded_it_predicts_the_same(selected, tmp_path):
    x, _ = interacting(50, seed=2)
    loaded = restt.load(selected.save(tmp_path / "model"))
    assert loaded.fit_report_ == selected.fit_report_
    assert np.array_equal(loaded.predict_proba(x), selected.predict_proba(x))


def test_an_exported_graph_gives_the_same_probabilities(selected, tmp_path):
    x, _ = interacting(50, seed=2)
    session = onnxruntime.InferenceSession(selected.export(tmp_path / "model.onnx"))
    assert session.run(None, {"x": x})[0] == pytest.approx(selected.predict_proba(x), abs=1e-6)


def test_explanations_add_up_to_the_log_odds(selected):
    x, _ = interacting(20, seed=2)
    found = selected.explain_local(x)
    logits = selected.decision_function(x)
    values = np.asarray(found.values)
    total = values.sum(axis=1) + np.asarray(found.base)
    odds = total[:, 1] - total[:, 0] if total.ndim == 2 and total.shape[1] == 2 else total.ravel()
    assert odds == pytest.approx(logits, abs=1e-6)


@pytest.mark.usefixtures("hasty")
def test_a_bond_bounds_every_candidate():
    x, y = interacting(40)
    model = ResTTClassifier(bond_dim=3, random_state=0).fit(x, y)
    assert model.module_.bond_dim <= 3
    assert model.score(x, y) > 0.8


def test_quick_compares_few_candidates(selected):
    model = ResTTClassifier(effort="quick", random_state=0).fit(*interacting(60))
    assert sum(name.startswith("train") for name in model.candidates_) == 1
    assert len(model.candidates_) < len(selected.candidates_)


def test_too_few_rows_to_judge_by_are_a_logistic_regression():
    x, y = interacting(9)
    assert ResTTClassifier(random_state=0).fit(x, y).fit_report_["members"] == {"linear, factor 1": 1.0}
    assert ResTTClassifier(random_state=0).fit(x, np.zeros(9)).predict(x).tolist() == [0.0] * 9


def test_two_dozen_rows_are_not_taken_for_certain():
    """In the mean no worse than the shares of the classes, which have 0.69; gradients alone had up to 1.08."""
    losses = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((1024, 6))
        y = np.where(x[:, 0] + rng.standard_normal(1024) > 0, "up", "down")
        model = ResTTClassifier(random_state=0).fit(x[:24], y[:24])
        losses.append(log_loss(y[24:], model.predict_proba(x[24:])))
    assert np.mean(losses) < 0.69


def test_borders_may_be_thresholds():
    """The class changes at a threshold of either column."""
    rng = np.random.default_rng(1)
    x = rng.uniform(size=(1400, 3))
    y = ((x[:, 0] > 0.3) ^ (x[:, 1] > 0.6) ^ (rng.random(1400) < 0.05)).astype(int)
    model = ResTTClassifier(random_state=0).fit(x[:300], y[:300])
    assert model.score(x[300:], y[300:]) > 0.92


def test_hundreds_of_columns_are_a_regression():
    """Ten factors behind 600 columns: gradients alone had a log-loss of 0.39."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((500, 10))
    x = factors @ rng.standard_normal((10, 600)) + 1.5 * rng.standard_normal((500, 600))
    y = (factors[:, 0] + 0.5 * factors[:, 1] + 0.3 * rng.standard_normal(500) > 0).astype(int)
    model = ResTTClassifier(random_state=0).fit(x[:100], y[:100])
    assert {name.split(",")[0] for name in model.candidates_} == {"shares", "linear", "additive", "gaussian"}
    assert log_loss(y[100:], model.predict_proba(x[100:])) < 0.3


@pytest.mark.usefixtures("hasty")
def test_columns_that_would_take_too_long_are_straight_lines(monkeypatch):
    with_settings(monkeypatch, kernel_work=90 * 90 * 3 - 1)
    model = ResTTClassifier(random_state=0).fit(*interacting(90))
    assert {name.split(",")[0] for name in model.candidates_} == {"shares", "linear", "train"}


@pytest.mark.usefixtures("hasty")
def test_trains_that_would_have_no_share_end_with_the_first_folds(monkeypatch):
    with_settings(monkeypatch, raced_rows=30)
    x, product = interacting(150)
    found = []
    for y in (x[:, 0] > 0, product):
        model = ResTTClassifier(random_state=0).fit(x, y)
        found.append(any(name.startswith("train") for name in model.candidates_))
    assert found == [False, True]


def unroundable(rows: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((rows, 12))
    return x, ((x[:, :6] * x[:, 6:]).sum(axis=1) > 0).astype(int)


@pytest.mark.usefixtures("hasty")
def test_products_that_no_bond_holds_are_not_rounded(monkeypatch, tmp_path):
    """The exact sum is what is predicted, explained, saved and exported."""
    with_settings(monkeypatch, largest_bond=4, first_bonds=(2,), train_penalties=())
    x, y = unroundable(90)
    model = ResTTClassifier(random_state=0).fit(x, y)
    assert isinstance(model.module_, restt.DiagonalTT)
    assert model.fit_report_["rounding_error"] == 0
    rounded = ResTTClassifier(bond_dim=4, random_state=0).fit(x, y)
    assert rounded.module_.bond_dim <= 4 < model.module_.bond_dim
    assert rounded.fit_report_["rounding_error"] > 0.03
    new, _ = unroundable(40)
    loaded = restt.load(model.save(tmp_path / "model"))
    assert np.array_equal(loaded.predict_proba(new), model.predict_proba(new))
    session = onnxruntime.InferenceSession(model.export(tmp_path / "model.onnx"))
    assert session.run(None, {"x": new})[0] == pytest.approx(model.predict_proba(new), abs=1e-6)
    found = model.explain_local(new[:5])
    total = np.asarray(found.values).sum(axis=1) + np.asarray(found.base)
    assert total.ravel() == pytest.approx(model.decision_function(new[:5]), abs=1e-6)


@pytest.mark.usefixtures("hasty")
def test_a_category_of_many_levels_is_no_single_state():
    """Each of 150 levels is less than a hundredth of the rows; all of them as one had a log-loss of 0.66."""
    rng = np.random.default_rng(0)
    levels, size = np.arange(1800) % 150, rng.standard_normal(1800)
    logit = 2 * rng.standard_normal(150)[levels] + size
    y = (rng.random(1800) < 1 / (1 + np.exp(-logit))).astype(int)
    frame = pd.DataFrame({"level": [f"l{level}" for level in levels], "size": size})
    model = ResTTClassifier(random_state=0).fit(frame[:800], y[:800])
    assert len(model.encoding_.columns[0].levels) == 150
    assert log_loss(y[800:], model.predict_proba(frame[800:])) < 0.55


@pytest.mark.usefixtures("hasty")
def test_classes_of_one_row_are_kept():
    x, y = interacting(60)
    y[7] = "rare"
    model = ResTTClassifier(random_state=0).fit(x, y)
    assert model.classes_.tolist() == ["other", "rare", "same"]
    assert model.predict_proba(x).sum(axis=1) == pytest.approx(np.ones(60))
    assert model.predict_proba(x)[np.arange(60) != 7, 1].max() < 0.5


@pytest.mark.usefixtures("hasty")
@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_two_hundred_classes_of_three_rows():
    rng = np.random.default_rng(0)
    y = np.arange(600) % 200
    x = np.column_stack([y // 20 + 0.1 * rng.standard_normal(600), y % 20 + 0.1 * rng.standard_normal(600)])
    model = ResTTClassifier(random_state=0).fit(x, y)
    assert model.score(x, y) > 0.2
    assert log_loss(y, model.predict_proba(x)) < 0.9 * np.log(200)


@pytest.mark.usefixtures("hasty")
def test_columns_of_any_kind():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": rng.standard_normal(80),
            "colour": rng.choice(["red", "green", "blue"], 80),
            "flat": np.ones(80),
        }
    )
    y = (frame["colour"] == "red").to_numpy() ^ (frame["size"] > 0).to_numpy()
    frame.loc[:4, "size"] = np.nan
    model = ResTTClassifier(random_state=0).fit(frame, y)
    assert model.score(frame, y) > 0.8
    with pytest.warns(UserWarning, match="unseen in the fit"):
        model.predict(pd.DataFrame({"size": [0.0], "colour": ["violet"], "flat": [1.0]}))


@pytest.mark.usefixtures("hasty")
def test_balanced_weights_raise_the_rare_class():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 2))
    y = (x[:, 0] + 0.7 * rng.standard_normal(120) > 1.4).astype(int)
    plain = ResTTClassifier(random_state=0).fit(x, y)
    balanced = ResTTClassifier(random_state=0, class_weight="balanced").fit(x, y)
    assert balanced.predict_proba(x)[:, 1].mean() > plain.predict_proba(x)[:, 1].mean() + 0.1


def with_settings(monkeypatch, **changes) -> None:
    found = replace(ClassSettings.of_effort("auto"), **changes)
    monkeypatch.setattr(ClassSettings, "of_effort", lambda effort: found)


@pytest.mark.usefixtures("hasty")
def test_a_budget_drops_trained_candidates(monkeypatch):
    with_settings(monkeypatch, trained_work=1.0)
    model = ResTTClassifier(random_state=0).fit(*interacting(60))
    families = {name.split(",")[0] for name in model.candidates_}
    assert families == {"shares", "linear", "process", "additive", "gaussian"}


@pytest.mark.usefixtures("hasty")
def test_modes_of_many_rows_and_classes_have_fewer_axes(monkeypatch):
    x, y = interacting(90)
    with_settings(monkeypatch, fewest_axes=4, mode_work=1.0)
    assert ResTTClassifier(random_state=0).fit(x, y).score(x, y) > 0.5


@pytest.mark.usefixtures("hasty")
def test_a_module_that_would_be_too_large_loses_its_least_members(monkeypatch):
    with_settings(monkeypatch, most_weights=1)
    assert ResTTClassifier(random_state=0).fit(*interacting(60)).module_.runs <= 3


def rewritten_tables(x: np.ndarray) -> dict[str, np.ndarray]:
    """The same table written in other ways."""
    return {
        "columns permuted": x[:, ::-1],
        "columns rescaled": x * np.logspace(-3, 3, x.shape[1]) + 5.0,
        "float32": x.astype(np.float32),
        "a constant column": np.insert(x, 1, 7.0, axis=1),
    }


@pytest.fixture(scope="module")
def noisy() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Noisy classes with an interaction and a column of few values, and their probabilities."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.standard_normal((120, 3)), rng.integers(0, 3, 120)]).astype(np.float32).astype(float)
    y = (x[:, 0] * x[:, 1] + 0.5 * x[:, 3] + 0.5 * rng.standard_normal(120) > 0.5).astype(int)
    return x, y, ResTTClassifier(effort="quick", random_state=0).fit(x, y).predict_proba(x)


@pytest.mark.parametrize("way", ["columns permuted", "columns rescaled", "float32", "a constant column"])
def test_probabilities_do_not_depend_on_how_a_table_is_written(noisy, way):
    x, y, plain = noisy
    table = rewritten_tables(x)[way]
    again = ResTTClassifier(effort="quick", random_state=0).fit(table, y).predict_proba(table)
    assert np.abs(again - plain).max() < 0.02


@pytest.mark.usefixtures("hasty")
def test_many_rows_are_judged_on_a_sample_and_all_of_them_fitted(monkeypatch):
    with_settings(monkeypatch, most_rows=300, step_rows=100, many_steps=40, batch=64)
    x, y = interacting(700)
    y[650] = "rare"
    model = ResTTClassifier(random_state=0).fit(x, y)
    assert sum(share for _, share in model.candidates_.values()) == pytest.approx(1.0)
    assert "rare" in model.classes_
    held_out, labels = interacting(400, seed=1)
    assert model.score(held_out, labels) > 0.85


@pytest.mark.usefixtures("hasty")
def test_one_row_more_than_the_sample_changes_little(monkeypatch):
    x, y = interacting(121)
    with_settings(monkeypatch, most_rows=120, step_rows=120, many_steps=10)
    one_more = ResTTClassifier(random_state=0).fit(x, y).predict_proba(x)
    all_judged = ResTTClassifier(random_state=0).fit(x[:120], y[:120]).predict_proba(x)
    assert np.abs(one_more - all_judged).mean() < 0.1


@pytest.mark.usefixtures("hasty")
def test_trains_with_a_share_are_trained_on_with_all_rows(monkeypatch):
    """Fewer runs of more rows; penalties are shares of a mean over rows."""
    seen = []

    def noting(module, vectors, rows, penalties, subset, rate, epochs, batch, *others):
        seen.append((module.runs, len(rows), batch, subset is None, penalties[0]))
        return training(module, vectors, rows, penalties, subset, rate, epochs, batch, *others)

    training = class_trains._train
    monkeypatch.setattr(class_trains, "_train", noting)
    monkeypatch.setattr(selection, "greedy_weights", lambda logits, *others: np.eye(len(logits))[-1])
    with_settings(monkeypatch, most_rows=100, step_rows=100, many_steps=4, batch=64)
    ResTTClassifier(random_state=0).fit(*interacting(250))
    penalty = ClassSettings.of_effort("auto").train_penalties[-1]
    assert seen[-1] == (1, 250, 64, True, pytest.approx(penalty * 100 / 250))
    ResTTClassifier(random_state=0).fit(*interacting(90))
    assert seen[-1] == (3, 90, None, True, penalty)


def chosen_weights(logits: np.ndarray, labels: np.ndarray, weights: np.ndarray, costs=None) -> np.ndarray:
    return greedy_weights(logits, labels, weights, np.zeros(len(logits)) if costs is None else costs, 20, 2.0)


def noisy_logits(rng: np.random.Generator, labels: np.ndarray, noise: float) -> np.ndarray:
    return 2.0 * np.eye(2)[labels] + noise * rng.standard_normal((len(labels), 2))


def test_shares_outside_each_fold_and_the_order_of_sites():
    rng = np.random.default_rng(0)
    table = rng.random((40, 4))
    table[:, 1] = 3.0
    rows = class_rows(table, rng.integers(0, 3, 40), [], ClassSettings())
    found = selection._held_out_shares(rows)
    for fold in range(5):
        part = rows.folds != fold
        counts = np.bincount(rows.labels[part], rows.weights[part], minlength=3) + 1 / 3
        own = rows.folds == fold
        np.testing.assert_allclose(found[own], np.tile(np.log(counts / counts.sum()), (own.sum(), 1)))
    # By falling relevance, columns of one value after the first.
    assert selection._site_order(rows, np.array([1.0, 9.0, 3.0, 2.0])) == (2, 1, 3, 0)
    device = selection.device_of(rows, ResTTClassifier(device="cpu"))
    assert (device.batch_size, device.epochs) == (None, ClassSettings().train_steps)
    assert device.step_work == 40 * sum(site.width for site in rows.sites) * ClassSettings().train_bond ** 2 * 5
    assert (
        selection.device_of(replace(rows, bond=3), ResTTClassifier(device="cpu")).step_work == 9 / 64 * device.step_work
    )


def test_candidates_that_err_apart_are_averaged():
    rng = np.random.default_rng(0)
    labels, weights = rng.integers(0, 2, 300), np.ones(300)
    logits = np.stack([noisy_logits(rng, labels, noise) for noise in (1.5, 1.5, 1.6)])
    found = chosen_weights(logits, labels, weights)
    assert found.sum() == pytest.approx(1.0)
    assert (found > 0.1).all()
    alone = logit_loss(logits, labels, weights)
    assert float(logit_loss(np.tensordot(found, logits, 1), labels, weights)) < alone.min()


def test_a_candidate_that_is_far_off_somewhere_takes_no_part():
    rng = np.random.default_rng(0)
    labels, weights = rng.integers(0, 2, 200), np.ones(200)
    good = noisy_logits(rng, labels, 1.0)
    wild = 3 * noisy_logits(rng, labels, 0.5)
    wild[0] = [1000.0, 0.0] if labels[0] else [0.0, 1000.0]
    assert logit_loss(wild, labels, weights) > 2 * logit_loss(good, labels, weights)
    assert chosen_weights(np.stack([good, wild]), labels, weights).tolist() == [1.0, 0.0]


def test_rows_count_by_weight():
    logits = np.array([[[2.0, 0.0], [2.0, 0.0]], [[0.0, 2.0], [0.0, 2.0]]])
    labels = np.array([0, 1])
    assert chosen_weights(logits, labels, np.array([5.0, 1.0])).argmax() == 0
    assert chosen_weights(logits, labels, np.array([1.0, 5.0])).argmax() == 1


def test_rounds_add_the_candidate_that_lowers_the_loss_and_the_costs_of_the_average_most():
    rng = np.random.default_rng(3)
    labels, weights, costs = rng.integers(0, 3, 60), rng.random(60) + 0.5, np.array([0.0, 1.0, 4.0, 0.0])
    sizes = np.array([0.5, 1.0, 1.5, -2.0])[:, None, None]
    logits = sizes * np.eye(3)[labels] + rng.standard_normal((4, 60, 3))

    def loss(counts: np.ndarray) -> float:
        average = np.tensordot(counts, logits, 1) / counts.sum()
        own = -np.average(log_softmax(average, axis=1)[np.arange(60), labels], weights=weights)
        return own + counts @ costs / counts.sum() / weights.sum()

    alone = np.array([loss(one) for one in np.eye(4)])
    assert (alone > 2 * alone.min()).tolist() == [False, False, False, True]
    path = [np.zeros(4)]
    for _ in range(7):
        path.append(min((path[-1] + one for one in np.eye(4)[:3]), key=loss))
    best = min(path[1:], key=loss)
    assert (best > 0).sum() > 1
    assert greedy_weights(logits, labels, weights, costs, 7, 2.0) == pytest.approx(best / best.sum(), abs=1e-12)


def test_costs_count_less_with_more_rows():
    logits = np.stack([np.tile([1.0, 0.0], (40, 1)), np.tile([1.5, 0.0], (40, 1))])
    labels, costs = np.zeros(40, dtype=int), np.array([0.0, 3.0])
    assert chosen_weights(logits, labels, np.ones(40), costs).argmax() == 1
    assert chosen_weights(logits[:, :10], labels[:10], np.ones(10), costs).argmax() == 0


def judged_candidates() -> Judged:
    """Four candidates, the last two of them trains; the last row is held out of no fold."""
    rng = np.random.default_rng(0)
    rows = class_rows(rng.random((30, 2)), rng.integers(0, 2, 30), [], ClassSettings())
    rows = replace(rows, folds=np.r_[np.arange(29) % 5, -1], weights=rng.random(30) + 0.5)
    return Judged(rows, ("a", "b", "c", "d"), rng.standard_normal((4, 30, 2)), 2)


def test_losses_of_an_average_are_those_of_held_out_rows():
    judged = judged_candidates()
    rows, weights = judged.rows, np.array([0.1, 0.2, 0.3, 0.4])
    labels, shares = rows.labels[:29], rows.weights[:29] / rows.weights[:29].sum()
    losses = -log_softmax(np.tensordot(weights, judged.logits, 1)[:29], axis=1)[np.arange(29), labels]
    mean = shares @ losses
    assert judged.spread(weights) == (pytest.approx(mean), pytest.approx((shares @ (losses - mean) ** 2) ** 0.5), 29)
    alone = [shares @ -log_softmax(one[:29], axis=1)[np.arange(29), labels] for one in judged.logits]
    assert judged.losses() == pytest.approx(alone)
    few = replace(judged, rows=replace(rows, settings=ClassSettings(fewest_rows=31)))
    assert np.isnan(few.losses()).all()
    chosen = np.arange(30) < 20
    for trains, kept in ((True, 4), (False, 2)):
        found, loss = judged.average(chosen, 1.5, trains)
        costs = np.array([0.0, 0.0, 1.5, 1.5])[:kept]
        given = judged.logits[:kept, chosen], rows.labels[chosen], rows.weights[chosen]
        assert found.tolist() == [*greedy_weights(*given, costs, 20, 2.0), *[0.0] * (4 - kept)]
        assert loss == pytest.approx(float(logit_loss(np.tensordot(found[:kept], given[0], 1), *given[1:])))


def test_as_many_trains_as_fit_are_members_and_the_rest_weighs_as_much_more():
    """Members of two sites of width 3, bond 4: 2 · 3 · 4² weights each, and two runs of every train."""
    site = SimpleNamespace(width=3)
    rows = SimpleNamespace(sites=(site, site), bond=None, settings=None, ordered=lambda order: None)
    trains = SimpleNamespace(rows=SimpleNamespace(parts=range(2)), refined=lambda penalty, rows: [[penalty]] * 2)
    shares, cores = {0.1: 0.2, 0.01: 0.5, 0.001: 0.0}, [torch.zeros(1, 3, 4), torch.zeros(4, 3, 2)]
    solved = SimpleNamespace(additive_cores=lambda order, largest: cores)

    def weights(runs: int, products: list, shares: dict = shares) -> list[float]:
        rows.settings = ClassSettings(most_weights=runs * 96, train_bond=3)
        members = selection._members(rows, (0, 1), solved, products, trains, shares)
        assert [core for core, _ in members[1 + bool(products) :]] == [
            [penalty] for penalty in sorted(shares, key=lambda one: -shares[one]) for _ in range(2) if shares[penalty]
        ][: len(members) - 1 - bool(products)]
        return [weight for _, weight in members]

    assert weights(7, []) == pytest.approx([1, 0.25, 0.25, 0.1, 0.1])
    assert weights(6, cores) == pytest.approx([1, 1, 0.25, 0.25, 0.1, 0.1])
    assert weights(5, cores) == pytest.approx([1.25, 1.25, 0.3125, 0.3125])
    assert weights(4, []) == pytest.approx([1.25, 0.3125, 0.3125])
    assert weights(2, []) == pytest.approx([1 / 0.3])
    assert weights(0, [], {0.1: 0.25, 0.01: 0.75}) == pytest.approx([1 / 0.75, 0.5, 0.5])  # nothing else has a share


def test_the_plain_mean_of_runs_is_the_weighted_sum():
    rng = np.random.default_rng(0)
    device = SimpleNamespace(device="cpu", dtype=torch.float64)
    for bonds in ([(2, 4), (3, 1)], [(), ()]):
        members, states = [], [torch.from_numpy(rng.random((6, 3))) for _ in range(1 + len(bonds[0]))]
        for inner, weight in zip(bonds, (1.0, 0.3), strict=True):
            sizes = [1, *inner, 2]
            cores = [torch.from_numpy(rng.random((a, 3, b))) for a, b in pairwise(sizes)]
            members.append((cores, weight))
        states = [part / part.sum(1, keepdim=True) for part in states]  # shares of states
        expected = sum(weight * train_values(cores, states) for cores, weight in members)
        found = selection._averaged(members, device)(torch.stack(states, dim=1)).mean(0).detach()
        torch.testing.assert_close(found, expected)


WITHOUT, WITH = np.array([0.25, 0.75, 0.0, 0.0]), np.array([0.2, 0.3, 0.0, 0.5])


@pytest.mark.parametrize(
    ("weights", "loss", "error", "bond", "kind"),
    [
        (WITHOUT, 0.5, 0.03, None, "rounded"),
        (WITHOUT, 0.5, 0.031, None, "exact"),
        (WITHOUT, 0.5, 0.9, 6, "rounded"),
        (WITHOUT, None, 0.9, None, "rounded"),
        (WITH, 0.499, 0.089, None, "rounded"),  # 0.089² / 8 is less than the trains gain
        (WITH, 0.499, 0.09, None, "exact"),
        (WITH, 0.4999, 0.029, None, "rounded"),
    ],
)
def test_products_stay_as_they_are_where_rounding_costs_more_than_trains_gain(
    monkeypatch, weights, loss, error, bond, kind
):
    """An error of the logits costs an eighth of its square; the best average without trains has a loss of 0.5."""
    asked = []

    def solve(shares, found):
        solved = SimpleNamespace(constant=np.zeros(2), shares=shares, posterior=lambda share: share)
        solved.product_cores = lambda order, bond, patient: asked.append((bond, patient)) or (["products"], error)
        solved.diagonal = lambda order: SimpleNamespace(to=lambda device: ("exact", solved))
        return solved

    given = class_rows(np.random.default_rng(0).random((20, 2)), np.arange(20) % 2, [], ClassSettings())
    rows = replace(given, bond=bond, shares=np.array([1.0, -1.0]))
    monkeypatch.setattr(selection, "with_run", lambda module: module)
    monkeypatch.setattr(selection, "encoding_of", lambda *given: None)
    monkeypatch.setattr(selection, "_members", lambda rows, order, solved, *others: (solved, *others))
    monkeypatch.setattr(selection, "_averaged", lambda members, device: ("rounded", *members))
    trains = SimpleNamespace(device=SimpleNamespace(precision="float32", device="cpu"))
    names, losses = ("shares", "a", "b", "train"), (0.7, 0.6, 0.6, 0.6)
    of_kernels, kernels = (WITHOUT, 0.5), SimpleNamespace(rows=rows, solve=solve)
    average = Average(kernels, trains, (0.1,), (0, 1), names, losses, weights, loss, of_kernels, (0.0, 0.0, 0))
    found = average.conditioned(rows, rows.table, rows.weights, None)
    assert asked == [(bond or 40, not (bond is None and loss is not None and not weights[3]))]
    chosen = WITHOUT if kind == "exact" else weights
    module = found.module
    assert module[0] == kind
    assert module[1].shares.tolist() == chosen[1:3].tolist()
    assert module[1].constant.tolist() == [chosen[0], -chosen[0]]
    assert found.posterior == chosen[0]
    assert [share for _, share in found.candidates.values()] == chosen.tolist()
    if kind == "exact":
        assert (found.loss, found.rounding_error, found.precision) == (0.5, 0.0, "float64")
    else:
        assert (found.loss, found.rounding_error, found.precision) == (loss, error, "float32")
        assert module[2:] == (["products"], trains, {0.1: weights[3]})
