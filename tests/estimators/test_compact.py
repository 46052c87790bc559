"""Rows as positions among states: the same site vectors, the same moments, and the same functions in another basis."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from restt import ResTTRegressor
from restt.estimators.compact import (
    change_basis,
    interpolated,
    prior_bases,
    state_bases,
    state_positions,
)
from restt.estimators.encoding import fit_encoding, site_covariances
from restt.estimators.tables import read_x


@pytest.fixture(scope="module")
def model() -> ResTTRegressor:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=120),
            "colour": rng.choice(["red", "green", "blue"], 120),
            "few": rng.integers(0, 3, 120).astype(float),
            "constant": np.ones(120),
        }
    )
    y = (frame["size"] + 2.0 * (frame["colour"] == "red") * frame["few"]).to_numpy()
    frame.loc[3:9, "size"] = np.nan
    frame.loc[[8, 9], "colour"] = None
    return ResTTRegressor(random_state=0).fit(frame, y + 0.1 * rng.normal(size=120)), frame


def numbers_of(model, frame) -> torch.Tensor:
    return torch.from_numpy(model.numbers(frame))


def test_positions_hold_the_site_vectors(model):
    model, frame = model
    numbers = numbers_of(model, frame)
    positions = state_positions(model.encoding_, numbers)
    found = interpolated(state_bases(model.encoding_), model.encoding_, torch.zeros(1).double())(positions)
    assert positions.dtype == torch.float32
    torch.testing.assert_close(found, model.encoding_.vectors(numbers), rtol=0, atol=2e-6)


def test_rows_far_outside_are_at_the_ends(model):
    model, frame = model
    numbers = numbers_of(model, frame)[:2]
    site = model.encoding_.order.index(0)
    numbers[:, 0] = torch.tensor([-1e30, 1e300])
    found = state_positions(model.encoding_, numbers)[:, site]
    assert found.tolist() == [0.0, model.encoding_.feature_map.widths[site] - 1]


def test_the_vectors_of_a_centred_encoding(numbers):
    x, _ = numbers
    table = read_x(ResTTRegressor(), x, reset=True)
    encoding = fit_encoding(table, np.ones(len(x)))
    values = torch.from_numpy(encoding.numbers(table))
    found = interpolated(state_bases(encoding), encoding, torch.zeros(1).double())(state_positions(encoding, values))
    torch.testing.assert_close(found, encoding.vectors(values), rtol=0, atol=2e-6)


def test_what_has_no_position_is_refused(model, numbers):
    model, frame = model
    unseen = numbers_of(model, frame)[:3]
    unseen[1, 3] = torch.nan
    with pytest.raises(ValueError, match="row 1 has a value in column 3 that the fit has no state for"):
        state_positions(model.encoding_, unseen)
    x, _ = numbers
    table = read_x(ResTTRegressor(), x, reset=True)
    with pytest.raises(ValueError, match="rows have positions among hats that end at the outermost knots, got Affine"):
        state_positions(fit_encoding(table, np.ones(len(x)), feature_map="affine"), torch.from_numpy(x))


def test_covariances_too_large_are_not_kept(model, monkeypatch):
    model, frame = model
    monkeypatch.setattr("restt.estimators.encoding.MOST_COVARIANCES", 10)
    assert site_covariances(model.encoding_, numbers_of(model, frame).numpy(), np.ones(len(frame))) is None


def test_a_module_is_the_same_function_in_the_priors_basis(model):
    model, frame = model
    encoding = model.encoding_
    bases = prior_bases(model.spread_, encoding.order)
    positions = state_positions(encoding, numbers_of(model, frame))
    changed = change_basis(model.module_, [basis.back for basis in bases], torch.float64)
    assert changed.feature_dim < max(encoding.widths)
    mapped = interpolated(bases, encoding, changed.first)
    expected = model.module_(encoding.vectors(numbers_of(model, frame)))
    torch.testing.assert_close(changed(mapped(positions)), expected, rtol=0, atol=5e-3)
    back = change_basis(changed, [basis.values for basis in bases], torch.float64)
    assert back.feature_dims == model.module_.feature_dims
    torch.testing.assert_close(
        back(encoding.vectors(numbers_of(model, frame))), changed(mapped(positions)), atol=2e-5, rtol=0
    )


def test_the_basis_is_the_priors_own(model):
    """Draws with weights of variance 1 have its covariance, and the functions are orthogonal over the rows."""
    model, _ = model
    spread = model.spread_
    for n, basis in zip(model.encoding_.order, prior_bases(spread, model.encoding_.order), strict=True):
        # What both products, halfway, and the sum expect of a function of this column, and of the constant.
        tables = [process.tables[n][:-1, :-1] for process in spread.processes]
        means = [(table[..., 0] + table[..., 1]) / 2 + table[..., 3] for table in tables]
        expected = sum(weight * mean for weight, mean in zip(spread.weights.tolist(), means, strict=True))
        kernel = spread.kernel
        moment = kernel.moments[n] if kernel.sites[n].knots is not None else torch.diag(kernel.means[n])
        seen = moment.diagonal() > 0
        torch.testing.assert_close(
            (basis.values @ basis.values.T)[seen][:, seen], expected[seen][:, seen], atol=1e-3, rtol=0
        )
        gram = basis.values.T @ moment @ basis.values
        torch.testing.assert_close(gram, torch.diag(gram.diagonal()), atol=1e-6, rtol=0)
        assert gram[0, 0] == pytest.approx(max(1.0, float(gram.diagonal().max())), rel=1e-6)
        torch.testing.assert_close(basis.back @ basis.values, torch.eye(len(gram)).double(), atol=1e-6, rtol=0)


def test_positions_take_the_memory_of_the_numbers_not_of_the_vectors(model):
    model, frame = model
    positions = state_positions(model.encoding_, numbers_of(model, frame))
    assert positions.numel() * positions.element_size() == 4 * frame.size
