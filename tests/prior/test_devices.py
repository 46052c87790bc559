"""A model that is fitted on a GPU: nothing of it meets what is on the CPU, and it comes back."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from restt import prior
from restt.prior import Settings
from tests.elsewhere import GPU, Elsewhere, pretended_gpu


def table(rows: int) -> tuple[np.ndarray, np.ndarray, list[int | None]]:
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.standard_normal((rows, 2)), rng.integers(3, size=rows)])
    x[0, 1] = np.nan
    y = np.exp(x[:, 0] + (x[:, 2] == 1) + 0.1 * rng.standard_normal(rows))
    return x, y, [None, None, 3]


@pytest.mark.parametrize(("rows", "sizes"), [(20, {}), (60, {"scale_rows": 40})])
def test_is_the_same_wherever_it_is_fitted(rows, sizes):
    x, y, levels = table(rows)
    settings = Settings(first_rows=30, first_iterations=2, iterations=4, last_iterations=4, **sizes)
    here = prior.fit(x, y, levels=levels, settings=settings)
    with pretended_gpu():
        there = prior.fit(x, y, levels=levels, device=GPU, settings=settings)
    # Against y's scale: conjugate gradients in float32 leave values near 0 fewer digits.
    np.testing.assert_allclose(there.predict(x), here.predict(x), rtol=1e-6, atol=1e-6 * y.std())
    np.testing.assert_allclose(there.predict_interval(x), here.predict_interval(x), rtol=1e-6, atol=1e-6 * y.std())
    kept = [value for value in _held(there) if isinstance(value, torch.Tensor)]
    assert len(kept) > 20
    assert not any(isinstance(value, Elsewhere) for value in kept), "it comes back"


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
