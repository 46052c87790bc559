"""Exported graphs with a coverage have the bounds of predict_interval."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pandas as pd
import pytest
import torch

from restt import ResTTClassifier, ResTTNetRegressor, ResTTRegressor, load
from restt.prior import Settings
from tests.estimators.conftest import QUICK, short_fits
from tests.estimators.test_old_files import FIXTURES
from tests.hasty import hasty_solvers

pytestmark = pytest.mark.filterwarnings("ignore:.*(unseen|misses).*")
# A bond of 1 holds the error of no table here.
BONDS = {"rounded": 16, "diagonal": 1}
NUMBERS = ["a", "b", "c"]


def made(rows: int, seed: int, far: float = 1.0) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, some missing, and two categories: one with few rare levels, one with many."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.standard_normal((rows, 3)), columns=NUMBERS)
    frame["kind"] = rng.choice(["red", "green", "blue"], rows).astype(object)
    frame["code"] = [f"own {n}" if n % 4 == 0 else ["x", "y"][n % 2] for n in range(rows)]
    y = frame["a"] * frame["b"] + np.sin(frame["c"]) + (frame["kind"] == "red") * frame["a"]
    y = (y + 0.1 * rng.standard_normal(rows)).to_numpy()
    frame.loc[rows // 2, "kind"] = "gold"
    frame.loc[rng.random(rows) < 0.1, "b"] = np.nan
    frame.loc[rows // 3, "kind"] = None
    frame[NUMBERS] *= [far, far, far / 10]
    return frame, y


@dataclass(frozen=True, eq=False)
class Case:
    model: ResTTRegressor
    scale: np.ndarray  # (O,): standard deviation of y, 1 where it is constant


@pytest.fixture(scope="module", params=[(y, train) for y in ("one", "several") for train in BONDS], ids="-".join)
def case(request: pytest.FixtureRequest) -> Case:
    targets, train = request.param
    frame, y = made(120, 0)
    y = np.exp(y / 3) if targets == "one" else np.column_stack([y, np.full(120, 2.0), 1e200 * np.exp(y / 2)])
    with hasty_solvers(), pytest.MonkeyPatch.context() as patch:
        hasty = replace(Settings.of_effort("auto"), largest_bond=BONDS[train])
        patch.setattr(Settings, "of_effort", lambda effort: hasty)
        model = ResTTRegressor(random_state=0).fit(frame, y)
    assert model.fit_report_["train"] == train
    size = np.abs(y).max(axis=0)
    spread = np.std(y / size, axis=0) * size
    return Case(model, np.where(spread > 0, spread, 1.0))


def ran(path: Path, frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """The outputs by name."""
    onnx.checker.check_model(onnx.load(path), full_check=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    given = {name: frame[name].to_numpy(dtype=float if name in NUMBERS else object) for name in frame}
    return dict(zip(names, session.run(None, given), strict=True))


def assert_same(found: dict[str, np.ndarray], case: Case, rows: pd.DataFrame, coverage: float) -> None:
    assert list(found) == ["output", "lower", "upper"]
    ends = case.model.predict_interval(rows, coverage)
    for name, expected in (("output", case.model.predict(rows)), ("lower", ends[:, 0]), ("upper", ends[:, 1])):
        assert found[name].shape == expected.shape
        assert (np.abs(found[name] - expected) <= 1e-6 * case.scale).all(), name


@pytest.mark.parametrize("coverage", [0.9, 0.9999])  # the quantiles of the second are beyond the tabulated ones
def test_bounds_are_those_of_predict_interval(case: Case, coverage: float, tmp_path: Path) -> None:
    near, far = made(60, 1)[0], made(60, 2, far=30.0)[0]
    unseen = made(60, 3)[0].assign(kind="violet")
    unseen.loc[:29, "a"] = np.nan  # never missing in the fit
    furthest = made(2, 4)[0].assign(a=1e300, c=[1.7e308, -1.7e308])  # too large once scaled
    rows = pd.concat([near, far, unseen, furthest], ignore_index=True)
    assert [column.other for column in case.model.encoding_.columns[3:]] == [True, True]
    path = case.model.export(tmp_path / "m.onnx", coverage=coverage)
    assert_same(ran(path, rows), case, rows, coverage)
    assert_same(ran(path, rows[:1]), case, rows[:1], coverage)
    assert {len(values) for values in ran(path, rows[:0]).values()} == {0}


def test_a_program_of_torch_returns_them_too(tmp_path: Path) -> None:
    frame, y = made(60, 0)
    with hasty_solvers():
        model = ResTTRegressor(random_state=0).fit(frame[NUMBERS], y)
    program = torch.export.load(model.export(tmp_path / "m.pt2", coverage=0.8)).module()
    for rows in (made(50, 1, far=3.0)[0][NUMBERS], frame[NUMBERS][:1]):
        found = program(torch.from_numpy(model.numbers(rows)))
        named = dict(zip(("output", "lower", "upper"), (value.numpy() for value in found), strict=True))
        assert_same(named, Case(model, np.array([y.std()])), rows, 0.8)


def test_a_refused_row_has_no_bounds(tmp_path: Path) -> None:
    frame, y = made(60, 0)
    with hasty_solvers():
        model = ResTTRegressor(random_state=0, handle_unknown="error").fit(frame[["a", "kind"]], y)
    rows = frame[["a", "kind"]][:3].assign(a=[0.0, np.inf, 0.0], kind=["red", "red", "violet"])
    found = ran(model.export(tmp_path / "m.onnx", coverage=0.9), rows)
    for values in found.values():
        assert np.isnan(values).tolist() == [False, True, True]


def test_the_coverage_is_in_the_metadata(case: Case, tmp_path: Path) -> None:
    paths = case.model.export(tmp_path / "m.onnx"), case.model.export(tmp_path / "i.onnx", coverage=np.float32(0.5))
    notes = [onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map for path in paths]
    assert [json.loads(note["coverage"]) for note in notes] == [None, 0.5]
    assert list(ran(paths[0], made(9, 0)[0])) == ["output"]


def test_names_of_bounds_are_taken_only_where_there_are_bounds(tmp_path: Path) -> None:
    frame, y = made(60, 0)
    with hasty_solvers():
        model = ResTTRegressor(random_state=0).fit(frame[["a", "kind"]].rename(columns={"a": "upper"}), y)
    assert model.export(tmp_path / "m.onnx").exists()
    with pytest.raises(ValueError, match="'upper' is the name of an output: rename it"):
        model.export(tmp_path / "m.onnx", coverage=0.9)


@pytest.mark.parametrize("column", ["kind", "c"])
def test_one_column_has_bounds_of_any_coverage_between_0_and_1(tmp_path: Path, column: str) -> None:
    frame, y = made(60, 0)
    with hasty_solvers():
        model = ResTTRegressor(random_state=0).fit(frame[[column]], y)
    path, rows = tmp_path / "m.onnx", made(50, 1)[0][[column]]
    model.spread_ = replace(model.spread_, extra=0.3)  # as where held-out rows ask for more variance
    for coverage in (0.0, 1.0, 90, np.nan):
        with pytest.raises(ValueError, match="coverage must be"):
            model.export(path, coverage=coverage)
    assert not path.exists()
    model.export(path, inputs="columns", coverage=0.8)
    assert_same(ran(path, rows), Case(model, np.array([y.std()])), rows, 0.8)


@short_fits
def test_refused_clearly(tmp_path: Path) -> None:
    frame, y = made(60, 0)
    trained = ResTTNetRegressor(**{**QUICK, "epochs": 2}).fit(frame, y)
    with hasty_solvers():
        classifier = ResTTClassifier(random_state=0).fit(frame[NUMBERS], y > 0)
    for model in (trained, classifier):
        with pytest.raises(ValueError, match="coverage is for ResTTRegressor"):
            model.export(tmp_path / "m.onnx", coverage=0.9)
    with pytest.raises(ValueError, match=r"saved by restt 0\.8"):
        load(FIXTURES / "posterior-log.safetensors").export(tmp_path / "m.onnx", coverage=0.9)
    assert not (tmp_path / "m.onnx").exists()
