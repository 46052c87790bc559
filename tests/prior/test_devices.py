"""A prior that is learned on a GPU: nothing of it meets what is on the CPU, and it comes back."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from restt import prior
from restt.prior.joint import JointPrior
from tests.elsewhere import GPU, Elsewhere, pretended_gpu


def table(rows: int) -> tuple[np.ndarray, np.ndarray, list[int | None]]:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.standard_normal((rows, 2)), rng.integers(3, size=rows)])
    x[0, 1] = np.nan
    y = np.exp(x[:, 0] + (x[:, 2] == 1) + 0.1 * rng.standard_normal(rows))
    return x, y, [None, None, 3]


@pytest.fixture(autouse=True)
def sums_in_one_order(monkeypatch):
    """A GPU takes all rows at once. Here too, so that numbers are the same to the last digits."""
    monkeypatch.setattr("restt.prior.columns._ROWS_AT_ONCE", 200)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(("rows", "most"), [(20, 100), (120, 100), (200, 60)])
def test_is_the_same_wherever_it_is_learned(rows, most):
    x, y, levels = table(rows)
    here = prior.fit(x, y, levels=levels, max_rows=most)
    with pretended_gpu():
        there = prior.fit(x, y, levels=levels, max_rows=most, device=GPU)
    np.testing.assert_allclose(there.predict(x), here.predict(x), rtol=1e-9)
    np.testing.assert_allclose(there.predict_interval(x), here.predict_interval(x), rtol=1e-9)
    kept = [value for value in _held(there) if isinstance(value, torch.Tensor)]
    assert len(kept) > 20
    assert not any(isinstance(value, Elsewhere) for value in kept), "it comes back"


def test_so_is_one_whose_noise_has_heavy_tails(monkeypatch):
    x, _, levels = table(200)
    y = x[:, 0] + 0.3 * np.random.default_rng(1).standard_t(1.5, 200)
    fitting, seen = sys.modules["restt.prior.fit"], []
    trusted = fitting.surprise_trust
    monkeypatch.setattr(fitting, "surprise_trust", lambda *given: seen.append(trusted(*given)) or seen[-1])
    here = prior.fit(x, y, levels=levels, max_rows=60)
    with pretended_gpu():
        there = prior.fit(x, y, levels=levels, max_rows=60, device=GPU)
    assert {type(trust) for trust in seen} == {torch.Tensor, Elsewhere}
    np.testing.assert_allclose(there.predict(x), here.predict(x), rtol=1e-9)
    np.testing.assert_allclose(there.predict_interval(x), here.predict_interval(x), rtol=1e-9)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("most", [100, 60])
def test_so_is_one_of_all_columns_at_once(most, monkeypatch):
    monkeypatch.setattr("restt.prior.kinds.FEW_ROWS", 20)
    x, _, levels = table(100)
    y = np.sin(2 * np.hypot(x[:, 0], np.nan_to_num(x[:, 1]))) + (x[:, 2] == 1)
    here = prior.fit(x, y, levels=levels, max_rows=most)
    assert JointPrior in [type(one.prior) for one in here.mixture.posteriors]
    with pretended_gpu():
        there = prior.fit(x, y, levels=levels, max_rows=most, device=GPU)
    np.testing.assert_allclose(there.predict(x), here.predict(x), rtol=1e-6)
    assert not any(isinstance(value, Elsewhere) for value in _held(there))


def _held(value: object, seen: set[int] | None = None) -> list[object]:
    """All that an object holds, and what that holds."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return [value]
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (tuple, list)):
        parts = list(value)
    else:
        parts = list(getattr(value, "__dict__", {}).values())
    return [value, *(found for part in parts for found in _held(part, seen))]


def test_what_a_gpu_would_refuse_is_refused():
    with pretended_gpu() as away:
        there = away([1.0, 2.0])
        assert there.device == GPU
        with pytest.raises(RuntimeError, match="on both devices"):
            there + torch.ones(2)
        with pytest.raises(RuntimeError, match="on both devices"):
            torch.ones(2) * there.sum()
        with pytest.raises(TypeError, match="numpy"):
            there.numpy()
        assert type((2 * there).cpu()) is torch.Tensor
        assert isinstance(torch.ones(2).to(there), Elsewhere)
        assert isinstance(torch.zeros(2, device=there.device) + there, Elsewhere)
        assert isinstance(there.new_zeros(2), Elsewhere)
