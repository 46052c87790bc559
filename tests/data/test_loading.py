"""The sets themselves, by name."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from restt import data
from restt.data import catalog, loading
from restt.data.catalog import RemoteFile

Load = Callable[..., data.Dataset]


def test_digits_and_diabetes_come_with_scikit_learn(empty_homes: Path) -> None:
    digits = data.load("digits")
    assert digits.x.shape == (1797, 64)
    assert (digits.x.dtype, digits.y.dtype) == (torch.float32, torch.int64)
    assert (digits.x.min(), digits.x.max()) == (0, 1)
    assert digits.classes == tuple("0123456789")
    diabetes = data.load("diabetes")
    assert (diabetes.x.shape, diabetes.x.dtype, diabetes.y.dtype) == ((442, 10), torch.float64, torch.float64)
    assert diabetes.y.mean().item() == pytest.approx(152.1335, abs=1e-4)
    assert not empty_homes.exists()


def test_boston(load_or_skip: Load) -> None:
    boston = load_or_skip("boston")
    assert boston.x.shape == (506, 13)
    assert boston.feature_names[0] == "CRIM"
    assert (boston.feature_names[-1], boston.target_name) == ("LSTAT", "MEDV")
    assert boston.x[:, 0].mean().item() == pytest.approx(3.6135, abs=1e-4)
    assert boston.y.mean().item() == pytest.approx(22.5328, abs=1e-4)


def test_ale_leaves_out_the_standard_deviation(load_or_skip: Load) -> None:
    ale = load_or_skip("ale")
    assert ale.x.shape == (107, 4)
    assert ale.feature_names == ("anchor_ratio", "trans_range", "node_density", "iterations")
    assert (ale.x[0].tolist(), ale.y[0].item()) == ([30, 15, 200, 40], 0.773545928)


@pytest.mark.parametrize(
    ("name", "sizes", "r2", "rmse"), [("boston", (354, 152), 0.654, 4.61), ("ale", (74, 33), 0.715, 0.182)]
)
def test_split_gives_the_papers_linear_regression_row(
    load_or_skip: Load, name: str, sizes: tuple[int, int], r2: float, rmse: float
) -> None:
    from sklearn.linear_model import LinearRegression

    parts = load_or_skip(name).split()
    assert (len(parts.x_train), len(parts.x_test)) == sizes
    model = LinearRegression().fit(parts.x_train.numpy(), parts.y_train.numpy())
    assert round(model.score(parts.x_test.numpy(), parts.y_test.numpy()), 3) == r2
    error = torch.tensor(model.predict(parts.x_test.numpy())) - parts.y_test
    assert error.square().mean().sqrt().item() == pytest.approx(rmse, rel=3e-3)


@pytest.mark.parametrize(("name", "means"), [("mnist", (0.1307, 0.1325)), ("fashion-mnist", (0.2860, 0.2868))])
def test_image_sets(load_or_skip: Load, name: str, means: tuple[float, float]) -> None:
    images = load_or_skip(name)
    assert (images.x_train.shape, images.x_test.shape) == ((60_000, 196), (10_000, 196))
    assert (images.x_train.dtype, images.y_train.dtype) == (torch.float32, torch.int64)
    for x, mean in ((images.x_train, means[0]), (images.x_test, means[1])):
        assert (x.min(), x.max()) == (0, 1)
        assert x.double().mean().item() == pytest.approx(mean, abs=1e-4)
    assert images.y_test.bincount().tolist() == [1000] * 10 or name == "mnist"
    assert len(images.classes) == 10
    assert images.y_train[:3].tolist() == {"mnist": [5, 0, 4], "fashion-mnist": [9, 0, 0]}[name]


def test_a_fraction_thins_the_training_part_only(load_or_skip: Load) -> None:
    raw = load_or_skip("mnist", preprocess="raw")
    first = load_or_skip("mnist", preprocess="raw", fraction=0.01, subset="first")
    random = load_or_skip("mnist", preprocess="patches", fraction=0.01, seed=1)
    assert torch.equal(first.x_train, raw.x_train[:600])
    assert torch.equal(first.y_train, raw.y_train[:600])
    assert (random.x_train.shape, random.x_test.shape) == ((600, 196, 4), (10_000, 196, 4))
    assert not torch.equal(random.y_train, first.y_train)


def test_offline_error_names_the_files(empty_homes: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        data.load("mnist")
    message = str(caught.value)
    for file in catalog.CATALOG["mnist"].remote_files:
        assert str(empty_homes / file.path) in message
        assert file.sha256 in message
    assert "RESTT_DATA_HOME" in message
    assert not list(empty_homes.rglob("*"))


def test_data_home_argument_and_variable(
    empty_homes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_table: RemoteFile
) -> None:
    assert not data.describe("ale").ready
    assert data.load("ale", data_home=tmp_path / "mirror").x.shape == (2, 4)
    monkeypatch.setenv("RESTT_DATA_HOME", str(tmp_path / "mirror"))
    assert data.load("ale", download=False).y.tolist() == [0.5, 0.25]
    assert data.describe("ale").folder == tmp_path / "mirror"
    assert not empty_homes.exists()


def test_fetch_downloads_into_the_cache_once(empty_homes: Path, tmp_path: Path, small_table: RemoteFile) -> None:
    assert data.fetch("ale") == (empty_homes / small_table.path,)
    shutil.rmtree(tmp_path / "mirror")
    assert data.fetch("ale") == (empty_homes / small_table.path,)
    assert data.load("ale", download=False).x.shape == (2, 4)
    assert data.describe("ale").ready
    (empty_homes / small_table.path).write_bytes(b"x" * small_table.size)
    with pytest.raises(FileNotFoundError, match=r"SHA-256 is .* so it is not the expected file"):
        data.load("ale", download=False)


@pytest.fixture
def small_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RemoteFile:
    """ALE stands for a table of two rows, served by a file:// mirror."""
    content = b"anchor_ratio,trans_range,node_density,iterations,ale,sd_ale\n1,2,3,4,0.5,9\n5,6,7,8,0.25,9\n"
    served = tmp_path / "mirror/ale/table.csv"
    served.parent.mkdir(parents=True)
    served.write_bytes(content)
    file = RemoteFile("ale/table.csv", hashlib.sha256(content).hexdigest(), len(content), (served.as_uri(),))
    monkeypatch.setitem(catalog.CATALOG, "ale", replace(catalog.CATALOG["ale"], remote_files=(file,)))
    return file


