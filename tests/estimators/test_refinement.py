"""Long tables: solved on a sample, refined on all rows, never worse than the start on rows held out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from restt import ResTT, ResTTRegressor, load
from restt.estimators import posterior, refinement
from restt.estimators.compact import prior_bases, state_bases, state_positions
from restt.estimators.refinement import REFINEMENT, Rows, held_out_loss, outputs_of, refine
from restt.prior import Settings

CPU = torch.device("cpu")


def waves(rows: int, seed: int = 0, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A table, a function of which 60 rows say something with noise, and without."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 3))
    clean = np.sin(5 * x[:, 0]) * x[:, 1] + np.cos(4 * x[:, 2])
    return x, clean + noise * rng.standard_normal(rows), clean


def long_from(patch: pytest.MonkeyPatch, rows: int, **changes: int) -> None:
    """Settings under which a table of more than ``rows`` is long."""
    settings = replace(Settings.of_effort("auto"), exact_rows=rows, **changes)
    patch.setattr(Settings, "of_effort", lambda effort: settings)


@pytest.fixture
def small_limits(monkeypatch, hasty) -> None:
    """A table of a few hundred rows is long, and its sample solved in a hurry."""
    long_from(monkeypatch, 300, solved_rows=60)


@pytest.fixture(scope="module")
def fitted() -> Iterator[ResTTRegressor]:
    with pytest.MonkeyPatch.context() as patch:
        long_from(patch, 300, solved_rows=60)
        x, y, _ = waves(6000)
        yield ResTTRegressor(random_state=0).fit(x, y)


@pytest.fixture(scope="module")
def start() -> ResTTRegressor:
    """What 60 rows give."""
    x, y, _ = waves(60, seed=5)
    return ResTTRegressor(random_state=0).fit(x, y)


def rows_of(model: ResTTRegressor, count: int, seed: int) -> Rows:
    x, y, _ = waves(count, seed, noise=0.01)
    positions = state_positions(model.encoding_, torch.from_numpy(x))
    targets = torch.from_numpy(model.target_.model.encode(y[:, None]))
    return Rows(positions, targets, np.ones(count))


def refined(model: ResTTRegressor, rows: Rows, held: Rows, **changes):
    options = {"loss": "mse", "penalty": 1e-4, "device": CPU, "precision": "float32", "seed": 0} | changes
    bases = prior_bases(model.spread_, model.encoding_.order)
    return refine(model.module_, model.encoding_, bases, rows, held, **options)


def test_all_rows_are_learned_from(fitted, start):
    x, _, clean = waves(2000, seed=1)
    assert fitted.score(x, clean) > 0.995
    assert 1 - fitted.score(x, clean) < 0.3 * (1 - start.score(x, clean))
    assert fitted.fit_report_["refined"]
    assert 1 <= fitted.fit_report_["epochs_of_refinement"] <= REFINEMENT.most_epochs


def test_intervals_come_from_the_held_out_rows(fitted):
    x, y, _ = waves(4000, seed=2)
    low, high = fitted.predict_interval(x).T
    assert 0.88 < ((low <= y) & (y <= high)).mean() < 0.93
    assert (high - low).mean() < 0.45  # the noise alone makes it 0.33
    _, std = fitted.predict(x, return_std=True)
    assert np.sqrt(np.mean((fitted.predict(x) - y) ** 2)) == pytest.approx(np.sqrt(np.mean(std**2)), rel=0.1)


def test_explanations_describe_all_rows(fitted):
    x, _, _ = waves(6000)
    vectors = fitted.encoding_.vectors(torch.from_numpy(x))
    torch.testing.assert_close(fitted.site_means_, vectors.mean(0), atol=1e-6, rtol=0)
    assert fitted.site_covariances_ is not None
    assert fitted.feature_importances_.sum() == pytest.approx(1.0)


def test_a_saved_model_predicts_the_same(fitted, tmp_path):
    x, _, _ = waves(50, seed=3)
    model = load(fitted.save(tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(model.predict(x), fitted.predict(x))
    np.testing.assert_allclose(model.predict_interval(x), fitted.predict_interval(x), rtol=1e-12)
    assert model.fit_report_ == fitted.fit_report_


@pytest.mark.usefixtures("small_limits")
def test_the_same_seed_gives_the_same_bits():
    x, y, _ = waves(600)
    found = [ResTTRegressor(random_state=seed).fit(x, y) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(found[0].predict(x), found[1].predict(x))
    np.testing.assert_array_equal(found[0].predict_interval(x), found[1].predict_interval(x))
    assert not np.array_equal(found[0].predict(x), found[2].predict(x))


@pytest.mark.parametrize("rate", [1e-4, 1e-2, 0.3, 30.0])
@pytest.mark.filterwarnings("ignore:training on all:sklearn.exceptions.ConvergenceWarning")
def test_it_is_never_worse_than_its_start_on_held_out_rows(start, rate):
    held = rows_of(start, 300, 7)
    found = refined(start, rows_of(start, 1500, 6), held, own=replace(REFINEMENT, rate=rate))
    assert found.start_loss == pytest.approx(held_out_loss(start.module_, start.encoding_, held, "mse"))
    assert held_out_loss(found.module, start.encoding_, held, "mse") == found.loss <= found.start_loss
    if rate == 30.0:
        assert found.loss == pytest.approx(found.start_loss, rel=1e-2)
    if rate == 1e-2:
        assert found.loss < 0.3 * found.start_loss


@pytest.mark.parametrize("tried_rows", [599, 600])
def test_an_explosion_is_told(start, tried_rows):
    """Of one penalty or of all three."""
    own = replace(REFINEMENT, rate=1e6, most_epochs=40, tried_rows=tried_rows)
    with pytest.warns(ConvergenceWarning, match="training on all 600 rows was stopped because it exploded"):
        found = refined(start, rows_of(start, 600, 6), rows_of(start, 100, 7), own=own)
    assert found.loss == pytest.approx(found.start_loss, rel=1e-2)


def test_a_heavy_penalty_keeps_it_at_its_start(start):
    rows, held = rows_of(start, 1500, 6), rows_of(start, 300, 7)
    free, bound = refined(start, rows, held), refined(start, rows, held, penalty=1e3)
    moved = [
        (
            outputs_of(found.module, start.encoding_, held.positions)
            - outputs_of(start.module_, start.encoding_, held.positions)
        )
        .square()
        .mean()
        for found in (free, bound)
    ]
    assert moved[1] < 0.05 * moved[0]


def test_the_penalty_that_held_out_rows_want_is_kept(start):
    rows, held = rows_of(start, 600, 6), rows_of(start, 300, 7)
    together = refined(start, rows, held)
    assert len(together.history[0].runs) == 3
    ends = np.nanmin([record.validation["loss"] for record in together.history], axis=0)
    assert together.loss == pytest.approx(ends.min(), rel=1e-4)
    alone = refined(start, rows, held, own=replace(REFINEMENT, cpu_work=1.0))  # no work is left for more than one
    assert alone.history[0].runs == (0,)
    assert len(alone.history) == REFINEMENT.fewest_epochs


def test_rows_count_as_much_as_they_weigh(start):
    rows, held = rows_of(start, 3000, 6), rows_of(start, 300, 7)
    wrong = torch.arange(3000) % 2 == 1
    targets = rows.targets.clone()
    targets[wrong] = 5.0
    weights = np.where(wrong.numpy(), 1e-6, 1.0)
    found = refined(start, Rows(rows.positions, targets, weights), held)
    assert found.loss < 0.3 * found.start_loss


def test_classes_are_refined_too(start):
    """Any module of site vectors, any loss, and no prior."""
    rows, held = rows_of(start, 1500, 6), rows_of(start, 300, 7)
    module = ResTT(3, list(start.encoding_.widths), 4, 2, bias=True, runs=1, dtype=torch.float64)
    module.reset_parameters(seed=0)
    parts = [Rows(part.positions, (part.targets[:, 0] > 0).long(), part.weights) for part in (rows, held)]
    found = refine(
        module,
        start.encoding_,
        state_bases(start.encoding_),
        *parts,
        loss="cross-entropy",
        penalty=0.0,
        device=CPU,
        precision="float32",
        seed=0,
        own=replace(REFINEMENT, rate=0.05),
    )
    assert found.loss < 0.5 * found.start_loss
    says = outputs_of(found.module, start.encoding_, parts[1].positions).argmax(1)
    assert (says == parts[1].targets).double().mean() > 0.85


@pytest.mark.usefixtures("small_limits")
def test_several_outputs_one_of_them_constant():
    x, y, clean = waves(1500)
    both = np.column_stack([y, np.full(1500, 7.0), -2 * y + x[:, 0]])
    model = ResTTRegressor(random_state=0).fit(x, both)
    found = model.predict(x)
    assert found.shape == (1500, 3)
    assert (found[:, 1] == 7.0).all()
    assert np.corrcoef(found[:, 0], clean)[0, 1] > 0.98
    assert np.corrcoef(found[:, 2], x[:, 0] - 2 * clean)[0, 1] > 0.98
    assert model.predict_interval(x).shape == (1500, 2, 3)


def test_a_skewed_y_with_one_value_below_zero(monkeypatch):
    settings = replace(Settings(), exact_rows=300, solved_rows=100)
    monkeypatch.setattr(Settings, "of_effort", lambda effort: settings)
    x, y, _ = waves(1500)
    y = np.exp(2 * y)
    y[1234] = -1.0
    model = ResTTRegressor(random_state=0).fit(x, y)
    assert model.target_.label == "transformed y"
    assert model.target_.model.power < 0.9
    assert model.score(x, y) > 0.9


@pytest.mark.usefixtures("small_limits")
def test_categories_and_one_missing_value():
    rng = np.random.default_rng(0)
    rows = 1200
    frame = pd.DataFrame({"size": rng.normal(size=rows), "colour": rng.choice(["red", "green", "blue"], rows)})
    y = frame["size"].to_numpy() * (frame["colour"] == "red") + 0.1 * rng.normal(size=rows)
    frame.loc[777, "size"] = np.nan
    frame.loc[778, "colour"] = None
    model = ResTTRegressor(random_state=0).fit(frame, y)
    assert model.score(frame.drop([777, 778]), np.delete(y, [777, 778])) > 0.95
    assert np.isfinite(model.predict(frame)).all()


@pytest.mark.usefixtures("small_limits")
def test_nothing_to_learn():
    x, y, _ = waves(400)
    model = ResTTRegressor(random_state=0, verbose=1).fit(x, np.full(400, 3.0))
    assert (model.predict(x) == 3.0).all()
    assert (model.predict_interval(x) == 3.0).all()
    model = ResTTRegressor(random_state=0).fit(np.ones((400, 2)), y)
    assert model.predict(np.ones((1, 2))) == pytest.approx(y.mean(), abs=0.1)
    low, high = model.predict_interval(np.ones((400, 2))).T
    assert ((low <= y) & (y <= high)).mean() == pytest.approx(0.9, abs=0.06)


@pytest.mark.usefixtures("small_limits")
def test_rows_beyond_all_measure_are_left_out():
    x, y, clean = waves(1500)
    y[400] = 1e12
    with pytest.warns(UserWarning, match="1 row\\(s\\) are left out of the fit: their y, such as 1e\\+12"):
        model = ResTTRegressor(random_state=0).fit(x, y)
    assert model.score(x, clean) > 0.95


def test_the_solver_sees_both_ends_of_every_column():
    x, y, _ = waves(1000)
    x[17, 1], x[18, 1], x[19, 2], y[20], y[21] = 50.0, -50.0, np.nan, 90.0, -90.0
    table = posterior.FitTable((), x, y[:, None], np.ones(1000))
    ends = {17, 18, 19, 20, 21, x[:, 0].argmin(), x[:, 0].argmax(), np.nanargmin(x[:, 2]), np.nanargmax(x[:, 2])}
    held, kept, sample = posterior._split(table, torch.from_numpy(x), 8000, np.random.default_rng(0))
    assert ends <= set(sample) <= set(kept)
    assert sorted([*held, *kept]) == list(range(1000))
    assert len(held) == 99  # a tenth of the rows that are no ends
    for solved, expected in ((8000, 901), (300, 300), (3, 9)):
        held, kept, sample = posterior._split(table, torch.from_numpy(x), solved, np.random.default_rng(0))
        assert ends <= set(sample) <= set(kept)
        assert len(sample) == expected


def test_ends_are_the_least_the_largest_and_a_missing_value_of_each_column():
    nan = float("nan")
    values = [
        [3.0, nan, nan, 1.0],
        [1.0, 2.0, nan, 1.0],
        [2.0, 0.0, nan, 1.0],
        [9.0, 7.0, nan, 1.0],
        [4.0, 1.0, nan, 1.0],
    ]
    for column, expected in enumerate(({1, 3}, {0, 2, 3}, {0}, {0})):
        assert posterior._end_rows(torch.tensor(values)[:, column : column + 1]) == expected
    assert posterior._end_rows(torch.tensor(values)) == {0, 1, 2, 3}


def test_the_work_of_a_fit_chooses_its_device(monkeypatch, small_limits):
    """Rows² · columns · knots of the prior; rows · columns · knots · the square of a usual bond of a refinement."""
    seen = []
    monkeypatch.setattr(posterior, "read_device", lambda device, work: seen.append(work) or CPU)
    ResTTRegressor(random_state=0).fit(*waves(310)[:2])
    knots = Settings.of_effort("auto").fewest_knots
    assert seen == [0.0, 310 * 3 * knots * 100, 60**2 * 3 * knots]


@pytest.mark.usefixtures("small_limits")
def test_what_is_told(capsys):
    x, y, _ = waves(500)
    ResTTRegressor(random_state=0, verbose=1).fit(x, y)
    told = capsys.readouterr().out
    assert "closed form · " in told
    assert "epoch 1/20 · loss" in told
    assert "refined · 45" in told


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize(("gain", "refined"), [(0.0, False), (1e-9, True)])
def test_a_refinement_is_one_that_lowers_the_held_out_loss(monkeypatch, gain, refined):
    inner, asked = posterior.refine, []

    def found(*given, **options):
        whole = inner(*given, **options)
        asked.append(options["penalty"] / given[0].bond_dim)
        return replace(whole, loss=whole.start_loss - gain)

    monkeypatch.setattr(posterior, "refine", found)
    model = ResTTRegressor(random_state=0).fit(*waves(310)[:2])
    report = model.fit_report_
    assert report["refined"] is refined
    assert asked == [pytest.approx(model.prior_.noise / 280)]  # noise · bond / rows that are trained on
    assert (report["rows_held_out"], report["epochs_of_refinement"] > 0) == (30, True)


@pytest.mark.usefixtures("hasty")
def test_a_column_too_wide_to_refine_is_named(monkeypatch):
    x, y, _ = waves(120)
    long_from(monkeypatch, 100)
    monkeypatch.setattr(posterior, "WIDEST_REFINED", 2)
    frame = pd.DataFrame(x, columns=list("abc"))
    frame["level"] = np.resize(["x", "y", "z"], 120)
    with pytest.raises(ValueError, match=r"X has 120 rows and column 'level' 3 categories; .* a column may have 2"):
        ResTTRegressor(random_state=0).fit(frame, y)


def test_epochs_fall_with_the_work_and_not_with_the_clock():
    assert [REFINEMENT.epochs(work, CPU, 100) for work in (1e8, 5e10, 1e15)] == [
        REFINEMENT.most_epochs,
        6,
        REFINEMENT.fewest_epochs,
    ]
    assert REFINEMENT.epochs(5e11, torch.device("cuda"), 100) == 6
    assert REFINEMENT.epochs(1e8, torch.device("cuda"), 250) == 10


def planned(monkeypatch, model: ResTTRegressor, rows: int, **own: object):
    """The settings of a refinement on so many rows, and how many penalties are tried."""
    found = []
    monkeypatch.setattr(refinement, "train", lambda module, *others, config, **options: found.append((module, config)))
    with pytest.raises(TypeError):  # it has no records
        refined(model, rows_of(model, rows, 6), rows_of(model, 10, 7), own=replace(REFINEMENT, **own))
    ((module, config),) = found
    return module, config


@pytest.mark.parametrize(("rows", "batch"), [(50, 50), (128, 128), (640, 128), (12_800, 200), (64 * 600, 512)])
def test_a_refinement_has_64_steps_an_epoch_of_128_to_512_rows(start, monkeypatch, rows, batch):
    _, config = planned(monkeypatch, start, rows)
    assert config.batch_size == batch
    assert (config.epochs, config.patience) == (20, 10)
    assert (config.keep, config.warmup_epochs, config.lr) == ("best", 0.5, 0.01)


def test_all_penalties_are_tried_where_work_is_left_for_the_most_epochs(start, monkeypatch):
    module, config = planned(monkeypatch, start, 300)
    assert module.runs == 3
    assert config.penalty.chain == config.penalty.head == pytest.approx((3e-5, 3e-4, 3e-3))
    work = float(module.sites * module.feature_dim * module.bond_dim**2) * 300
    for own, runs, epochs in (
        ({"cpu_work": 60 * work}, 3, 20),
        ({"cpu_work": 60 * work - 1}, 1, 20),
        ({"cpu_work": 7 * work}, 1, 7),
        ({"tried_rows": 300}, 3, 20),
        ({"tried_rows": 299}, 1, 20),
    ):
        module, config = planned(monkeypatch, start, 300, **own)
        assert (module.runs, config.epochs) == (runs, epochs)
        assert config.patience == max(3, -(-epochs // 2))
    assert config.penalty.linear == pytest.approx((1e-4,))
