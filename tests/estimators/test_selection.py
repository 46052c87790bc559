"""The classifier's own choice among candidates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import torch
from scipy.special import softmax
from sklearn.metrics import log_loss

import restt
from restt.estimators import ResTTClassifier, ResTTNetClassifier, candidates, many_rows, selection
from restt.estimators.averaging import log_loss as mean_log_loss
from restt.estimators.class_settings import ClassSettings
from restt.estimators.many_rows import split


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
        "logistic",
        "process",
        "curves",
        "straight process",
        "gaussian",
        "lines",
        "hats",
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
    """Classes by the distance from the origin, a sum over columns: a prior with products fits much else besides."""
    x = np.random.default_rng(0).standard_normal((1200, 6))
    y = np.digitize((x**2).sum(axis=1), [4, 7])
    model = ResTTClassifier(random_state=0).fit(x[:200], y[:200])
    assert sum(share for name, (_, share) in model.candidates_.items() if name.startswith("curves")) > 0.5
    assert log_loss(y[200:], model.predict_proba(x[200:])) < 0.45


@pytest.mark.usefixtures("hasty")
def test_the_module_is_the_average_of_the_chosen(monkeypatch):
    """The mean over runs is the average that was judged, of folds' models where a row was held out by none."""
    kept = {}

    def families_kept(*args, **options):
        kept["rows"], kept["families"] = args[0], families(*args, **options)
        return kept["families"]

    families = selection._families
    monkeypatch.setattr(selection, "_families", families_kept)
    model = ResTTClassifier(random_state=0).fit(*interacting(60))
    rows, found = kept["rows"], []
    for family in kept["families"]:
        shares = np.array([model.candidates_[name][1] for name in family.names])
        for member in family.members(shares):
            with torch.no_grad():
                found.append(member.share * member.module(member.view.vectors(rows.states)).double().mean(0).numpy())
    got = model.module_(torch.stack(list(rows.states), dim=1))  # columns of equal width
    assert got.mean(0).detach().numpy() == pytest.approx(sum(found), abs=1e-9)


def test_the_same_seed_gives_the_same_model_whatever_the_order_of_rows(selected):
    x, y = interacting(90)
    again = ResTTClassifier(random_state=0).fit(x, y)
    order = np.random.default_rng(3).permutation(90)
    shuffled = ResTTClassifier(random_state=0).fit(x[order], y[order])
    assert np.array_equal(again.predict_proba(x), selected.predict_proba(x))
    assert shuffled.predict_proba(x) == pytest.approx(selected.predict_proba(x), abs=1e-9)


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
    assert sum(name.startswith(("lines", "hats")) for name in model.candidates_) == 2
    assert len(model.candidates_) < len(selected.candidates_)


def test_too_few_rows_are_left_to_gradients():
    x, y = interacting(9)
    assert ResTTClassifier(random_state=0).fit(x, y).fit_report_["members"] == {"one train": 1.0}
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
    assert {name.split(",")[0] for name in model.candidates_} == {"shares", "logistic"}
    assert log_loss(y[100:], model.predict_proba(x[100:])) < 0.3


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("many", [5000, 300])
def test_a_category_of_many_levels_is_no_single_state(monkeypatch, many):
    """Each of 150 levels is less than a hundredth of the rows; all of them as one had a log-loss of 0.66."""
    monkeypatch.setattr("restt.estimators.classifier.MANY_ROWS", many)
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
def test_more_classes_than_a_bond_holds_take_no_process():
    rng = np.random.default_rng(0)
    y = np.arange(150) % 50
    x = np.column_stack([y + 0.1 * rng.standard_normal(150), rng.standard_normal(150)])
    model = ResTTClassifier(random_state=0).fit(x, y)
    assert {name.split(",")[0] for name in model.candidates_} == {"shares", "logistic", "lines", "hats"}
    assert model.score(x, y) > 0.5


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
    assert families == {"shares", "logistic", "process", "curves", "straight process", "gaussian"}


@pytest.mark.usefixtures("hasty")
def test_modes_of_too_many_rows_and_classes_are_sums_over_fewer_rows_or_left_out(monkeypatch):
    x, y = interacting(90)
    work = ClassSettings().mode_passes * 90 * 2
    for most, expected in ((50.0, True), (30.0, False)):
        with_settings(monkeypatch, fewest_centres=40, mode_work=work * most)
        names = ResTTClassifier(random_state=0).fit(x, y).candidates_
        assert any(name.startswith("process") for name in names) == expected


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
    return x, y, ResTTClassifier(random_state=0).fit(x, y).predict_proba(x)


@pytest.mark.parametrize("way", ["columns permuted", "columns rescaled", "float32", "a constant column"])
def test_probabilities_do_not_depend_on_how_a_table_is_written(noisy, way):
    x, y, plain = noisy
    table = rewritten_tables(x)[way]
    again = ResTTClassifier(random_state=0).fit(table, y).predict_proba(table)
    assert np.abs(again - plain).max() < 0.02


def test_folds_spread_every_class_and_keep_single_rows_out():
    numbers = np.repeat([0, 1, 2, 3], [23, 7, 2, 1])
    folds = candidates.stratified_folds(numbers, 5)
    for number in range(3):
        counts = np.bincount(folds[numbers == number], minlength=5)
        assert counts.max() - counts.min() <= 1
    assert folds[numbers == 3].tolist() == [-1]