def test_wrong_names_and_options() -> None:
    with pytest.raises(ValueError, match=r"name must be one of \['ale', 'boston'"):
        data.load("cifar")
    with pytest.raises(TypeError, match=r"load\('boston'\) takes the options \[\], got \['fraction'\]"):
        data.load("boston", fraction=0.1)


@pytest.mark.parametrize("name", data.available())
def test_every_set_is_described(name: str) -> None:
    about = data.describe(name)
    assert about.name == name
    assert about.task in ("classification", "regression")
    assert all((about.shape, about.source, about.licence, about.description))
    assert set(loading.LOADERS) == set(catalog.CATALOG)
    for file in about.remote_files:
        assert len(file.mirrors) >= 1
        assert len(file.sha256) == 64
        assert file.path.startswith(f"{name}/")


def test_parts_and_whole_are_told_apart() -> None:
    table = data.load("diabetes")
    with pytest.raises(AttributeError, match=r"diabetes comes whole: use x, y, or split\(\)"):
        _ = table.x_train
    parts = table.split(test_size=0.25, random_state=0)
    with pytest.raises(AttributeError, match="diabetes comes in parts"):
        _ = parts.x
    assert len(parts.x_train) == len(parts.y_train) == 331
    assert len(parts.x_test) == len(parts.y_test) == 111
    rows = torch.cat([parts.x_train, parts.x_test])
    assert torch.equal(rows.unique(dim=0), table.x.unique(dim=0))


def test_split_matches_scikit_learn_and_stratifies() -> None:
    from sklearn.model_selection import train_test_split

    digits = data.load("digits")
    _, expected = train_test_split(digits.x.numpy(), test_size=0.3, random_state=5)
    assert torch.equal(digits.split(random_state=5).x_test, torch.from_numpy(expected))
    counts = digits.split(test_size=0.5, stratify=True).y_test.bincount() * 2 - digits.y.bincount()
    assert counts.abs().max() <= 2
