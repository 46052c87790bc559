"""Rows that are encoded on another device: nothing there meets what is on the CPU, and what is learned comes back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from restt import ResTTRegressor
from restt.estimators import encoding as encodings
from restt.estimators.compact import state_positions
from restt.estimators.encoding import fit_encoding, site_covariances
from restt.estimators.gradient import encode
from restt.estimators.posterior import _end_rows
from restt.estimators.settings import settle
from restt.estimators.tables import Examples, Table, frame_table
from restt.estimators.targets import Values
from tests.elsewhere import GPU, Elsewhere, pretended_gpu


@pytest.fixture(autouse=True)
def never_few(monkeypatch) -> None:
    """A GPU encodes any number of rows."""
    monkeypatch.setattr(encodings, "FEW_FOR_GPU", 0)


def tables() -> list[Table | frame_table]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 3))
    frame = pd.DataFrame(x, columns=["a", "b", "c"]).assign(kind=rng.choice(["p", "q"], 60))
    frame.loc[:4, "b"] = np.nan
    return [Table(x), frame_table(frame)]


@pytest.mark.parametrize("feature_map", ["auto", "hat", "trigonometric", "affine", "polynomial", "onehot"])
@pytest.mark.parametrize("which", [0, 1])
def test_encodings_are_the_same_wherever_they_are_learned(which, feature_map):
    table, weights = tables()[which], np.linspace(0.5, 2.0, 60)
    here = fit_encoding(table, weights, feature_map=feature_map)
    numbers = here.numbers(table)
    with pretended_gpu():
        there = fit_encoding(table, weights, feature_map=feature_map, device=GPU)
        found = site_covariances(there, numbers, weights, GPU)
    assert there.feature_map.to_config() == here.feature_map.to_config()
    for name in ("shift", "scale", "fill", "means", "site_means"):
        held, expected = getattr(there, name), getattr(here, name)
        assert not isinstance(held, Elsewhere)
        assert (held is None) == (expected is None)
        if held is not None:
            torch.testing.assert_close(held, expected)
    assert type(found) is torch.Tensor
    torch.testing.assert_close(found, site_covariances(here, numbers, weights))


def test_rows_of_a_training_are_encoded_where_it_is():
    table, weights = tables()[1], np.ones(60)
    encoding = fit_encoding(table, weights)
    target, settings = (
        Values.fit(np.arange(60.0), weights),
        settle(60, 32, 2, 1, device="cpu", precision="float32", batch_size="auto", epochs=1),
    )
    rows = Examples(table, np.arange(60.0), weights)
    here = encode(rows, encoding, target, settings)
    with pretended_gpu():
        there = encode(rows, encoding, target, replace(settings, device=GPU))
    assert isinstance(there.vectors, Elsewhere)
    torch.testing.assert_close(there.vectors.cpu(), here.vectors)


def test_positions():
    x = np.random.default_rng(0).standard_normal((60, 2))
    encoding = ResTTRegressor(random_state=0).fit(x, x[:, 0]).encoding_
    here = state_positions(encoding, torch.from_numpy(x))
    with pretended_gpu() as away:
        there = state_positions(encoding, away(x))
    assert isinstance(there, Elsewhere)
    torch.testing.assert_close(there.cpu(), here)


def test_ends_are_rows_with_the_extremes_and_what_is_missing():
    x = np.zeros((9, 4))
    x[3, 0], x[4, 0] = 1.0, -1.0
    x[5, 1], x[6, 1], x[7, 1] = np.nan, 2.0, -2.0
    x[:, 2] = np.nan
    assert _end_rows(torch.from_numpy(x)) == {0, 3, 4, 5, 6, 7}
    with pretended_gpu() as away:
        assert _end_rows(away(x)) == {0, 3, 4, 5, 6, 7}
