"""What predict evaluates is what is explained, saved and exported, on every row, rounded or with diagonal cores."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

import joblib
import numpy as np
import onnxruntime
import pandas as pd
import pytest

import restt
from restt import ResTTRegressor
from restt.prior import Settings

pytestmark = pytest.mark.filterwarnings("ignore:.*(unseen|missing|categor).*")
# Quick fits; a bond of 1 holds the error of none of the tables, one of 64 that of all.
KINDS = {"rounded": 64, "diagonal": 1}
TABLES = ("numbers", "categories", "missing", "outputs")


def made(name: str, rows: int, seed: int, far: float = 1.0) -> tuple[pd.DataFrame, np.ndarray]:
    """A table of one kind, its numbers ``far`` times as far from 0 as in the fit, and y."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.standard_normal((rows, 3)), columns=["a", "b", "c"])
    y = frame["a"] * frame["b"] + np.sin(frame["c"]) + 0.1 * rng.standard_normal(rows)
    if name == "categories":
        frame["kind"] = rng.choice(["red", "green", "blue"], rows)
        y = y + (frame["kind"] == "red") * frame["a"]
    if name == "missing":
        frame.loc[rng.random(rows) < 0.1, "b"] = np.nan
        y = y.fillna(0.0)
    y = y.to_numpy()
    frame[["a", "b", "c"]] *= far
    return frame, np.stack([y, np.exp(y / 2), -y], 1) if name == "outputs" else np.exp(y / 3)


@dataclass(frozen=True, eq=False)
class Case:
    model: ResTTRegressor
    rows: pd.DataFrame  # half of them far outside
    scale: np.ndarray  # (O,): standard deviation of y


@pytest.fixture(scope="module", params=[(name, kind) for name in TABLES for kind in KINDS], ids="-".join)
def case(request: pytest.FixtureRequest) -> Case:
    name, kind = request.param
    X, y = made(name, 90, 0)
    quick = Settings(largest_bond=KINDS[kind], first_iterations=2, iterations=5, last_iterations=5, tolerance=0.03)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Settings, "of_effort", lambda effort: quick)
        model = ResTTRegressor(random_state=0).fit(X, y)
    assert model.fit_report_["train"] == kind
    near, far = made(name, 100, 1)[0], made(name, 100, 2, far=30.0)[0]
    return Case(model, pd.concat([near, far], ignore_index=True), y.reshape(len(y), -1).std(0))


def ran(path: Path, rows: pd.DataFrame) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    if names == ["x"]:
        given = {"x": rows.to_numpy(dtype=np.float64)}
    else:
        given = {name: rows[name].to_numpy(dtype=object if rows[name].dtype == object else None) for name in names}
    return np.asarray(session.run(["output"], given)[0])


def test_shapley_values_and_orders_add_up_to_what_is_predicted(case: Case) -> None:
    found = case.model.explain_local(case.rows)
    target = case.model.target_
    latent = (found.predictions - target.mean) / target.scale  # what the module gives
    predicted = case.model.predict(case.rows)
    np.testing.assert_allclose(target.decode(latent), predicted, rtol=0, atol=1e-6 * case.scale.min())
    for total in (found.base + found.values.sum(1), found.orders.sum(1)):
        away = np.abs(total - found.predictions)
        assert (away <= 1e-6 * target.scale).all()
    in_y = found.on("y")
    for total in (in_y.base + in_y.values.sum(1), in_y.orders.sum(1)):
        away = np.abs(total - predicted.reshape(total.shape))
        assert (away <= 1e-6 * case.scale).all()


def test_the_graph_predicts_the_same(case: Case, tmp_path: Path) -> None:
    predicted = case.model.predict(case.rows)
    found = ran(case.model.export(tmp_path / "model.onnx"), case.rows)
    assert found.shape == predicted.shape
    away = np.abs(found - predicted).reshape(len(found), -1)
    assert (away <= 1e-6 * np.maximum(case.scale, np.abs(predicted).reshape(len(found), -1))).all()


def test_copies_predict_the_same(case: Case, tmp_path: Path) -> None:
    predicted, interval = case.model.predict(case.rows), case.model.predict_interval(case.rows)
    joblib.dump(case.model, tmp_path / "model.joblib")
    copies = [
        restt.load(case.model.save(tmp_path / "model")),
        pickle.loads(pickle.dumps(case.model)),
        joblib.load(tmp_path / "model.joblib"),
    ]
    for copy in copies:
        np.testing.assert_allclose(copy.predict(case.rows), predicted, rtol=1e-9, atol=1e-9 * case.scale.min())
        np.testing.assert_allclose(copy.predict_interval(case.rows), interval, rtol=1e-8, atol=1e-8)
    assert copies[0].fit_report_ == case.model.fit_report_
    size = sum(file.stat().st_size for file in (tmp_path / "model").iterdir())
    assert size <= 2e6 + 3 * 8 * case.model.module_.num_parameters()


def test_a_given_bond_is_kept_and_its_error_reported() -> None:
    X, y = made("numbers", 90, 0)
    model = ResTTRegressor(bond_dim=2, random_state=0).fit(X, y)
    assert isinstance(model.module_, restt.ResTT)
    assert model.fit_report_["train"] == "rounded"
    assert model.fit_report_["bond_dim"] == 2
    assert model.fit_report_["rounding_error"] > model.fit_report_["rounding_tolerance"]


def test_the_whole_model_is_explained(case: Case) -> None:
    found = case.model.explain_global()
    np.testing.assert_allclose(found.sobol.by_order.sum(0).numpy(), 1.0, rtol=1e-8)
    assert found.interactions.complete
    assert case.model.feature_importances_.sum() == pytest.approx(1.0)
    effect = found.effect("a")
    assert bool((effect.spread >= 0).all())
    pruned = restt.explain.prune(case.model, 0.1)
    assert pruned.error <= 0.1
    assert pruned.parameters <= pruned.parameters_before
    moved = np.abs(pruned.model.predict(case.rows[:100]) - case.model.predict(case.rows[:100]))
    assert np.median(moved.reshape(100, -1) / case.scale) < 0.2