def test_many_rows_are_trained_with_settings_chosen_on_a_sample(monkeypatch):
    monkeypatch.setattr("restt.estimators.classifier.MANY_ROWS", 300)
    x, y = interacting(600)
    model = ResTTClassifier(random_state=0).fit(x, y)
    assert [share for _, share in model.candidates_.values()].count(1.0) == 1
    held_out, labels = interacting(400, seed=1)
    assert model.score(held_out, labels) > 0.85
    assert softmax(np.column_stack([np.zeros(400), model.decision_function(held_out)]), axis=1) == pytest.approx(
        model.predict_proba(held_out)
    )


def test_a_split_leaves_a_row_of_every_class_to_train_on():
    y = np.array([0] * 500 + [1, 2, 2])
    kept, held = split(y, np.random.default_rng(0))
    assert sorted(np.concatenate([kept, held]).tolist()) == list(range(503))
    assert set(y[kept]) == {0, 1, 2}
    assert len(held) == 50


def test_with_many_more_rows_than_the_sample_the_largest_setting_is_tried_on_all_of_them(monkeypatch):
    """What has most weights loses on a sample; held-out rows decide after both have seen everything."""
    monkeypatch.setattr("restt.estimators.classifier.MANY_ROWS", 300)
    monkeypatch.setattr(many_rows, "SAMPLE", 100)
    seen = []
    trained = many_rows._trained

    def noting(estimator, settings, kept, held, *others):
        made = trained(estimator, settings, kept, held, *others)
        if held is not None:
            seen.append((settings["bond_dim"], len(kept), made.module_))
        return made

    monkeypatch.setattr(many_rows, "_trained", noting)
    monkeypatch.setattr(many_rows, "HOPEFUL", np.inf)
    x, y = interacting(700)
    model = ResTTClassifier(random_state=0).fit(x, y)
    assert [bond for bond, _, _ in seen][-1] == 50
    assert {rows for _, rows, _ in seen} == {630}
    assert len(seen) == 2
    losses = {name: loss for name, (loss, _) in model.candidates_.items()}
    (chosen,) = [name for name, (_, share) in model.candidates_.items() if share]
    assert model.module_ is seen[0 if chosen != "trigonometric, bond 50" else 1][2]
    assert losses[chosen] <= losses["trigonometric, bond 50"]


def test_on_a_gpu_all_settings_see_all_rows(monkeypatch):
    """The choice alone: the trainings are on the CPU, where the estimator is."""
    monkeypatch.setattr("restt.estimators.classifier.MANY_ROWS", 300)
    monkeypatch.setattr(many_rows, "SAMPLE", 100)
    monkeypatch.setattr(many_rows, "GPU_EPOCHS", 6)
    monkeypatch.setattr(many_rows, "read_device", lambda device, work: torch.device("cuda"))
    seen = []
    trained = many_rows._trained

    def noting(estimator, settings, kept, held, *others):
        seen.append((len(kept), held is not None, others[-1]))
        return trained(estimator, settings, kept, held, *others)

    monkeypatch.setattr(many_rows, "_trained", noting)
    x, y = interacting(400)
    model = ResTTClassifier(random_state=0, device="cpu").fit(x, y)
    assert seen == [(360, True, (512, 6))] * len(many_rows.SETTINGS)
    assert set(model.candidates_) == set(dict(many_rows.SETTINGS))
    seen.clear()
    monkeypatch.setattr(many_rows, "GPU_ROWS", 350)
    ResTTClassifier(random_state=0, device="cpu").fit(x, y)
    assert not all(after for _, after, _ in seen)


def test_the_last_epoch_stays_where_its_rows_are_better_off_with_it():
    """Both ways round: by the log-loss at a temperature, so that being too sure does not count."""
    x, y = interacting(300)
    made = ResTTNetClassifier(epochs=60, random_state=0).fit(x, y)
    held = made._read_examples(*interacting(200, seed=1), None, reset=False)
    # Logits times four.
    good = {
        name: value.detach() * (4.0 if name in ("bias", "last_chain", "last_linear", "last_skip") else 1.0)
        for name, value in made.module_.named_parameters()
    }
    bad = {name: value + 0.3 * torch.randn_like(value) for name, value in good.items()}
    for own, last in ((bad, good), (good, bad)):
        with torch.no_grad():
            for name, value in made.module_.named_parameters():
                value.copy_(own[name])
        many_rows._keep_better(made, last, held)
        for name, value in made.module_.named_parameters():
            torch.testing.assert_close(value.detach(), good[name])


def test_a_training_ends_with_its_last_epoch_or_that_of_the_least_loss(monkeypatch):
    seen = []
    monkeypatch.setattr(many_rows, "_keep_better", lambda made, early, held: seen.append((made, early)))
    x, y = interacting(300)
    estimator = ResTTClassifier(random_state=0)
    given = estimator._read_examples(x, y, None, reset=True)
    kept, held = given.take(np.arange(240)), given.take(np.arange(240, 300))
    settings = {"feature_map": "auto", "bond_dim": 10, "penalty": None, "lr": 0.1}
    made = many_rows._trained(estimator, settings, kept, held, np.unique(y), 0, (64, 30))
    [(same, early)] = seen
    losses = [record.validation["loss"][0] for record in made.history_]
    assert same is made
    assert len(losses) == 30
    assert np.argmin(losses) < 29, "the table is to be overfitted"

    def loss() -> float:
        return float(mean_log_loss(*many_rows._outputs(made, held)))

    assert loss() == pytest.approx(losses[-1], rel=1e-4)
    with torch.no_grad():
        for name, value in made.module_.named_parameters():
            value.copy_(early[name])
    assert loss() == pytest.approx(min(losses), rel=1e-4)
